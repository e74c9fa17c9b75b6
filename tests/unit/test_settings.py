"""The settings: what they accept, and what a person reads when they do not."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tickets_batch.errors import SettingsError
from tickets_batch.settings import Settings, load, reveal, to_environment

SAMPLE = """
timezone = "Europe/Berlin"           # IANA name: the business day and the deadline live here
deadline = "07:00"                   # or "none"
home = ".tickets-batch"              # embedded services, logs, reports
# database_url = "postgresql+psycopg://user@db/tickets"     unset: SQLite under home
# redis_url    = "redis://redis:6379/0"                     unset: an embedded server under home

[source]
path = "exports/tickets-{date}.csv"  # .csv .jsonl, each also .gz; or  url = "postgresql+psycopg://..."  query = "..."
columns = { id = "Ticket ID", subject = "Subject", body = "Description", created_at = "Created at" }   # also: priority

[classification]
labels = { billing = "charges, invoices, prices", shipping = "delivery, parcels", technical = "bugs, errors", \
account = "login, profile" }
instructions = "You sort a shop's support tickets."
examples = [{ text = "I was charged twice.", label = "billing" }]
max_output_tokens = 32

[[pool]]
name = "gpu"
base_url = "http://127.0.0.1:8000/v1"
model = "qwen2.5-7b-instruct"
engine = "vllm"                      # vllm | sglang | tensorrt-llm | tgi | llama.cpp | openai
api_key = { env = "LLM_API_KEY" }
capacity  = { slots = 20, tokens = 60000 }
protected = { interactive = { slots = 8, tokens = 24000 }, batch = { slots = 2, tokens = 6000 } }
ttft_target_seconds = 0.8

[[pool.signal]]
type = "ledger"                      # ledger | engine | prometheus | probe

