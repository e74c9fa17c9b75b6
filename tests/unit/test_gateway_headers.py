"""Which headers go on, and which keys are known."""

from pathlib import Path

import pytest

from gateway.caller import Keys
from gateway.error import Denied
from gateway.upstream import end_to_end, towards_model
from tickets_batch.errors import SettingsError
from tickets_batch.settings import Secret


def test_what_is_for_one_hop_stays_there() -> None:
    headers = [
        (b"Connection", b"keep-alive, X-Mine"),
        (b"Keep-Alive", b"timeout=5"),
        (b"X-Mine", b"1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Content-Type", b"text/plain"),
        (b"X-Other", b"2"),
    ]
    assert end_to_end(headers) == [(b"content-type", b"text/plain"), (b"x-other", b"2")]


def test_host_and_length_are_not_the_callers_to_say() -> None:
    headers = [(b"host", b"door"), (b"content-length", b"5"), (b"expect", b"100-continue"), (b"accept", b"*/*")]
    assert towards_model(headers) == [(b"accept", b"*/*")]


def keys_of(text: str, folder: Path) -> Keys:
    file = folder / "keys"
    file.write_text(text)
    return Keys(Secret(file=file))


def test_each_of_the_keys_opens(tmp_path: Path) -> None:
    keys = keys_of("first\nsecond, third\n", tmp_path)
    for key in (b"first", b"second", b"third"):
        keys.check(b"Bearer " + key)
    keys.check(b"bearer first")


@pytest.mark.parametrize(
    "shown",
    [None, b"", b"Bearer", b"Bearer ", b"Bearer firs", b"Bearer first,", b"Basic first", b"first", b"Bearer \xff"],
)
def test_nothing_else_opens(shown: bytes | None, tmp_path: Path) -> None:
    with pytest.raises(Denied) as denied:
        keys_of("first\nsecond", tmp_path).check(shown)
    assert denied.value.status == 401
    assert "first" not in str(denied.value)


def test_an_empty_list_of_keys_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="names no key"):
        keys_of(" \n", tmp_path)
