"""The report of a whole night as a reader opens it: in a real browser."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.store.database import Database
from tests.engine.process import EngineProcess
from tests.support.browser import Browser, found_browser
from tests.support.night import Night
from tests.support.reported_night import GPU, reported_night
from tests.support.store import ManualClock
from tickets_batch.report.figures import Figures
from tickets_batch.report.page import page
from tickets_batch.settings import Settings

pytestmark = pytest.mark.rare

TICKETS, HOURS = 40_000, 8.0
MOST_BYTES = 3_000_000
MOST_SECONDS = 2.0
PICTURES = """
[...document.querySelectorAll('figure')].map(figure => {
  const svg = figure.querySelector('svg'), box = svg.getBoundingClientRect();
  const drawn = [...svg.querySelectorAll('path')].filter(path => {
    const part = path.getBoundingClientRect();
    return part.width + part.height > 0 && part.right > box.left && part.left < box.right;
  });
  return {name: figure.id, width: box.width, height: box.height, paths: drawn.length,
          texts: [...svg.querySelectorAll('text')].filter(text => text.getBoundingClientRect().width > 0).length};
})
"""
OPENED = "(() => { const at = performance.getEntriesByType('navigation')[0]; return at.loadEventEnd - at.startTime })()"
PAINTED = """
new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))
"""


@pytest.fixture
def whole_night(store: Database, store_clock: ManualClock) -> Figures:
    batch_id = reported_night(store, store_clock, tickets=TICKETS, hours=HOURS)
    return Figures.of(store, batch_id, Settings(timezone="Europe/Berlin", pool=(GPU,)))


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    path = found_browser()
    if path is None:
        pytest.skip("this machine has no Chromium")
    with Browser.opened(path, tmp_path / "browser") as opened:
        yield opened


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_it_opens_at_once_without_errors_and_every_plot_is_drawn(
    whole_night: Figures, browser: Browser, tmp_path: Path
) -> None:
    began = time.perf_counter()
    text = page(whole_night)
    made_seconds = time.perf_counter() - began
    file = tmp_path / "night.html"
    file.write_text(text, encoding="utf-8")
    browser.visit(file.as_uri())
    painted_seconds = browser.value(PAINTED) / 1000
    pictures = browser.value(PICTURES)
    print(
        f"\n{file.stat().st_size / 1e6:.2f} MB, made in {made_seconds:.1f} s, "
        f"loaded in {browser.value(OPENED) / 1000:.2f} s and drawn after {painted_seconds:.2f} s"
    )
    assert file.stat().st_size < MOST_BYTES
    assert painted_seconds < MOST_SECONDS
    assert browser.faults() == []
    assert set(browser.requested()) - {"data:,"} == {file.as_uri()}
    named = {picture["name"] for picture in pictures}
    assert named == {"ttft-gpu", "limit-gpu", "progress", "forecast", "labels", "failures", "tokens"}
    for picture in pictures:
        assert picture["width"] > 500, picture
        assert picture["height"] > 50, picture
        assert picture["paths"] >= 4, picture
        assert picture["texts"] >= 3, picture


def test_of_a_night_that_was(night: Night, steady_engine: EngineProcess) -> None:
    """By the whole product: what the report says is what `status` and `results` say."""
    night.configure(steady_engine.base_url, chat=4)
    night.tickets(f"Where is parcel {number}?" for number in range(200))
    ended = night.submit_and_wait()
    report = night.json("report", "latest")
    for key in ("batch_id", "state", "request_counts", "tokens", "yields", "withdrawn", "finished_at"):
        assert report[key] == ended[key], key
    assert report["labels"] == Counter(row["label"] for row in night.results().values())
    page_file = Path(night.run("report", "latest", code=0).out.strip())
    assert (night.folder / page_file).read_text(encoding="utf-8").count("<svg") >= 3
