"""What the live view says of a batch: everything a person asks in the night, in 80 columns, and how old it is."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.states import BatchState
from scheduler.capacity import Amount
from scheduler.permit import Kind
from scheduler.pool_reading import PoolReading
from tests.support.live import HEARD, HOUR, ID, MINUTE, batch, busy, event, forecast, look, pool, service
from tests.support.readings import BERLIN, DEDICATED, note, reading, snapshot, stale, waited
from tests.support.store import START
from tickets_batch.cli.live.event_text import event_in_words
from tickets_batch.cli.live.first_tokens import Heard
from tickets_batch.cli.live.lines import in_words
from tickets_batch.cli.live.look import Look, PoolLook
from tickets_batch.cli.live.row import ASCII, Glyphs, Tone, laid_out
from tickets_batch.cli.live.rows import rows_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "night.md"


def named(shown: Look) -> dict[str, str]:
    """The rows that have a name, by it; of a pool's the second `chat` row is what the chat feels."""
    return {row.name.strip(): row.words for row in rows_of(shown, BERLIN) if row.name}


def tones(shown: Look) -> dict[str, Tone]:
    return {row.name.strip(): row.tone for row in rows_of(shown, BERLIN) if row.name}


def text(shown: Look, columns: int = 80, lines: int = 40) -> str:
    return "\n".join(line.text for line in laid_out(rows_of(shown, BERLIN), columns, lines, ASCII))


class TestInEightyColumns:
    def test_all_of_it_is_there(self) -> None:
        shown = text(look())
        for words in (
            f"{ID}: running; 23:00:00 Europe/Berlin",
            "50%, 20,016 of 40,000 done",
            "20,004 succeeded, 12 failed, 9 running, 19,975 pending",
            "0.8 tickets/s now, 0.9 since the first",
            "05:40 as likely as not, by 06:10 in nine cases of ten",
            "07:00, in 8 h 0 min; 50 min to spare in nine cases of ten",
            "on track; 310 tokens/s needed, 420 achieved",
            "batch     9 of  12 slots    30,000 of    36,000 tokens",
            "chat      6 of  20 slots    18,000 of    60,000 tokens",
            "headroom: chat holds 18,000 of 60,000 tokens",
            "first token 0.31 s (p50), 0.52 s (p95), target 0.80 s; 17 in 60 s",
            "ledger 1 s ago, engine 1 s ago",
            "40 yields, 3 withdrawn in flight, 1,204 tokens wasted",
            "1 scheduler, 2 workers",
            "22:59:40 pool gpu: floor -> shared, headroom",
            "22:45:00 pace at risk -> on track",
        ):
            assert words in shown
        assert max(map(len, shown.splitlines())) <= 80

    def test_it_fits_a_terminal_of_24_lines_whole(self) -> None:
        assert text(look(), lines=24) == text(look(), lines=99)

    def test_in_a_short_window_what_matters_stays(self) -> None:
        shown = text(look(notes=("no worker is alive",)), lines=8)
        for words in (ID, "20,016 of 40,000", "no worker is alive", "05:40", "07:00", "on track", "first token 0.31"):
            assert words in shown
        assert "yields" not in shown

    def test_in_a_narrow_one_too(self) -> None:
        shown = text(look(), columns=40)
        assert max(map(len, shown.splitlines())) <= 40
        assert "chat 6 of 20 slots 18,000 of 60,000" in shown


