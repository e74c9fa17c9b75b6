"""The picture of a report in the README: `python -m tests.docs.picture` plays a night and takes it, in some minutes.

The night is played in virtual time by the admission of production, and told to a database as a scheduler and workers
would have told it; from there on everything is the product's: the figures, the page, and a browser that opens it. Only
the labels are drawn by lot, and are not in the picture.
"""

import base64
import math
import random
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from io import BytesIO
from pathlib import Path
from zoneinfo import ZoneInfo

from PIL import Image

from jobs.job import Finish
from jobs.outcomes import Requeued, Succeeded, Symptom, Usage
from jobs.store import claims, finishes, forecasts, samples, schema
from jobs.store.database import Database
from jobs.store.forecasts import StoredForecast
from scheduler.hours import SharedHours
from scheduler.simulation.night import Night, Outcome, Row
from scheduler.simulation.paced import Told, play_paced
from scheduler.simulation.shapes import overload
from scheduler.simulation.tickets import of_mean_lengths
from tests.docs.pages import CHECKOUT
from tests.simulation.sites import MIDDLE
from tests.support.browser import Browser, found_browser
from tests.support.reported_night import GPU
from tests.support.samples import sample_of
from tests.support.store import ManualClock, attempt, submit
from tickets_batch.report.figures import Figures
from tickets_batch.report.page import page
from tickets_batch.settings import Pool, Settings

PICTURE = CHECKOUT / "docs" / "report.png"
BERLIN = ZoneInfo("Europe/Berlin")
TEN = datetime(2026, 11, 30, 22, 0, tzinfo=BERLIN)
SEVEN = datetime(2026, 12, 1, 7, 0, tzinfo=BERLIN)
TICKETS, PROMPT_TOKENS, OUTPUT_TOKENS = 40_000, 2_400, 110
SHOWN = 3  # pictures of the page
WIDTH = 1000
COLOURS = 64
LABELS = ("shipping", "billing", "technical", "account")


def night() -> Night:
    """Forty thousand tickets beside a chat that falls asleep and wakes up."""
    rng = random.Random(3)
    seconds = (SEVEN - TEN).total_seconds()
    chat = [one for one in overload(MIDDLE, 3, seconds) if rng.random() < _per_second(one.at) / 12.0]
    tickets = of_mean_lengths(TICKETS, PROMPT_TOKENS, OUTPUT_TOKENS, 3)
    return Night(MIDDLE, SharedHours.of(None, BERLIN), tickets, chat, TEN, SEVEN, seed=3, holdout=0.02)


def _per_second(at: float) -> float:
    """Chat requests: most at ten in the evening, fewest at half past three, in waves of twenty minutes."""
    awake = 0.55 + 0.45 * math.cos(math.tau * at / 3600 / 11)
    return 3.2 * awake * (1 + 0.5 * math.sin(math.tau * at / 1200))


def tell(db: Database, clock: ManualClock, played: Night, outcome: Outcome, told: Sequence[Told]) -> str:
    """The night in the database; the id of its batch."""
    clock.instant = TEN
    spec = {"labels": dict.fromkeys(LABELS, "")}
    source = {"source": "exports/tickets-2026-11-30.csv", "spec": spec, "pools": ("gpu",)}
    batch_id = submit(db, len(played.tickets), deadline_at=SEVEN, **source).batch_id
    rng = random.Random(3)
    for row in outcome.rows:
        clock.instant = row.at
        _finish(db, batch_id, row, outcome, rng)
    samples.record(db, [sample_of(row) for row in outcome.rows])
    for one in told:
        forecasts.record(db, _forecast(batch_id, one))
    return batch_id


def _finish(db: Database, batch_id: str, row: Row, outcome: Outcome, rng: random.Random) -> None:
    """What ended in this stretch, and what was asked back."""
    held = claims.claim(db, batch_id, row.tickets + row.withdrawn, "worker-1", 60.0)
    used = Usage(row.tokens // max(1, row.tickets) - OUTPUT_TOKENS, OUTPUT_TOKENS)
    wasted = Usage(outcome.wasted_tokens // max(1, outcome.withdrawn))
    ended = []
    for place, job in enumerate(held):
        if place < row.tickets:
            label = rng.choices(LABELS, (5, 3, 2, 1))[0]
            ended.append(Finish(job, Succeeded(label), attempt(label=label, started_at=row.at, usage=used)))
        else:
            withdrawn = attempt(Symptom.WITHDRAWN, started_at=row.at, usage=wasted)
            ended.append(Finish(job, Requeued(is_yield=True), withdrawn))
    if ended:
        finishes.write(db, ended)


def _forecast(batch_id: str, told: Told) -> StoredForecast:
    found = told.forecast
    return StoredForecast(
        batch_id=batch_id,
        at=found.at,
        jobs_left=round(found.tokens_left / (PROMPT_TOKENS + OUTPUT_TOKENS)),
        tokens_left=round(found.tokens_left),
        achieved_rate=found.achieved_rate,
        needed_rate=found.needed_rate,
        floor_rate=found.floor_rate.tokens_per_second if found.floor_rate else None,
        full_rate=found.full_rate.tokens_per_second if found.full_rate else None,
        chat_slots=found.chat_slots,
        p50_at=found.p50_at,
        p90_at=found.p90_at,
        floor_at=found.floor_at,
        pace=told.pace.value if told.pace else None,
    )


def take(html: str, browser_path: str, folder: Path) -> bytes:
    """The upper part of the page as a PNG."""
    file = folder / "report.html"
    file.write_text(html, encoding="utf-8")
    with Browser.opened(browser_path, folder / "browser") as browser:
        browser.ask("Emulation.setDeviceMetricsOverride", width=WIDTH, height=900, deviceScaleFactor=1, mobile=False)
        browser.visit(file.as_uri())
        bottom = browser.value(f"document.querySelectorAll('figure')[{SHOWN - 1}].getBoundingClientRect().bottom")
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": math.ceil(bottom) + 8, "scale": 1}
        shot = browser.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
    small = BytesIO()
    with Image.open(BytesIO(base64.b64decode(shot["data"]))) as image:
        image.convert("RGB").quantize(COLOURS).save(small, "PNG", optimize=True)
    return small.getvalue()


def _pool() -> Pool:
    own = MIDDLE.capacity
    capacity = {"slots": own.total.slots, "tokens": own.total.tokens}
    protected = {
        "interactive": {"slots": own.protected_interactive.slots, "tokens": own.protected_interactive.tokens},
        "batch": {"slots": own.floor.slots, "tokens": own.floor.tokens},
    }
    return Pool.model_validate({**GPU.model_dump(), "capacity": capacity, "protected": protected})


def main() -> None:
    """Play the night, and put its picture in its place."""
    browser_path = found_browser()
    if browser_path is None:
        sys.exit("this machine has no Chromium: install it, and take the picture again")
    played = night()
    outcome, told = play_paced(played, lambda row: print(f"{row.at:%H:%M} {row.tickets_left:,} left", end="\r"))
    with tempfile.TemporaryDirectory(prefix="picture-") as folder:
        url, clock = f"sqlite:///{folder}/night.db", ManualClock(TEN)
        schema.upgrade(url)
        db = Database.open(url, clock)
        batch_id = tell(db, clock, played, outcome, told)
        figures = Figures.of(db, batch_id, Settings(timezone="Europe/Berlin", pool=(_pool(),)))
        html = page(figures)
        db.dispose()
        PICTURE.write_bytes(take(html, browser_path, Path(folder)))
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
