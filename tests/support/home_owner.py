"""A command that runs embedded services until it is told to stop: `python home_owner.py HOME SERVICE...`.

Instead of the real scheduler and workers it starts processes that only sleep. It prints one JSON line when it is up,
and one for everything that it is told about its services.
"""

import json
import signal
import sys
import threading
from pathlib import Path

from tickets_batch.local import services
from tickets_batch.settings import load

SLEEPER = "import time, sys; print('asleep', flush=True); time.sleep(1000)"


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


def main() -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    services.COMMAND = (sys.executable, "-c", SLEEPER)  # type: ignore[assignment]
    settings = load().model_copy(update={"home": Path(sys.argv[1])})
    want = [service for service in services.IN_ORDER if service in sys.argv[2:]]
    with services.EmbeddedServices(settings, want, said=lambda line: say(said=line)) as running:
        say(redis_url=running.redis_url, owned=[service for service in want if running.owns(service)])
        stop.wait()
    say(stopped=True)


main()
