"""When the services of a night are there for others."""

from jobs.store import services
from tests.support.night import Night
from tests.support.wait import wait_until


def wait_until_at_work(night: Night) -> None:
    """Wait until a scheduler and a worker have told the database that they are there: then `submit` finds them."""

    def are_there() -> bool:
        found = services.alive(night.database()) if night.processes("worker") else []
        return {"scheduler", "worker"} <= {service.role for service in found}

    wait_until(are_there, "a scheduler and a worker", 30)
