"""A measured curve on a terminal."""

import pytest

from scheduler.curve import Curve, Step
from tickets_batch.cli.plan_curve import curve_in_words

TARGET = 0.8
COLUMNS = 80


def step(in_flight: int, rate: float, probe_p95: float | None, *, is_steady: bool = True) -> Step:
    return Step(
        in_flight, 10.0, 100, rate, 12_345.6, 1_234.5, 1.0, 2.0, 0.1, 0.02, probe_p95, probe_p95,
        probes=12, is_steady=is_steady,
    )  # fmt: skip


def shown(*steps: Step, tickets_from: str = "300 tickets of tickets.csv (CSV)") -> list[str]:
    return "\n".join(curve_in_words(Curve(steps, 460, 40, 500, 900, tickets_from), TARGET)).splitlines()


LINES = shown(step(1, 2.0, 0.05), step(8, 9.5, 0.8), step(16, 10.0, 1.1, is_steady=False), step(32, 9.0, 30.0))


def test_it_is_readable_at_80_columns() -> None:
    wide = shown(step(4096, 9_876.5, 123.4), tickets_from="2,000 tickets of " + "a/long/path " * 12)
    assert max(map(len, LINES + wide)) <= COLUMNS


def test_the_table_has_a_line_for_each_step() -> None:
    assert [line.split()[0] for line in LINES[2:6]] == ["1", "8", "16", "32"]
    assert LINES[3].split() == ["8", "9.50", "12,346", "1,234", "1.00", "2.00", "0.10", "0.80", "0.80", "12"]


def test_what_is_not_steady_is_marked_and_the_mark_explained() -> None:
    assert [line.endswith("~") for line in LINES[2:6]] == [False, False, True, False]
    assert "~ not steady when its time was up" in LINES
    assert not any("~" in line for line in shown(step(1, 2.0, 0.05)))


def test_the_plot_marks_the_knee() -> None:
    (knee,) = [line for line in LINES if " knee" in line and "#" in line]
    assert knee.split()[0] == "8"


@pytest.mark.parametrize(("number", "bar"), [("1", "=           | 0.05"), ("8", "============| 0.80")])
def test_what_is_in_time_ends_before_the_mark(number: str, bar: str) -> None:
    assert any(line.split()[0] == number and line.endswith(bar) for line in LINES if "#" in line)


def test_what_is_late_goes_beyond_it() -> None:
    assert any(line.endswith("============|=== 1.10") for line in LINES)
    assert any(line.endswith("============|====> 30.00") for line in LINES)


def test_without_a_probe_there_is_no_second_plot() -> None:
    lines = shown(step(1, 2.0, None))
    assert not any("|" in line for line in lines)
    assert " - " in lines[2]