class TestHowOld:
    def test_an_old_look_says_so_and_has_no_colours_of_now(self) -> None:
        shown = look(age_seconds=14, notes=("cannot use the database: gone; waiting for it",))
        title, noted, *rest = rows_of(shown, BERLIN)
        assert (title.words, title.tone) == (f"{ID}: running; as of 23:00:00 Europe/Berlin, 14 s ago", Tone.BAD)
        assert (noted.words, noted.tone) == ("cannot use the database: gone; waiting for it", Tone.BAD)
        assert {row.tone for row in rest} == {Tone.FAINT}

    def test_a_forecast_that_is_getting_old_says_so(self) -> None:
        assert "foreseen" not in named(look())["done at"]
        shown = named(look(forecast=forecast(at=START - timedelta(seconds=35))))
        assert shown["done at"].endswith("in nine cases of ten (foreseen 35 s ago)")

    def test_one_that_is_too_old_is_no_longer_believed(self) -> None:
        shown = look(forecast=forecast(at=START - 5 * MINUTE))
        assert named(shown)["done at"] == "about 05:56 at this rate; no forecast for 5 min"
        assert tones(shown)["done at"] is Tone.WARNING
        assert named(shown)["deadline"] == "07:00, in 8 h 0 min"
        assert "pace" not in named(shown)

    def test_without_any_there_is_the_rate(self) -> None:
        assert named(look(forecast=None))["done at"] == "about 05:56 at this rate; no forecast yet"
        assert named(look(forecast=None, rate_per_second=None))["done at"] == "no forecast yet"
        assert named(look(rate_per_second=None))["rate"] == "no ticket done of late, 0.9 since the first"

    def test_one_that_says_nothing_yet(self) -> None:
        shown = named(look(forecast=forecast(p50_at=None, p90_at=None, floor_at=None, pace=None)))
        assert shown["done at"] == "about 05:56 at this rate; too little is known yet for a forecast"
        assert shown["deadline"] == "07:00, in 8 h 0 min"

    def test_who_does_not_make_one(self) -> None:
        shown = look(forecast=None, rate_per_second=None, at_work=(service("worker"),))
        assert named(shown)["done at"] == "no forecast yet: no scheduler is alive"
        assert tones(shown)["done at"] is Tone.WARNING

    @pytest.mark.parametrize(
        ("changes", "what"), [({"state": BatchState.PAUSED}, "paused"), ({"blocked": "HTTP 401"}, "blocked")]
    )
    def test_of_a_batch_that_rests_none_counts(self, changes: dict[str, Any], what: str) -> None:
        shown = look(batch(**changes))
        assert named(shown)["done at"] == f"nothing is foreseen of a batch that is {what}"
        assert "pace" not in named(shown)
        assert " ends " not in in_words(shown, BERLIN)

    def test_a_source_that_is_stale(self) -> None:
        old = note("headroom", "", age_seconds=0.4, ledger=0.2, engine=None)
        shown = look(pools=(pool(busy(note=old)),))
        assert named(shown)["readings"] == "ledger 1 s ago, engine never"
        assert tones(shown)["readings"] is Tone.WARNING

    def test_a_limit_that_is_not_in_force(self) -> None:
        found = reading(stale(note=note("headroom", "", age_seconds=40, ledger=0.2)))
        shown = look(pools=(pool(found),))
        assert named(shown)["limit"] == "stale: no fresh limit for 40 s: the floor holds"
        assert tones(shown)["limit"] is Tone.WARNING
        assert named(shown)["readings"] == "ledger 40 s ago (stale)"

    @pytest.mark.parametrize(
        "found",
        [
            busy(limit_is_published=False, note=""),
            busy(note=note("blind", "", is_blind=True, ledger=None, engine=None)),
        ],
    )
    def test_before_the_first_reading_it_is_called_neither_stale_nor_blind(self, found: PoolReading) -> None:
        shown = look(pools=(pool(found),))
        assert named(shown)["limit"] == "no reading yet: the floor holds"
        assert "slots (no reading yet), chat 6" in in_words(shown, BERLIN)

    def test_a_blind_pool(self) -> None:
        found = busy(note=note("blind", "", is_blind=True))
        shown = look(pools=(pool(found),), notes=(f"pool gpu: {found.reason}",))
        assert named(shown)["limit"] == "blind: the floor holds"
        assert "start the gateway, or add a [[pool.signal]]" in named(shown)["look here"]
        assert named(shown)["readings"] == "none: no source has answered"

    def test_a_ledger_that_is_away(self) -> None:
        shown = look(pools=(PoolLook("gpu", None, 0.8, Heard()),), why_away="Redis does not answer")
        assert named(shown)["pool gpu"] == "what is held there is not known now"
        assert "first token" not in text(shown)

    def test_a_pool_that_is_in_other_settings(self) -> None:
        shown = named(look(pools=(PoolLook("gpu", None, None, Heard()),)))
        assert shown["pool gpu"] == "what is held there is not known now: it is not in these settings"


class TestWhatTheChatFeels:
    @pytest.mark.parametrize(
        ("heard", "words", "tone"),
        [
            (HEARD, "first token 0.31 s (p50), 0.52 s (p95), target 0.80 s; 17 in 60 s", Tone.GOOD),
            (Heard(9, 0.6, 0.9), "first token 0.60 s (p50), 0.90 s (p95), target 0.80 s; 9 in 60 s", Tone.WARNING),
            (Heard(9, 1.1, 1.9), "first token 1.10 s (p50), 1.90 s (p95), target 0.80 s; 9 in 60 s", Tone.BAD),
            (
                Heard(36, 0.3, 0.5, is_of_late=False),
                "first token 0.30 s (p50), 0.50 s (p95), target 0.80 s; 36 before this view began",
                Tone.GOOD,
            ),
            (
                Heard(is_of_late=False, silent_seconds=185),
                "no first token in the last 3 min, target 0.80 s",
                Tone.PLAIN,
            ),
        ],
    )
    def test_beside_its_target(self, heard: Heard, words: str, tone: Tone) -> None:
        shown = look(pools=(pool(heard=heard),))
        assert named(shown)["chat"] == words
        assert tones(shown)["chat"] is tone

    def test_who_waits_is_told_while_it_waits(self) -> None:
        shown = look(pools=(pool(busy(interactive_waiting=2, oldest_waiting_seconds=1.3, refused=7)),))
        assert named(shown)["chat"].endswith("17 in 60 s; 2 wait, for up to 1.3 s; 7 refused in all")
        assert tones(shown)["chat"] is Tone.BAD

    def test_who_has_just_come_is_not(self) -> None:
        shown = look(pools=(pool(busy(interactive_waiting=2, oldest_waiting_seconds=0.3)),))
        assert named(shown)["chat"].endswith("17 in 60 s")
        assert tones(shown)["chat"] is Tone.GOOD

    def test_a_pool_of_batch_s_own_has_none(self) -> None:
        held = snapshot(batch=Amount(11, 20_000), limit=DEDICATED.total, recent=waited(0.2, kind=Kind.BATCH))
        shown = named(look(pools=(pool(reading(held, capacity=DEDICATED)),)))
        assert "11 of  20 slots" in shown["pool gpu"]
        assert shown["limit"] == "dedicated: all of the pool is batch's own"
        assert "chat" not in shown


