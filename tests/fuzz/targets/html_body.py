"""A ticket's text as HTML: shorter than it was, the same text where nothing is marked up, and in bounded time."""

import re
import time
from html import unescape
from pathlib import Path

from jobs.intake.text import html_to_text, looks_like_html, shown, tidy
from jobs.prompt import fenced
from jobs.text import storable
from tests.fuzz.target import Target
from tests.hostile.texts import TEXTS

LONG_CHARACTERS = 20_000
MOST_CPU_SECONDS = 3.0  # for a text that takes milliseconds, however slow the machine
ENDLESS = re.compile(r"&#\d{8,};?")


def judge(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "surrogateescape")
    plain = storable(html_to_text(text))
    plain.encode()
    assert len(plain) <= len(text)
    assert plain == plain.strip()
    if "<" not in text:
        assert not looks_like_html(text)
        assert " ".join(plain.split()) == " ".join(storable(unescape(ENDLESS.sub("\ufffd", text))).split())
    assert shown(text).isprintable()
    assert tidy(tidy(text)) == tidy(text)
    if text and len(data) % 16 == 0:
        in_bounded_time(text * (LONG_CHARACTERS // len(text)))


def in_bounded_time(text: str) -> None:
    began = time.process_time()
    looks_like_html(text)
    html_to_text(text)
    fenced(text, text)
    seconds = time.process_time() - began
    assert seconds < MOST_CPU_SECONDS, f"{seconds:.1f} s for {len(text)} characters"


TARGET = Target(
    judge,
    seeds=(
        b"<p>Hello <b>you</b></p><br/>there",
        b"<table><tr><td>a</td><th>b</th></tr></table>",
        b"<pre> a\n  b </pre><style>p{}</style><script>alert(1)</script>x",
        b"<!-- a --><!DOCTYPE html><html><body>&amp;&#9;&#x26;&nbsp;&notit;",
        b"<![CDATA[ x ]]><!x <!-- <? y >",
        b"  <<<<",
        b"\x00<p &#99999999",
        *(text.written.encode("utf-8", "surrogateescape" if not text.is_half else "replace")
          for text in TEXTS if len(text.written) < 300),
    ),
    words=("<p>", "</p>", "<br>", "<script>", "</script>", "<!--", "-->", "<![", "]]>", "<!", "<?", "&#", "&amp;",
           "&lt", ";", "<title>", "<textarea>", "<plaintext>", "=\"", "/>", "<td ", "<a href='"),
    most_bytes=512,
)  # fmt: skip
