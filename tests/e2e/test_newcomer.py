"""The mistakes of a newcomer that only the model shows: each is told once, with what to mend, and then all is well.

The way is the README's, in an empty directory; what shows before is in `tests/integration/test_newcomer_mistakes.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from scheduler.simulation.engine.profile import EngineProfile
from tests.engine.process import EngineThread
from tests.engine.service import ServiceSettings
from tests.support.command import Command
from tests.support.night import Night
from tests.support.patience import IMPATIENT

NOBODY = "http://127.0.0.1:9/v1"
KEY = "sk-the-right-one"
SUBMIT = ("submit", "--input", "tickets.csv", "--all", "--labels", "billing,shipping,technical", "--wait")
PARCELS = ("Where is my parcel?", "You charged me twice.", "I cannot log in.")


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong with the call, and the line that says so."""

    words: str
    base_url: str | None = None
    key: str = KEY
    model: str = "test-model"
    put_right: tuple[str, ...] = field(default=())  # what to add to the next submit


MISTAKES = {
    "wrong URL": Mistake(
        f"no connection to the endpoint: check the pool's base_url, {NOBODY}, and that its engine runs: "
        "connection refused",
        base_url=NOBODY,
    ),
    "wrong key": Mistake(  # which is masked, where that garbles nothing
        "the engine wants a valid key: set the pool's api_key, or OPENAI_API_KEY (Unauthorized)", key="e"
    ),
    "wrong model": Mistake(
        "the engine does not serve this model: set the pool's model, or --model, to one that it lists",
        model="tset-model",
        put_right=("--new",),
    ),
}


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineThread]:
    with EngineThread(EngineProfile.instant(), ServiceSettings(api_key=KEY)) as engine:
        yield engine


def submitted(night: Night, base_url: str, key: str, model: str, *more: str, code: int) -> Command:
    night.environment |= {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": key}
    program = IMPATIENT if code == 6 else None
    return night.run(*SUBMIT, "--model", model, *more, program=program, code=code, timeout_seconds=90)


@pytest.mark.rare
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_it_is_told_once_and_once_mended_there_are_labels(night: Night, engine: EngineThread, mistake: Mistake) -> None:
    night.tickets(PARCELS)
    blocked = submitted(night, mistake.base_url or engine.base_url, mistake.key, mistake.model, code=6)
    told, end = [line for line in blocked.talk if "blocked: " in line]
    assert mistake.words in told
    assert "submit --wait again" in end
    assert "Traceback" not in blocked.err

    if mistake.put_right:
        refused = submitted(night, engine.base_url, KEY, "test-model", code=1)
        assert "another model (tset-model, now test-model): add --new" in refused.talk[-1]
        assert f"tickets-batch cancel {blocked.out.strip()} ends it first" in refused.talk[-1]
    mended = submitted(night, engine.base_url, KEY, "test-model", *mistake.put_right, code=0)
    assert (mended.out == blocked.out) is not bool(mistake.put_right)
    night.environment.pop("OPENAI_BASE_URL")
    labels = night.run("results", "latest", "-o", "labels.csv", code=0)
    assert labels.talk == [f"{mended.out.strip()}: 3 rows in labels.csv"]
    assert all(row["label"] for row in night.results().values())
