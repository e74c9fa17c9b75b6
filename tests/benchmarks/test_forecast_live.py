"""A batch in real time beside an alternating chat, forecast by its own scheduler, and how far off the forecasts were.

`test_forecast.py` judges the same code over many nights in virtual time; this is one night of some minutes.
"""

from pathlib import Path

import pytest

from jobs.store import forecasts
from scheduler.simulation.tickets import SHORT
from tests.engine.process import EngineProcess
from tests.simulation.chats import SHAPES
from tests.simulation.sites import MIDDLE
from tests.support.chat import Chat
from tests.support.night import Night
from tests.support.shared_night import SharedNight
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1200)]

TICKETS = 2_500
CHAT_SECONDS = 900.0  # longer than the batch takes
SEED = 1
WITHIN = {0.25: 0.15, 0.5: 0.10, 0.75: 0.05}  # of the time that was left


def test_forecasts_of_a_batch_beside_a_chat(tmp_path: Path, valkey: ValkeyServer) -> None:
    night = Night(tmp_path)
    try:
        with EngineProcess(MIDDLE.profile, "--answer-tokens", str(SHORT.output_tokens)) as engine:
            shared = SharedNight(night, MIDDLE, engine.base_url, valkey, ticket=SHORT)
            shared.start("gateway")
            with Chat(shared.gateway, SHAPES["alternating"](MIDDLE, SEED, CHAT_SECONDS)):
                shared.begin(TICKETS, ("scheduler", "worker"))
                wait_until(lambda: has_ended(night), "the end of the batch", CHAT_SECONDS)
        batch = night.json("status", "latest")
        made = forecasts.of_batch(night.database(), batch["batch_id"])
    finally:
        night.close()
    seconds = TICKETS / batch["rate_per_second"]
    print(f"\n{TICKETS} tickets in {seconds:.0f} s, {len(made)} forecasts")
    for found in batch["forecast_errors"]:
        print(
            f"  at {found['done_share']:.0%} of the work: p50 off by {found['error_share']:+.1%} of the time left, "
            f"{'within' if found['in_p90'] else 'beyond'} its p90"
        )
    errors = {found["done_share"]: abs(found["error_share"]) for found in batch["forecast_errors"]}
    assert errors.keys() == WITHIN.keys()
    assert all(errors[share] <= 2 * bound for share, bound in WITHIN.items())  # one night is no median


def has_ended(night: Night) -> bool:
    batch = night.batch()
    return batch is not None and batch.state.is_final
