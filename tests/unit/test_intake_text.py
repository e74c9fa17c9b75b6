"""Text out of HTML bodies, and plain text left alone."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.intake.text import HTML_LIMIT_CHARACTERS, html_to_text, looks_like_html, tidy


@pytest.mark.parametrize(
    "text",
    [
        "<p>Hello</p>",
        "<DIV CLASS='x'>Hello</DIV>",
        "Hello<br>world",
        "Hello<br/>world",
        "<!DOCTYPE html><html><body>Hello</body></html>",
        "<!-- start --><div>Hello</div>",
        '<html lang="en">Hello',
        "  <span>a</span> and more\nand more\nand more",
        'Dear team,<p>see <a href="x">this</a></p>',
        '<img src="cid:1">',
    ],
)
def test_marked_up_text_is_html(text: str) -> None:
    assert looks_like_html(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello",
        "a < b and c > d",
        "if (x<y) && (y>z)",
        "I get <NullPointerException> in <module>",
        "List<String> names = new List<String>()",
        "Write to John <john@example.com>",
        "Which of <b> and <strong> should I use?",
        "5 <6",
        "Tom &amp; Jerry &lt;3",
        "My template\nis this:\n\n<b>Hi</b>\n\nand it shows\nnothing\nat all\n",
    ],
)
def test_plain_text_is_not(text: str) -> None:
    assert not looks_like_html(text)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>One</p><p>Two</p>", "One\n\nTwo"),
        ("One<br>Two<BR/>Three", "One\nTwo\nThree"),
        ("<div>One<div>Two</div></div>", "One\nTwo"),
        ("<ul><li>One</li><li>Two</li></ul>", "One\n\nTwo"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>", "a b\n\nc d"),
        ("<p>Tom &amp; Jerry &lt;3 &#8364;5 &euro;6&nbsp;7</p>", "Tom & Jerry <3 €5 €6 7"),
        ("<p>a\n   b\t c</p>", "a b c"),
        ("<p>a <b> b </b> c</p>", "a b c"),
        ("<pre>a\nb</pre><p>c\nd</p>", "a\nb\n\nc d"),
        ("<p>x</p><script>alert('no')</script><style>p { color: red }</style><p>y</p>", "x\n\ny"),
        ("<head><title>No</title></head><body>Yes</body>", "Yes"),
        ("<script/><p>still here</p>", "still here"),
        ("<p>x<!-- no --><!--[if mso]>no<![endif]-->y</p>", "xy"),
        ("<![if !mso]><p>shown</p><![endif]>", "shown"),
        ("<p>5 < 6 & 7 > 6</p>", "5 < 6 & 7 > 6"),
        ("<p>cut &lt; tail & <b", "cut < tail & <b"),
        ("<p>a</p> tail &amp; end", "a\ntail & end"),
        ("<p title='a > b'>x</p>", "x"),
        ("<div></div><img src='x'>", ""),
        ("<p>open", "open"),
        ("</p></div>closed", "closed"),
        ("<p>Grüße 你好 مرحبا</p>", "Grüße 你好 مرحبا"),
    ],
)
def test_the_readable_text_remains(html: str, text: str) -> None:
    assert html_to_text(html) == text


@pytest.mark.parametrize("html", ["<p><![<", "<p><![ x ]>", "<p>&#" + "9" * 5000 + ";", "<p><!----><!>", "<p><<!!--"])
def test_markup_that_the_parser_chokes_on_is_read(html: str) -> None:
    html_to_text(html)


@pytest.mark.parametrize(
    "piece",
    ["<!--", "<a", "<", "<![x", "<!", "<?", "&#", "</x", "<script>", "<!--x>", "<div>", "<a b='>", "<title>", "<p "],
)
def test_a_bomb_goes_off_in_seconds_at_most(piece: str) -> None:
    started = time.monotonic()
    bomb = "<p>" + piece * (2 * HTML_LIMIT_CHARACTERS // len(piece)) + "</p>"
    assert looks_like_html(bomb) in (True, False)
    html_to_text(bomb)
    assert time.monotonic() - started < 20, "quadratic: a minute and more"


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from(
            [
                "<",
                ">",
                "<!",
                "-->",
                "<!--",
                "<![",
                "]]>",
                "<?",
                "&",
                "#",
                ";",
                "9",
                "</",
                "/>",
                "p",
                "script",
                "br",
                "a",
                "=",
                "'",
                '"',
                " ",
                "\n",
                "\0",
                "x",
                "<p>",
                "</p>",
                "<style>",
                "</style>",
                "[",
                "CDATA[",
                "doctype",
            ]
        ),
        max_size=60,
    ).map("".join)
)
def test_no_markup_raises(html: str) -> None:
    looks_like_html(html)
    html_to_text(html)


@given(st.text(alphabet=st.characters(exclude_characters="<&", exclude_categories=["Cs"])))
def test_words_survive(words: str) -> None:
    assert html_to_text(f"<p>{words}</p>").split() == words.split()


def test_newlines_of_every_system_become_one_kind() -> None:
    assert tidy(" a\r\nb\rc\nd \n") == "a\nb\nc\nd"
