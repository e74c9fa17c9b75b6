"""Text that every database can hold."""

import pytest

from jobs.text import storable


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Où est mon colis ? 📦", "Où est mon colis ? 📦"),
        ("", ""),
        ("a\0b\0", "a\ufffdb\ufffd"),
        ("\ud83d alone", "\ufffd alone"),
        ("\0\udcff", "\ufffd\ufffd"),
        ("\x01\x7f\ufeff", "\x01\x7f\ufeff"),
    ],
)
def test_only_nul_and_lone_surrogates_are_replaced(text: str, clean: str) -> None:
    assert storable(text) == clean
    assert storable(clean) == clean