[gateway]
listen = "127.0.0.1:8090"
"""


@pytest.fixture(autouse=True)
def clean_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without settings, and an environment that says nothing."""
    for name in list(os.environ):
        if name.startswith(("TICKETS_BATCH", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(text: str, path: Path = Path("tickets-batch.toml")) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def refusal(text: str = "") -> str:
    """What a person reads when the file with this text is loaded."""
    written(text)
    with pytest.raises(SettingsError) as refused:
        load()
    return str(refused.value)


class TestTheFile:
    def test_the_sample_of_the_documentation_is_accepted_whole(self) -> None:
        settings = load(written(SAMPLE, Path("sample.toml")))
        assert settings.deadline == "07:00"
        assert settings.zone.key == "Europe/Berlin"
        assert settings.source.columns.created_at == "Created at"
        assert settings.classification is not None
        assert list(settings.classification.labels) == ["billing", "shipping", "technical", "account"]
        (pool,) = settings.pool
        assert (pool.capacity.slots, pool.protected.interactive.tokens, pool.protected.batch.slots) == (20, 24000, 2)
        assert pool.signal[0].type == "ledger"

    def test_without_a_file_there_are_defaults(self, clean_place: Path) -> None:
        settings = load()
        assert settings.pool == ()
        assert settings.effective_database_url == f"sqlite:///{clean_place}/.tickets-batch/tickets-batch.db"

    def test_what_may_be_said_of_a_night(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOOK", "https://h/key")
        settings = load(
            written(
                SAMPLE.replace('engine = "vllm"', "cost_per_hour = 2")
                + "[alert]\nwebhook = { env = 'HOOK' }\n[scheduler]\nmetrics_listen = '127.0.0.1:9102'\n"
            )
        )
        assert settings.pool[0].cost_per_hour == 2.0
        assert settings.alert.webhook is not None
        assert settings.alert.webhook.reveal() == "https://h/key"
        assert settings.scheduler.metrics_listen == "127.0.0.1:9102"
        assert settings.deadline_grace_seconds == 2.0

    def test_the_file_is_found_by_name_by_variable_and_by_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written('timezone = "Europe/Rome"')
        named = written('timezone = "Europe/Paris"', Path("named.toml"))
        given_path = written('timezone = "Europe/Oslo"', Path("given.toml"))
        assert load().timezone == "Europe/Rome"
        monkeypatch.setenv("TICKETS_BATCH_CONFIG", str(named))
        assert load().timezone == "Europe/Paris"
        assert load(given_path).timezone == "Europe/Oslo"
        monkeypatch.setenv("TICKETS_BATCH_CONFIG", "")
        assert load().timezone == "UTC"

    def test_a_byte_order_mark_is_no_part_of_the_first_key(self) -> None:
        assert load(written('\ufefftimezone = "Europe/Rome"')).timezone == "Europe/Rome"

    def test_a_missing_file_says_so(self) -> None:
        with pytest.raises(SettingsError, match=r"cannot read the settings in nowhere\.toml: No such file"):
            load(Path("nowhere.toml"))

    def test_broken_toml_names_file_and_line(self) -> None:
        assert refusal("deadline = 07:00\n").startswith("tickets-batch.toml is not valid TOML: ")
        assert "line 1" in refusal("deadline = 07:00\n")

    def test_the_home_of_the_user_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/somewhere")
        assert load(written('home = "~/batch"')).home == Path("/somewhere/batch")


class TestFirstRunWithoutAFile:
    """`OPENAI_BASE_URL`, `OPENAI_API_KEY`, `--model` and `--labels` are enough."""

    def test_one_pool_of_four_slots(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sesame")
        settings = load(model="tiny", labels="billing, shipping,,other")
        (pool,) = settings.pool
        assert (pool.base_url, pool.model, pool.capacity.slots) == ("http://127.0.0.1:9/v1", "tiny", 4)
        assert pool.protected.batch.slots == 1
        assert pool.protected.interactive.slots == 0
        assert pool.api_key is not None
        assert pool.api_key.reveal() == "sesame"
        assert "sesame" not in repr(settings)
        assert settings.classification is not None
        assert list(settings.classification.labels) == ["billing", "shipping", "other"]

    def test_without_a_key_none_is_sent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        assert load(model="tiny").pool[0].api_key is None

    def test_without_a_model_there_is_no_pool_and_readers_still_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        assert load().pool == ()

    def test_a_pool_in_the_file_stands_over_the_openai_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        assert [pool.name for pool in load(written(SAMPLE)).pool] == ["gpu"]

    def test_model_and_labels_stand_over_the_file(self) -> None:
        settings = load(written(SAMPLE.replace("examples = ", "# ")), model="other", labels="yes,no")
        assert settings.pool[0].model == "other"
        assert settings.classification is not None
        assert settings.classification.labels == {"yes": "", "no": ""}
        assert settings.classification.instructions == "You sort a shop's support tickets."

    def test_one_label_is_none(self) -> None:
        with pytest.raises(SettingsError, match='--labels "yes": write at least two'):
            load(labels="yes")


class TestTheEnvironment:
    def test_a_variable_stands_over_the_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written(SAMPLE)
        monkeypatch.setenv("TICKETS_BATCH__DEADLINE", "05:30")
        monkeypatch.setenv("TICKETS_BATCH__SOURCE__COLUMNS__ID", "Key")
        settings = load()
        assert (settings.deadline, settings.source.columns.id) == ("05:30", "Key")
        assert settings.source.columns.body == "Description"

    def test_lists_and_tables_are_json(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(
            "TICKETS_BATCH__POOL", '[{"name": "a", "base_url": "http://h/v1", "model": "m", "capacity": {"slots": 2}}]'
        )
        assert load().pool[0].capacity.slots == 2

    def test_labels_replace_the_files_labels(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written(SAMPLE.replace("examples = ", "# "))
        monkeypatch.setenv("TICKETS_BATCH__CLASSIFICATION__LABELS", '{"yes": "", "no": ""}')
        settings = load()
        assert settings.classification is not None
        assert list(settings.classification.labels) == ["yes", "no"]

    def test_a_reference_replaces_the_files_reference(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written('database_url = { env = "DB" }')
        Path("secret").write_text("sqlite:///x.db\n")
        monkeypatch.setenv("TICKETS_BATCH__DATABASE_URL", '{"file": "secret"}')
        assert load().effective_database_url == "sqlite:///x.db"

    @pytest.mark.parametrize(
        ("name", "value", "expected"),
        [
            (
                "TICKETS_BATCH__DEADLIN",
                "07:00",
                'the environment variable TICKETS_BATCH__DEADLIN names no setting: did you mean "deadline"?',
            ),
            (
                "TICKETS_BATCH__SOURCE__PTH",
                "x.csv",
                "the environment variable TICKETS_BATCH__SOURCE__PTH: source.pth is not a setting: "
                'did you mean "path"?',
            ),
            (
                "TICKETS_BATCH__DEADLINE",
                "7",
                'the environment variable TICKETS_BATCH__DEADLINE: deadline = "7": HH:MM as text, as in "07:00", '
                'or "none"',
            ),
            (
                "TICKETS_BATCH__POOL",
                "[oops",
                "the environment variable TICKETS_BATCH__POOL is not JSON: Expecting value: line 1 column 2 (char 1)",
            ),
        ],
    )
    def test_a_wrong_variable_is_named(
        self, monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
    ) -> None:
        monkeypatch.setenv(name, value)
        assert refusal() == expected


class TestWhatIsRefused:
    """Each line names the key, the value's problem and what is accepted."""

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ('timezone = "Europe/Berlin"|timezone = "Berlin"', 'timezone = "Berlin": not an IANA time zone; write for'),
            ('timezone = "Europe/Berlin"|timezone = 1', 'timezone = 1: an IANA time zone, as in "Europe/Berlin"'),
            ('deadline = "07:00"|deadline = "25:00"', 'deadline = "25:00": HH:MM as text, as in "07:00", or "none"'),
            ('deadline = "07:00"|deadline = 07:00:00', "deadline = 07:00:00: HH:MM as text"),
            ("# redis_url    =|redis_url = 5 #", "redis_url: write a URL as text, or { env ="),
            ("# redis_url    =|redis_url = { file = 1 } #", "redis_url.file = 1: "),
            ("# redis_url    =|redis_url = { enw = 'X' } #", 'redis_url.enw is not a setting: did you mean "env"?'),
            ("# redis_url    =|redis_url = {} #", "redis_url: give exactly one of { env ="),
            ('api_key = { env = "LLM_API_KEY" }|api_key = "sk-1234567"', "pool.0.api_key: only a reference"),
            ("slots = 20, tokens = 60000|slots = 'x', tokens = 1", 'pool.0.capacity.slots = "x": input should be a'),
            (
                "slots = 20, tokens = 60000|slots = -1, tokens = 1",
                "pool.0.capacity.slots = -1: input should be greater",
            ),
            ("slots = 20,|slots = 9,", "pool.0.protected: slots add up to 10, over the capacity of 9"),
            ("batch = { slots = 2,|batch = { slots = 0,", "pool.0.protected.batch: at least 1 slot and 1 token"),
            ('engine = "vllm"|engine = "wllm"', "pool.0.engine = \"wllm\": input should be 'vllm', 'sglang', "),
            ('base_url = "http://|base_url = "', 'pool.0.base_url = "127.0.0.1:8000/v1": an http or https URL'),
            ('name = "gpu"|name = "my gpu"', 'pool.0.name = "my gpu": 1 to 40 letters, digits, - or _'),
            ('name = "gpu"|', "pool.0.name is missing"),
            ("[[pool]]|[pool]", "pool: a list of pools: [[pool]] in the file"),
            ('type = "ledger"|type = "loki"', "pool.0.signal.0.type = \"loki\": input should be 'ledger', "),
            ("ttft_target_seconds|ttft_target", 'pool.0.ttft_target is not a setting: did you mean "ttft_target_sec'),
            (
                'label = "billing" }]|label = "money" }]',
                "classification.examples: no such label: money; labels are bil",
            ),
            ('shipping = "del|Billing = "del', "classification.labels: two labels differ only in case or white space"),
            (
                "max_output_tokens = 32|max_output_tokens = 1",
                "classification.max_output_tokens = 1: input should be gr",
            ),
            ("[classification]|[classifikation]", 'classifikation is not a setting: did you mean "classification"?'),
            ('path = "exports|url = "sqlite:///x" #', "source: url and query go together"),
            ('path = "exports|query = "q"\nurl = "sqlite:///x"\npath = "exports', "source: give either path, or url"),
            ('columns = { id = "Ticket ID"|columns = { ids = "Ticket ID"', "source.columns.ids is not a setting"),
            (
                "[classification]|urgent = { column = 'P', values = [] }\n[classification]",
                'source.urgent.values: a list of texts, as in ["urgent", "high"]',
            ),
            (
                "[classification]|urgent = { column = 'P', values = 'high' }\n[classification]",
                'source.urgent.values = "high": a list of texts, as in ["urgent", "high"]',
            ),
            (
                'created_at = "Created at" }|created_at = "Created at", priority = "P" }\n'
                "urgent = { column = 'P', values = ['high'] }",
                "source: give either columns.priority, or urgent, not both",
            ),
            ('engine = "vllm"|cost_per_hour = -1', "pool.0.cost_per_hour = -1: input should be greater"),
            ('engine = "vllm"|cost_per_hour = inf', "pool.0.cost_per_hour = inf: "),
            (
                "[gateway]|[alert]\nwebhook = 'https://h/x'\n[gateway]",
                "alert.webhook: only a reference to the URL: { env",
            ),
            (
                "[gateway]|[scheduler]\nmetrics_listen = 9102\n[gateway]",
                'scheduler.metrics_listen = 9102: HOST:PORT, as in "127.0.0.1:9102"',
            ),
            ('deadline = "07:00"|deadline_grace_seconds = -1', "deadline_grace_seconds = -1: input should be greater"),
            ('deadline = "07:00"|deadline_grace_seconds = 301', "deadline_grace_seconds = 301: input should be less"),
            ('listen = "127.0.0.1:8090"|listen = "8090"', 'gateway.listen = "8090": HOST:PORT, as in "127.0.0.1:8090"'),
        ],
    )
    def test_one_line_for_one_fault(self, change: str, expected: str) -> None:
        old, new = change.split("|")
        assert old in SAMPLE
        said = refusal(SAMPLE.replace(old, new, 1))
        assert said.startswith(f"tickets-batch.toml: {expected}")
        assert said.count("\n") == 0

    def test_every_fault_is_told_at_once(self) -> None:
        said = refusal('deadline = "7"\ntimezone = "Nowhere"\nhom = "x"').splitlines()
        assert [line.split()[1] for line in said] == ["timezone", "deadline", "hom"]

    def test_labels_as_a_list_are_explained(self) -> None:
        said = refusal('[classification]\nlabels = ["billing", "shipping"]')
        assert said == (
            'tickets-batch.toml: classification.labels: write a table of at least two, label = "description": '
            '{ billing = "charges", shipping = "parcels" }'
        )

    def test_a_long_value_is_cut(self) -> None:
        assert len(refusal(f'deadline = "{"7" * 5000}"')) < 200

    def test_a_secret_written_where_a_reference_belongs_is_not_repeated(self) -> None:
        assert "sk-1234567" not in refusal(SAMPLE.replace('{ env = "LLM_API_KEY" }', '"sk-1234567"'))


class TestSecrets:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ('database_url = "postgresql+psycopg://u:pw@db/t"', "tickets-batch.toml: database_url holds a password"),
            ('database_url = "postgresql+psycopg://db/t?password=pw"', "tickets-batch.toml: database_url holds a"),
            ('redis_url = "redis://:pw@redis:6379/0"', "tickets-batch.toml: redis_url holds a password"),
            ('[source]\nurl = "mysql://u:pw@db/t"\nquery = "q"', "tickets-batch.toml: source.url holds a password"),
            ('[sink]\nurl = "postgresql://u:pw@db/t"\ntable = "x"', "tickets-batch.toml: sink.url holds a password"),
            ('[[pool]]\nbase_url = "http://u:pw@h/v1"', "tickets-batch.toml: pool.0.base_url holds a password"),
        ],
    )
    def test_a_password_in_the_file_is_refused(self, text: str, expected: str) -> None:
        said = refusal(text)
        assert said.startswith(expected)
        assert "pw" not in said
        assert '{ env = "NAME" }' in said

    def test_a_reference_is_followed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written('redis_url = { env = "MY_REDIS" }')
        settings = load()
        assert settings.redis_url is not None
        with pytest.raises(SettingsError, match="MY_REDIS is not set"):
            reveal(settings.redis_url)
        monkeypatch.setenv("MY_REDIS", "redis://:pw@h/0")
        assert reveal(settings.redis_url) == "redis://:pw@h/0"

    def test_a_missing_secret_file_is_named(self) -> None:
        settings = load(written('redis_url = { file = "gone" }'))
        assert settings.redis_url is not None
        with pytest.raises(SettingsError, match="cannot read the secret in gone: No such file"):
            reveal(settings.redis_url)


class TestHandingOn:
    """`to_environment` gives a child process the same settings, whatever file lies in its directory."""

    def test_the_child_reads_the_same(self, monkeypatch: pytest.MonkeyPatch, clean_place: Path) -> None:
        settings = load(written(SAMPLE, Path("sample.toml")), labels="billing,other")
        written('timezone = "Asia/Tokyo"\n[classification]\nlabels = { a = "", b = "" }')
        for name, value in to_environment(settings).items():
            monkeypatch.setenv(name, value)
        child = load()
        assert child == settings.model_copy(update={"home": clean_place / ".tickets-batch"})

    def test_only_references_are_handed_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DB", "postgresql+psycopg://u:sesame@db/t")
        settings = load(written('database_url = { env = "DB" }'))
        assert settings.effective_database_url.endswith("sesame@db/t")
        assert "sesame" not in str(to_environment(settings))


KNOWN = sorted(Settings.model_fields)


@st.composite
def slips(draw: st.DrawFn) -> tuple[str, str]:
    """A key, and the same with one slip of the fingers: a letter left out, doubled, or two exchanged."""
    key = draw(st.sampled_from(KNOWN))
    at = draw(st.integers(0, len(key) - 2))
    wrong = draw(
        st.sampled_from(
            [key[:at] + key[at + 1 :], key[:at] + key[at] + key[at:], key[:at] + key[at + 1] + key[at] + key[at + 2 :]]
        )
    )
    return key, wrong


@given(slip=slips())
@hypothesis_settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_slip_of_the_fingers_leads_to_the_key_that_was_meant(slip: tuple[str, str]) -> None:
    key, wrong = slip
    if wrong in KNOWN:
        return
    assert refusal(f"{wrong} = 1") == f'tickets-batch.toml: {wrong} is not a setting: did you mean "{key}"?'


def test_the_sample_here_is_toml() -> None:
    assert tomllib.loads(SAMPLE)["pool"][0]["name"] == "gpu"


def test_the_settings_are_cheap_to_import() -> None:
    """A command that only reads must start fast: nothing but pydantic-settings comes along."""
    heavy = {"sqlalchemy", "celery", "openai", "redis", "rich", "click", "alembic", "httpx2"}
    code = f"import sys, tickets_batch.settings; print(sorted({heavy!r} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "[]"