class TestWhatIsAhead:
    @pytest.mark.parametrize(
        ("pace", "tone"),
        [("guaranteed", Tone.GOOD), ("on_track", Tone.GOOD), ("at_risk", Tone.WARNING), ("will_miss", Tone.BAD)],
    )
    def test_the_colour_is_that_of_the_pace(self, pace: str, tone: Tone) -> None:
        shown = tones(look(forecast=forecast(pace=pace)))
        assert (shown["pace"], shown["deadline"]) == (tone, tone)

    def test_how_far_past_the_deadline(self) -> None:
        shown = named(look(forecast=forecast(p90_at=START + 8 * HOUR + 20 * MINUTE, pace="at_risk")))
        assert shown["deadline"] == "07:00, in 8 h 0 min; the later time above is 20 min past it"
        assert shown["pace"].startswith("at risk: in more than one case of ten")

    def test_none_is_needed(self) -> None:
        shown = named(look(batch(deadline_at=None), forecast=forecast(pace=None)))
        assert shown["deadline"] == "none"
        assert "pace" not in shown

    def test_another_day_has_its_date(self) -> None:
        shown = named(look(forecast=forecast(p90_at=START + 40 * HOUR)))
        assert "by 12-02 15:00 in nine" in shown["done at"]

    def test_whom_it_waits_for(self) -> None:
        assert named(look(waits_for=("batch_b",)))["waits for"] == "batch_b: the nearest deadline is served first"

    def test_a_batch_that_has_ended_looks_back(self) -> None:
        ended = batch(state=BatchState.COMPLETED, finished_at=START, succeeded=39_988, pending=0, running=0)
        shown = named(look(ended))
        assert shown["finished"] == "2026-11-30 23:00 Europe/Berlin"
        assert not {"done at", "deadline", "pace"} & shown.keys()
        assert "100%, 40,000 of 40,000 done" in shown["done"]

    def test_a_batch_without_tickets(self) -> None:
        empty = batch(total=0, succeeded=0, failed=0, pending=0, running=0)
        assert named(look(empty))["done"] == "0%, 0 of 0 done"


def test_the_picture_in_the_pages_is_what_is_drawn() -> None:
    drawn = "\n".join(line.text for line in laid_out(rows_of(look(), BERLIN), 80, 24, Glyphs()))
    assert f"```\n{drawn}\n```" in PAGE.read_text(encoding="utf-8")


def test_why_it_is_blocked_is_said_once() -> None:
    shown = text(look(batch(blocked="HTTP 401: the key is wrong"), notes=("blocked: HTTP 401: the key is wrong",)))
    assert f"{ID}: running, blocked; " in shown
    assert shown.count("HTTP 401") == 1


@pytest.mark.parametrize(
    ("kind", "detail", "words"),
    [
        (
            "submitted",
            {"added": 40_000, "reused": 120, "rejected": 2},
            "submitted: 40,000 tickets, 120 of them reused, 2 rows rejected",
        ),
        ("topped_up", {"added": 1}, "topped up: 1 ticket"),
        ("retried", {"failed": 3, "expired": 1_200}, "retried: 3 failed, 1,200 expired"),
        (
            "reaped",
            {"jobs": 32, "failed": 1, "workers": ["w"]},
            "32 tickets taken back from workers that went away, 1 of them failed",
        ),
        ("blocked", {"why": "model not found"}, "blocked: model not found"),
        ("unblocked", {"was": "model not found"}, "goes on: it is blocked no more"),
        ("pace", {"from": None, "to": "will_miss"}, "pace will miss"),
        ("running", {}, "resumed"),
        ("cancelled", {}, "cancelled"),
        (
            "completed",
            {"succeeded": 39, "failed": 1, "expired": 0, "cancelled": 0},
            "completed: 39 succeeded, 1 failed",
        ),
        ("expired", {"succeeded": 0, "failed": 0, "expired": 5, "cancelled": 0}, "deadline passed: 5 expired"),
        ("some_new_kind", {"with": 1}, "some new kind"),
    ],
)
def test_events_in_words(kind: str, detail: dict[str, Any], words: str) -> None:
    assert event_in_words(event(kind, **detail)) == words
