"""A whole run where no text is kept: the labels are there, and of the tickets nothing is left on the disk."""

import pytest

from tests.engine.process import EngineProcess
from tests.support.night import Night

WORD = "Kestrelwood"


@pytest.mark.long
def test_nothing_outlives_the_run(night: Night, steady_engine: EngineProcess) -> None:
    night.configure(steady_engine.base_url)
    path = night.folder / "tickets-batch.toml"
    path.write_text("keep_text = false\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    night.tickets([f"The parcel of Ms {WORD} number {number} is late." for number in range(20)])

    ended = night.run("submit", "--all", "--wait", code=0, timeout_seconds=120)

    batch_id = ended.out.strip()
    shown = night.run("results", batch_id, code=0).out
    assert shown.count(",succeeded,") == 20
    kept = [file for file in night.folder.rglob("*") if file.is_file() and WORD.encode() in file.read_bytes()]
    assert [file.name for file in kept] == ["tickets.csv"]  # the source
    night.run("submit", "--all", "--wait", code=0, timeout_seconds=120)
    assert night.run("status", batch_id, code=0).out.startswith(f"{batch_id}: completed")
