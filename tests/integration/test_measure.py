"""`plan --measure` against a real server: what it finds, and how it makes room for everybody else."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from statistics import fmean
from typing import Any, TypeVar

import pytest

from jobs.spec import ClassificationSpec
from scheduler.curve import Curve
from scheduler.ledger import Ledger
from scheduler.permit import Ask, Kind, Permit
from scheduler.pools import capacity_of
from scheduler.simulation.engine.profile import EngineProfile
from scheduler.simulation.fitted import played
from tests.engine.faults import Fault, Rule
from tests.engine.process import EngineThread
from tests.engine.service import ServiceSettings
from tests.support.engines import LABELS, chat_body, start
from tests.support.valkey import ValkeyServer
from tests.support.wait import wait_until_async
from tickets_batch.settings import Pool
from workers.measure.measurement import Bounds, Measurement, Unmeasurable
from workers.measure.texts import Texts

pytestmark = pytest.mark.long

T = TypeVar("T")
PROFILE = EngineProfile(slots=4, step_base_seconds=0.01)
QUICK = Bounds(
    step_seconds=0.3,
    most_step_seconds=0.8,
    tickets=8,
    probes=2,
    probe_seconds=2.0,
    quiet_seconds=0.3,
    patience_seconds=20.0,
)
IMPATIENT = Bounds(step_seconds=0.3, most_step_seconds=2.0, tickets=8, quiet_seconds=0.3, patience_seconds=1.5)
TEXTS = Texts(
    ClassificationSpec(labels={label: f"about {label}" for label in LABELS}, max_output_tokens=24),
    [("Late", f"Parcel {number} has not come. " * (1 + number % 9)) for number in range(400)],
    "400 tickets",
)
QUIET_TO_BE_SURE_SECONDS = 1.5  # longer than an abort may take and the quiet that is asked for
STORY_TOKENS = 20_000  # of a chat that goes on until its client goes


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    with EngineThread(PROFILE) as engine:
        yield engine


def pool(engine: EngineThread, **changes: Any) -> Pool:
    values = {
        "name": "gpu",
        "base_url": engine.base_url,
        "model": "test-model",
        "engine": "vllm",
        "capacity": {"slots": 2, "tokens": 8_000},
        "protected": {"interactive": {"slots": 1, "tokens": 4_000}, "batch": {"slots": 1, "tokens": 4_000}},
    }
    return Pool.model_validate(values | changes)


class Measuring:
    """A measurement under way, and what it has said."""

    def __init__(
        self, of: Pool, *, bounds: Bounds = QUICK, ledger: Ledger | None = None, is_watched: bool = True
    ) -> None:
        self.said: list[str] = []
        self._measurement = Measurement(
            of, TEXTS, ledger=ledger, say=self.said.append, bounds=bounds, is_watched=is_watched
        )
        self.task = asyncio.create_task(self._measurement.run())

    def has_said(self, words: str) -> bool:
        return any(words in line for line in self.said)


def run(step: Callable[[], Awaitable[T]]) -> T:
    async def main() -> T:
        return await step()

    return asyncio.run(main())


def measured(of: Pool, **named: Any) -> tuple[Curve, list[str]]:
    async def main() -> tuple[Curve, list[str]]:
        measuring = Measuring(of, **named)
        return await measuring.task, measuring.said

    return run(main)


def calls(engine: EngineThread) -> int:
    """Every call that the engine has ever had, but for our own look at it."""
    return len(engine.log()) + engine.busy()


def test_the_curve_is_what_the_engine_did(engine: EngineThread) -> None:
    curve, said = measured(pool(engine, capacity={"slots": 4, "tokens": 16_000}))
    numbers = [step.in_flight for step in curve.steps]
    assert {1, 2, 4} <= set(numbers)
    assert curve.tickets_from == "400 tickets"
    rows = [row for row in engine.log() if row.klass != "chat" and row.outcome == "ok" and row.max_tokens == 24]
    assert curve.prompt_tokens == pytest.approx(fmean(row.prompt_tokens for row in rows), rel=0.1)
    assert curve.output_tokens == pytest.approx(fmean(row.output_tokens for row in rows), rel=0.1)
    assert curve.ask_tokens == pytest.approx(curve.prompt_tokens + 24)
    model = played(PROFILE, numbers, round(curve.prompt_tokens), round(curve.output_tokens))
    for step, ideal in zip(curve.steps, model.steps, strict=True):
        # A machine with other work makes it slower than the model, never faster.
        assert 0 < step.tickets_per_second < 1.15 * ideal.tickets_per_second
        assert step.tickets >= 8
        assert step.ttft_seconds is not None
        assert step.token_seconds is not None
        assert step.ttft_seconds >= 0.009
        assert step.token_seconds >= 0.009
        assert step.probes == 2
    assert curve.tickets_per_second(4) > 1.5 * curve.tickets_per_second(1)
    assert len(said) == len(numbers)


def test_nothing_is_left_in_the_engine(engine: EngineThread) -> None:
    async def cut_short() -> None:
        measuring = Measuring(pool(engine))
        await wait_until_async(lambda: measuring.has_said("2 in flight"), "the second step")
        measuring.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await measuring.task
        await wait_until_async(lambda: engine.busy() == 0, "the engine to be idle")

    run(cut_short)


def test_all_is_withdrawn_when_chat_comes_and_it_goes_on_when_it_has_gone(engine: EngineThread) -> None:
    async def chat_in_the_middle() -> tuple[Curve, list[str]]:
        measuring = Measuring(pool(engine))
        await wait_until_async(lambda: measuring.has_said("1 in flight"), "the first step")
        with start(engine, chat_body(STORY_TOKENS)):
            await wait_until_async(lambda: measuring.has_said("all withdrawn"), "the chat to be seen")
            await wait_until_async(lambda: engine.busy() == 1, "the chat to be alone")
            calls_before = calls(engine)
            await asyncio.sleep(QUIET_TO_BE_SURE_SECONDS)  # nothing comes for as long as the chat is there
            assert calls(engine) == calls_before
        return await measuring.task, measuring.said

    curve, said = run(chat_in_the_middle)
    assert {1, 2} <= {step.in_flight for step in curve.steps}
    assert "quiet again: going on" in said
    assert any(row.outcome == "aborted" and row.max_tokens == 24 for row in engine.log())


def test_it_gives_up_where_the_chat_does_not_go(engine: EngineThread) -> None:
    async def endless() -> None:
        with start(engine, chat_body(STORY_TOKENS)):
            await wait_until_async(lambda: engine.busy() == 1, "the chat")
            await Measuring(pool(engine), bounds=IMPATIENT).task

    with pytest.raises(Unmeasurable, match="requests at the engine are not ours, and no quiet came within 2 s in all"):
        run(endless)
    assert {row.max_tokens for row in engine.log()} <= {STORY_TOKENS}


def test_it_is_not_begun_blind(engine: EngineThread) -> None:
    engine.change_settings(metrics_gone=True)
    with pytest.raises(Unmeasurable, match=r"nothing tells of the chat of pool gpu .*--unwatched"):
        measured(pool(engine))
    assert engine.log() == []


def test_where_nobody_can_be_there_it_is_begun_anyway(engine: EngineThread) -> None:
    engine.change_settings(metrics_gone=True)
    curve, _ = measured(pool(engine), is_watched=False)
    assert curve.knee.in_flight >= 1


def test_a_pool_of_batchs_own_needs_no_sight(engine: EngineThread) -> None:
    engine.change_settings(metrics_gone=True)
    whole = {"slots": 2, "tokens": 8_000}
    curve, _ = measured(pool(engine, capacity=whole, protected={"batch": whole}))
    assert {1, 2} <= {step.in_flight for step in curve.steps}


def test_where_the_engine_turns_requests_away_it_goes_no_further(engine: EngineThread) -> None:
    engine.set_profile(slots=1, max_queue=0)
    curve, said = measured(pool(engine))
    assert max(step.in_flight for step in curve.steps) == 1
    assert any(line.startswith("2 in flight: the engine does not serve so many (overloaded") for line in said)


def test_a_connection_that_breaks_now_and_then_is_no_reason_to_stop(engine: EngineThread) -> None:
    engine.set_faults(Rule(Fault("drop_before_headers"), numbers=(3, 12, 30)))
    curve, _ = measured(pool(engine))
    assert {1, 2} <= {step.in_flight for step in curve.steps}
    assert sum(row.outcome == "fault:drop_before_headers" for row in engine.log()) == 3


def test_tokens_that_the_engine_does_not_count_are_estimated(engine: EngineThread) -> None:
    engine.set_faults(Rule(Fault("missing_usage")))
    curve, _ = measured(pool(engine))
    assert curve.tickets_from == "400 tickets, tokens estimated: the engine reports no usage"
    (step, *_) = curve.steps
    asked = fmean(row.prompt_tokens for row in engine.log() if row.max_tokens == 24)
    assert curve.prompt_tokens == pytest.approx(asked, rel=0.25)
    assert step.completion_tokens_per_second > 0


def test_a_wrong_key_ends_it_with_one_line() -> None:
    with EngineThread(PROFILE, ServiceSettings(api_key="right")) as engine:
        with pytest.raises(Unmeasurable, match="blocked") as told:
            measured(pool(engine), is_watched=False)
        assert "\n" not in str(told.value)
        assert "doctor" in str(told.value)


def test_an_engine_that_is_gone_ends_it_with_one_line(engine: EngineThread) -> None:
    of = pool(engine, base_url="http://127.0.0.1:9/v1")
    with pytest.raises(Unmeasurable, match="unreachable"):
        measured(of, is_watched=False)


class TestLedger:
    """Chat and batches that the engine does not show, but the ledger."""

    def connect(self, of: Pool, valkey: ValkeyServer) -> Ledger:
        return Ledger.connect(valkey.url, of.name, capacity_of(of))

    @pytest.mark.parametrize(
        ("kind", "words"), [(Kind.INTERACTIVE, "chat has 1 in flight"), (Kind.BATCH, "a batch has 1 in flight here")]
    )
    def test_who_holds_a_permit_is_made_room_for(
        self, kind: Kind, words: str, engine: EngineThread, valkey: ValkeyServer
    ) -> None:
        engine.change_settings(metrics_gone=True)
        of = pool(engine, signal=[{"type": "ledger"}])

        async def permit_in_the_middle() -> None:
            ledger = self.connect(of, valkey)
            await ledger.found()
            beats = asyncio.create_task(self.beat(ledger))
            measuring = Measuring(of, ledger=self.connect(of, valkey))
            await wait_until_async(lambda: measuring.has_said("1 in flight"), "the first step")
            permit = await ledger.acquire(kind, Ask(10, 10))
            assert isinstance(permit, Permit)
            await wait_until_async(lambda: measuring.has_said(words), "the permit to be seen")
            await wait_until_async(lambda: engine.busy() == 0, "all to be withdrawn")
            await ledger.release(permit)
            await wait_until_async(lambda: measuring.has_said("going on"), "quiet to be seen")
            await wait_until_async(lambda: measuring.has_said("2 in flight"), "the next step")
            for task in (measuring.task, beats):
                task.cancel()
            await asyncio.gather(measuring.task, beats, return_exceptions=True)
            await ledger.aclose()

        run(permit_in_the_middle)

    async def beat(self, ledger: Ledger) -> None:
        while True:
            await ledger.beat()
            await asyncio.sleep(0.5)

    @pytest.mark.parametrize("signal", [[{"type": "ledger"}], []], ids=["no beat", "no signal"])
    def test_it_sees_only_where_it_is_named_and_a_gateway_beats(
        self, signal: list[dict[str, str]], engine: EngineThread, valkey: ValkeyServer
    ) -> None:
        engine.change_settings(metrics_gone=True)
        of = pool(engine, signal=signal)

        async def unseen() -> None:
            ledger = self.connect(of, valkey)
            await ledger.found()
            if not signal:
                await ledger.beat()
            await ledger.aclose()
            await Measuring(of, ledger=self.connect(of, valkey)).task

        with pytest.raises(Unmeasurable, match="or --unwatched when nobody can be there"):
            run(unseen)
