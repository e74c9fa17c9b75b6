"""Every mistake that a newcomer makes on the way to labels ends in one line that says what to do.

The way is the README's: an endpoint in the environment, a file of tickets, no settings. What shows only when the model
is called is in `tests/e2e/test_newcomer.py`.
"""

import ctypes
import gzip
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.in_process import Here, directory

CHECKOUT = Path(__file__).resolve().parents[2]
CSV = "id,subject,body\n1,Late,Where is my parcel?\n2,Twice,You charged me twice.\n"
LABELS = ("--labels", "billing,shipping")
MODEL = ("--model", "test-model")
SUBMIT = ("submit", "--input", "tickets.csv", "--all", *MODEL, *LABELS)
POOL = '[[pool]]\nname = "gpu"\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "x"\ncapacity = { slots = 4 }\n'
NO_CAPACITY = POOL.replace("slots = 4", 'slots = "four"')
READERS = [
    *(("status",), ("status", "--json"), ("status", "latest", "--json"), ("status", "--follow"), ("results", "latest")),
    *(("report", "latest"), ("cancel", "latest")),
]
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1  # from linux/prctl.h and linux/capability.h
WORKBOOK = b"PK\x03\x04 any workbook"


def of_file(name: str) -> tuple[str, ...]:
    return ("submit", "--input", name, "--all", *MODEL, *LABELS)


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong in a folder that holds `tickets.csv`: another file, a setting, a variable, or what is asked for.

    `words` must be in the line, and so must what to do about it, `mend`.
    """

    words: str
    mend: str
    arguments: tuple[str, ...] = SUBMIT
    code: int = 1
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    variables: Mapping[str, str | None] = field(default_factory=dict)


MISTAKES: dict[str, Mistake] = {
    # --- the file of tickets
    "file missing": Mistake("nowhere.csv does not exist", "is the path right?", of_file("nowhere.csv")),
    "empty file": Mistake("x.csv is empty", "has the export finished?", of_file("x.csv"), files={"x.csv": ""}),
    "only a header": Mistake("it has no rows", "--allow-empty", of_file("x.csv"), files={"x.csv": "id,body\n"}),
    "a directory": Mistake(". is a directory", "name one file", of_file(".")),
    "a workbook": Mistake(
        "x.xlsx is an Excel workbook", "save it as CSV", of_file("x.xlsx"), files={"x.xlsx": WORKBOOK}
    ),
    "a workbook called CSV": Mistake(
        "x.csv is an Excel workbook", "save it as CSV", of_file("x.csv"), files={"x.csv": WORKBOOK}
    ),
    "not text": Mistake("is binary", "as CSV or JSONL", of_file("x.csv"), files={"x.csv": bytes(range(256)) * 9}),
    "half a gzip": Mistake(
        "is cut off", "copy it again", of_file("x.csv.gz"), files={"x.csv.gz": gzip.compress(CSV.encode())[:-9]}
    ),
    "no known ending": Mistake("no known ending", "name it .csv", of_file("x.txt"), files={"x.txt": CSV}),
    "JSON called CSV": Mistake("holds JSON", "named .jsonl", of_file("x.csv"), files={"x.csv": '{"id": 1}\n'}),
    "wrong column": Mistake(
        'no column "body" for columns.body (nearest: "text"); its columns are: id, text',
        "set [source] columns",
        of_file("x.csv"),
        files={"x.csv": "id,text\n1,x\n"},
    ),
    "wrong column in the settings": Mistake(
        'no column "Betreff" for columns.subject',
        "set [source] columns",
        files={"tickets-batch.toml": '[source]\ncolumns = { subject = "Betreff" }\n'},
    ),
    "no dates": Mistake('no column "created_at"', "--all", ("submit", "--input", "tickets.csv", *MODEL, *LABELS)),
    "every row broken": Mistake(
        "2 rows cannot be used, the first is line 2: the id is empty",
        "--allow-empty",
        of_file("x.csv"),
        files={"x.csv": "id,body\n,x\n,y\n"},
    ),
    # --- what is asked for
    "no file": Mistake("there is no source of tickets", "--input", ("submit", "--all", *MODEL, *LABELS)),
    "no model": Mistake("no model is configured", "--model NAME", ("submit", "--all", *LABELS), code=2),
    "no labels": Mistake("no labels are configured", "--labels a,b,c", ("submit", "--all", *MODEL), code=2),
    "one label": Mistake("--labels", "at least two", (*SUBMIT, "--labels", "billing"), code=2),
    "wrong verb": Mistake("No such command 'sumbit'", "Did you mean 'submit'?", ("sumbit",), code=2),
    "wrong option": Mistake("No such option '--label'", "--labels", (*SUBMIT, "--label", "a,b"), code=2),
    "a file without --input": Mistake("unexpected extra argument", "submit -h", ("submit", "tickets.csv"), code=2),
    "wrong day": Mistake(
        '"yesterdy" is not a day',
        "YYYY-MM-DD",
        ("submit", "--input", "tickets.csv", *MODEL, *LABELS, "--date", "yesterdy"),
        code=2,
    ),
    "a day of all": Mistake("--all takes every row", "leave --date or --all out", (*SUBMIT, "--date", "today"), code=2),
    "wrong deadline": Mistake('"7am" is not a time of day', "HH:MM", (*SUBMIT, "--deadline", "7am"), code=2),
    "wrong pool": Mistake("there is no such pool", "the settings have default", (*SUBMIT, "--pool", "x"), code=2),
    "no batch yet": Mistake(
        "there is no batch yet in /", "/.tickets-batch/tickets-batch.db: tickets-batch submit", ("results", "latest")
    ),
    "results as a workbook": Mistake(
        "labels.xlsx: results are written as .csv or .jsonl, not as .xlsx",
        "say with --format",
        ("results", "latest", "-o", "labels.xlsx"),
        code=2,
    ),
    # --- the endpoint in the environment
    "no base_url": Mistake(
        "no model is configured", "set OPENAI_BASE_URL", code=2, variables={"OPENAI_BASE_URL": None}
    ),
    "not a URL": Mistake(
        'OPENAI_BASE_URL = "htp://127.0.0.1/v1"',
        "an http or https URL, as in",
        code=2,
        variables={"OPENAI_BASE_URL": "htp://127.0.0.1/v1"},
    ),
    # --- the settings
    "settings missing": Mistake("nope.toml: No such file", "nope.toml", ("status", "--config", "nope.toml"), code=2),
    "a typo in a key": Mistake(
        "deadlin is not a setting",
        'did you mean "deadline"?',
        code=2,
        files={"tickets-batch.toml": 'deadlin = "07:00"\n'},
    ),
    "a typo in a table's key": Mistake(
        "source.column is not a setting",
        'did you mean "columns"?',
        code=2,
        files={"tickets-batch.toml": '[source]\ncolumn = { id = "a" }\n'},
    ),
    "a wrong type": Mistake(
        "source.columns.id = 3", "write text in quotes", code=2, files={"tickets-batch.toml": "source.columns.id = 3\n"}
    ),
    "a wrong type of number": Mistake(
        'pool.0.capacity.slots = "four"', "valid integer", code=2, files={"tickets-batch.toml": NO_CAPACITY}
    ),
    "no capacity": Mistake(
        "tickets-batch.toml: pool.0.capacity is missing",
        "missing",
        code=2,
        files={"tickets-batch.toml": POOL.replace("capacity = { slots = 4 }\n", "")},
    ),
    "a wrong value": Mistake("deadline = 7", 'as in "07:00"', code=2, files={"tickets-batch.toml": "deadline = 7\n"}),
    "a wrong zone": Mistake(
        'timezone = "Berlin"',
        'for example "Europe/Berlin"',
        code=2,
        files={"tickets-batch.toml": 'timezone = "Berlin"\n'},
    ),
    "not TOML": Mistake("is not valid TOML", "line 1", code=2, files={"tickets-batch.toml": "deadline = 07:00\n"}),
    "settings not in UTF-8": Mistake(
        "is not UTF-8 text", "save it as UTF-8", code=2, files={"tickets-batch.toml": b'timezone = "Z\xfcrich"\n'}
    ),
    "a wrong variable": Mistake(
        "TICKETS_BATCH__DEADLIN names no setting",
        'did you mean "deadline"?',
        code=2,
        variables={"TICKETS_BATCH__DEADLIN": "07:00"},
    ),
    "a key that refers to nothing": Mistake(
        "the environment variable LLM_KEY is not set",
        "export it, or change the reference",
        ("submit", "--input", "tickets.csv", "--all", *LABELS, "--wait"),
        code=2,
        files={"tickets-batch.toml": POOL + 'api_key = { env = "LLM_KEY" }\n'},
    ),
    "a sink that refers to nothing": Mistake(
        "the environment variable WAREHOUSE_URL is not set",
        "export it, or change the reference",
        (*SUBMIT, "--wait"),
        code=2,
        files={"tickets-batch.toml": '[sink]\nurl = { env = "WAREHOUSE_URL" }\ntable = "labels"\n'},
    ),
    # --- this machine
    "a home that is a file": Mistake(
        "tickets.csv) is no directory",
        "set home in tickets-batch.toml",
        variables={"TICKETS_BATCH__HOME": "tickets.csv"},
    ),
    "to read in a home that is a file": Mistake(
        "tickets.csv) is no directory",
        "set home in tickets-batch.toml",
        ("status",),
        variables={"TICKETS_BATCH__HOME": "tickets.csv"},
    ),
    "a home that cannot be written": Mistake(
        "cannot write under home", "to a directory that you may write", variables={"TICKETS_BATCH__HOME": "/proc/home"}
    ),
    "no such database": Mistake(
        "cannot use the database postgresql+psycopg://u@127.0.0.1:9/x",
        "see that database_url is right and its server runs",
        variables={"TICKETS_BATCH__DATABASE_URL": "postgresql+psycopg://u@127.0.0.1:9/x"},
    ),
    "a database file that cannot be made": Mistake(
        "cannot use the database sqlite:////proc/x.db",
        "see that its directory is there, and that you may write to both",
        variables={"TICKETS_BATCH__DATABASE_URL": "sqlite:////proc/x.db"},
    ),
    "a database file that holds something else": Mistake(
        "file is not a database",
        "that file holds something else, or is damaged: put a backup in its place, or move it away",
        ("status",),
        files={"x.db": b"no database at all\n" * 100},
        variables={"TICKETS_BATCH__DATABASE_URL": "sqlite:///x.db"},
    ),
    "not a database": Mistake(
        "database_url is not a database URL",
        "write sqlite:///path",
        code=2,
        variables={"TICKETS_BATCH__DATABASE_URL": "nonsense"},
    ),
    "no such Redis": Mistake(
        "Redis does not answer",
        "check redis_url and the server",
        (*SUBMIT, "--wait"),
        variables={"TICKETS_BATCH__REDIS_URL": "redis://127.0.0.1:9/0"},
    ),
}


def obey_permissions() -> None:
    """To root, on Linux, no permission is refused: from its next program on it is, once this right is dropped."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    """An empty directory and an empty HOME, but for a good file of tickets, and an endpoint in the environment."""
    folder, user = tmp_path / "work", tmp_path / "user"
    folder.mkdir()
    user.mkdir()
    with directory(folder, monkeypatch, ""):
        Path("tickets-batch.toml").unlink()
        Path("tickets.csv").write_text(CSV)
        monkeypatch.setenv("HOME", str(user))
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        yield Here(capsys)


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_gives_one_line_that_says_what_to_do(
    here: Here, mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in mistake.files.items():
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    for variable, value in mistake.variables.items():
        if value is None:
            monkeypatch.delenv(variable)
        else:
            monkeypatch.setenv(variable, value)
    assert here(*mistake.arguments, code=mistake.code) == ""
    (line,) = here.err.splitlines()
    assert line.startswith("tickets-batch: ")
    assert mistake.words in line
    assert mistake.mend in line


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("id,subject,body\n1,Café,Où est-il?\n".encode("cp1252"), "lines that are not UTF-8, read as Windows-1252: 1"),
        ("id,subject,body\n1,Café,Où est-il?\n".encode("utf-16"), "read as UTF-16"),
        (b"id;subject;body\n1;Late;Where is it?\n", "the separator is a semicolon"),
        (b"id,body\n1,Where is it?\n", 'no column "subject" for columns.subject: the bodies alone are classified'),
    ],
)
def test_what_can_be_read_all_the_same_is_read_and_noted(here: Here, content: bytes, note: str) -> None:
    Path("tickets.csv").write_bytes(content)
    here(*SUBMIT, code=1)
    assert "1 ticket added" in here.err
    assert sum(note in line for line in here.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", READERS)
def test_who_only_reads_makes_nothing(here: Here, arguments: tuple[str, ...]) -> None:
    here(*arguments, code=0 if arguments in (("status",), ("status", "--json")) else 1)
    assert not Path(".tickets-batch").exists()
    here(*SUBMIT, code=1)
    assert Path(".tickets-batch").is_dir()


def test_settings_from_elsewhere_do_not_move_home_and_status_says_where_it_looked(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here(*SUBMIT, code=1)
    (tmp_path / "work" / "tickets-batch.toml").touch()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("TICKETS_BATCH_CONFIG", str(tmp_path / "work" / "tickets-batch.toml"))
    looked = Path.cwd() / ".tickets-batch" / "tickets-batch.db"
    assert here("status") == f"no batch yet in {looked}: tickets-batch submit makes one\n"
    monkeypatch.setenv("TICKETS_BATCH__HOME", str(tmp_path / "work" / ".tickets-batch"))
    assert "batch_" in here("status")


@pytest.mark.parametrize("arguments", [("status",), ("status", "latest"), ("results", "latest"), ("report", "latest")])
def test_a_database_that_may_not_be_written_is_named_and_no_other_home_is_proposed(
    here: Here, tmp_path: Path, run_in: Callable[..., tuple[int, str]], arguments: tuple[str, ...]
) -> None:
    here(*SUBMIT, code=1)
    home = tmp_path / "work" / ".tickets-batch"
    (home / "tickets-batch.db").chmod(0o444)
    home.chmod(0o555)
    try:
        code, said = run_in(tmp_path / "work", *arguments, is_root=False)
    finally:
        home.chmod(0o700)
    assert code == 1
    (line,) = said.splitlines()
    assert f"cannot use the database sqlite:///{home}/tickets-batch.db: " in line
    assert line.endswith("and that you may write to both: SQLite needs that even to read")


def test_a_disk_that_is_full_loses_nothing(here: Here) -> None:
    here(*SUBMIT, code=1)
    here("results", "latest", "-o", "/dev/full", code=1)
    (line,) = here.err.splitlines()
    assert "/dev/full: No space left on device; they are all still in the database: make room" in line
    here("report", "latest", "-o", "/proc/report.html", code=1)
    (line,) = here.err.splitlines()
    assert line.endswith("name another file with -o")


@pytest.mark.parametrize(
    ("verb", "setting"), [("gateway", "gateway.listen"), ("scheduler", "scheduler.metrics_listen")]
)
def test_a_port_that_is_taken(tmp_path: Path, run_in: Callable[..., tuple[int, str]], verb: str, setting: str) -> None:
    table, key = setting.split(".")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        (tmp_path / "tickets-batch.toml").write_text(f'{POOL}[{table}]\n{key} = "{address}"\n')
        code, said = run_in(tmp_path, verb)
    assert code == 1
    assert said.endswith(
        f"cannot listen on {address}: Address already in use; change {setting}, or stop what is there\n"
    )
    assert len([line for line in said.splitlines() if "INFO" not in line]) == 1


def test_a_port_that_is_taken_is_told_by_up_before_anything_else_runs(
    tmp_path: Path, run_in: Callable[..., tuple[int, str]]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        (tmp_path / "tickets-batch.toml").write_text(f'{POOL}[gateway]\nlisten = "{address}"\n')
        code, said = run_in(tmp_path, "up")
    assert code == 1
    (line,) = [line for line in said.splitlines() if "INFO" not in line]
    assert f"cannot listen on {address}: Address already in use; change gateway.listen" in line
    assert "the chat's door" not in said


@pytest.fixture
def run_in() -> Callable[..., tuple[int, str]]:
    """The command as a child in a folder: its exit code, and what it says."""

    def run(folder: Path, *arguments: str, is_root: bool = True) -> tuple[int, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TICKETS", "OPENAI"))}
        ended = subprocess.run(
            [sys.executable, "-m", "tickets_batch", *arguments],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            preexec_fn=None if is_root else obey_permissions,
        )
        return ended.returncode, ended.stderr

    return run


def test_a_python_that_is_too_old(tmp_path: Path) -> None:
    """Of the two ways in, a package installer refuses by itself what `requires-python` excludes; `make` asks."""
    old = tmp_path / "python3.10"
    old.write_text('#!/bin/sh\nexec python3 -c "import sys; sys.version_info = (3, 10); exec(sys.argv[1])" "$2"\n')
    old.chmod(0o755)
    ended = subprocess.run(
        ["make", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}", str(tmp_path / "venv" / "bin" / "python")],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    (line,) = ended.stderr.splitlines()
    assert f"{old} is older than 3.11, or not there: name a newer one with make PYTHON=python3.12" in line
    assert 'requires-python = ">=3.11"' in (CHECKOUT / "pyproject.toml").read_text()
