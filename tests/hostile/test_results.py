"""What customers wrote into an id, on its way out: no spreadsheet runs any of it, and every program reads it back."""

import csv
import io
import json

import pytest

from jobs.export import COLUMNS, write_results
from jobs.store.results import ResultRow
from tests.hostile.texts import TEXTS, Text

STARTS_OF_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
READ = [pytest.param(text, id=text.name) for text in TEXTS]


def row(custom_id: str, error: str | None) -> ResultRow:
    values = dict.fromkeys(COLUMNS) | {"custom_id": custom_id, "state": "failed", "error": error, "attempts": 1}
    return ResultRow(**(values | {"truncated": False, "reused": False, "yields": 0}))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", READ)
def test_no_cell_of_the_results_is_run(text: Text) -> None:
    out = io.StringIO(newline="")
    write_results([row(text.read[:500], text.read[:500]), row("next", None)], "csv", out)
    header, *rows = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert [len(cells) for cells in (header, *rows)] == [len(COLUMNS)] * 3
    assert rows[1][0] == "next"
    for cell in rows[0]:
        assert not cell.startswith(STARTS_OF_FORMULAS)
        assert not any(piece.lstrip(" ").startswith(STARTS_OF_FORMULAS) for piece in cell.split(";"))


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize(
    "written",
    ["x\n=1+1;", "x\r=1+1\t", ';"=1+1;', '\t"=1+1\t', 'x; \t"" @SUM(1);', '"=1+1;x', "=1+1;=1+1", "a;\n\n+1;"],
)
def test_a_spreadsheet_that_splits_at_other_signs_runs_none_of_its_cells(written: str, separator: str) -> None:
    """To it our quotes stand inside a cell and mean nothing: a line end ends the row, a quote behind a sign opens."""
    out = io.StringIO(newline="")
    write_results([row(written, None)], "csv", out)
    cells = [cell for line in csv.reader(io.StringIO(out.getvalue(), newline=""), delimiter=separator) for cell in line]
    assert not [cell for cell in cells if cell.strip().startswith(STARTS_OF_FORMULAS)]


@pytest.mark.parametrize("text", READ)
def test_a_line_of_json_is_read_back_as_it_was(text: Text) -> None:
    out = io.StringIO(newline="")
    write_results([row(text.read, None)], "jsonl", out)
    assert json.loads(out.getvalue())["custom_id"] == text.read
    assert out.getvalue().count("\n") == 1
