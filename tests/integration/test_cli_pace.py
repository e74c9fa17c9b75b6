"""What `status` tells of a batch's pace: from its newest forecast, and of all of them when it has ended."""

from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from jobs.store import batches, forecasts, moves
from jobs.store.database import Database
from jobs.store.forecasts import StoredForecast
from tests.support.store import START, ManualClock, claim, submit, succeed
from tickets_batch.cli.prospect import Prospect
from tickets_batch.cli.text import Surroundings, batch_in_words
from tickets_batch.cli.view import as_json

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)


@pytest.fixture
def batch_id(store: Database) -> str:
    """One of ten tickets that is due at 07:00 in Berlin."""
    return submit(store, 10, deadline_at=START + 480 * MINUTE).batch_id


def foreseen(batch_id: str, **changed: object) -> StoredForecast:
    made = StoredForecast(
        batch_id=batch_id,
        at=START,
        jobs_left=10,
        tokens_left=5_000,
        achieved_rate=120.0,
        needed_rate=80.4,
        floor_rate=50.0,
        full_rate=400.0,
        chat_slots=3.5,
        p50_at=START + 400 * MINUTE,
        p90_at=START + 430 * MINUTE,
        floor_at=START + 600 * MINUTE,
        pace="on_track",
    )
    return replace(made, **changed)  # type: ignore[arg-type]


def words(store: Database, batch_id: str) -> str:
    batch = batches.get(store, batch_id)
    around = Surroundings(Prospect.of(store, batch), {}, "away", {}, [])
    return batch_in_words(batch, around, BERLIN, store.now())


def test_when_and_how_sure(store: Database, batch_id: str) -> None:
    forecasts.record(store, foreseen(batch_id))
    shown = words(store, batch_id)
    assert "done at    2026-12-01 05:40 Europe/Berlin as likely as not, by 06:10 in nine" in shown
    assert "pace       on track; 80 tokens/s needed, 120 achieved" in shown
    assert "never rests" not in shown  # the floor alone would not do


def test_even_if_the_chat_never_rests(store: Database, batch_id: str) -> None:
    forecasts.record(store, foreseen(batch_id, floor_at=START + 460 * MINUTE, pace="guaranteed"))
    assert "by 06:40 even if the chat never rests" in words(store, batch_id)


@pytest.mark.parametrize(
    ("pace", "said"), [("at_risk", "at risk: in more than"), ("will_miss", "even the whole limit")]
)
def test_what_is_not_well_is_said_in_words(store: Database, batch_id: str, pace: str, said: str) -> None:
    forecasts.record(store, foreseen(batch_id, pace=pace))
    assert said in words(store, batch_id)


def test_json(store: Database, batch_id: str) -> None:
    forecasts.record(store, foreseen(batch_id))
    batch = batches.get(store, batch_id)
    shown = as_json(batch, {}, Prospect.of(store, batch), store.now(), {})
    assert shown["eta"] == {"p50": "2026-12-01T04:40:00Z", "p90": "2026-12-01T05:10:00Z"}
    assert shown["pace"] == "on_track"
    assert shown["forecast"] == {
        "at": "2026-11-30T22:00:00Z",
        "tokens_left": 5_000,
        "achieved_tokens_per_second": 120.0,
        "needed_tokens_per_second": 80.4,
        "floor_tokens_per_second": 50.0,
        "full_tokens_per_second": 400.0,
        "chat_slots": 3.5,
        "floor_at": "2026-12-01T08:00:00Z",
    }


def test_an_old_forecast_is_not_told(store: Database, store_clock: ManualClock, batch_id: str) -> None:
    forecasts.record(store, foreseen(batch_id))
    store_clock.advance(61)
    batch = batches.get(store, batch_id)
    shown = as_json(batch, {}, Prospect.of(store, batch), store.now(), {})
    assert (shown["pace"], shown["forecast"], shown["eta"]["p90"]) == (None, None, None)
    assert "as likely as not" not in words(store, batch_id)


def test_who_waits_says_for_whom(store: Database, batch_id: str) -> None:
    later = submit(store, 5, deadline_at=START + 500 * MINUTE, source_key="later.csv").batch_id
    assert f"waits for  {batch_id}: the nearest deadline is served first" in words(store, later)
    assert "waits for" not in words(store, batch_id)
    moves.pause(store, batch_id)
    assert "waits for" not in words(store, later)


def test_what_came_of_the_forecasts(store: Database, store_clock: ManualClock, batch_id: str) -> None:
    forecasts.record(store, foreseen(batch_id, tokens_left=5_000))
    half = START + 60 * MINUTE
    forecasts.record(store, foreseen(batch_id, at=half, tokens_left=2_500, p50_at=half + 66 * MINUTE))
    store_clock.advance(120 * 60)
    succeed(store, claim(store, batch_id))
    shown = words(store, batch_id)
    assert "at 25% of the work 10% of the time left too late; at 50% of the work 10%" in " ".join(shown.split())
    batch = batches.get(store, batch_id)
    (first, second) = as_json(batch, {}, Prospect.of(store, batch), store.now(), {})["forecast_errors"]
    assert (first["done_share"], second["done_share"]) == (0.25, 0.5)
    assert first["error_share"] == pytest.approx(0.1)
    assert first["in_p90"] is True
