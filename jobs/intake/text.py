"""The text of a ticket: out of HTML, out of the newlines of other systems, and free of what no database stores."""

import re
from html import unescape
from html.parser import HTMLParser

# What is read of one HTML body at most: markup outweighs its text, and a pasted picture outweighs both.
HTML_LIMIT_CHARACTERS = 4_000_000
HTML_LIMIT_TAGS = 100_000
SHOWN_CHARACTERS = 40
LOOKED_AT_CHARACTERS = 100_000  # enough to tell whether a text is HTML

_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_LISTS_AND_TABLES = {"dd", "dl", "dt", "li", "ol", "table", "tbody", "tfoot", "thead", "tr", "ul"}
_SECTIONS = {"address", "article", "aside", "center", "div", "footer", "header", "main", "nav", "section"}
_PARAGRAPHS = {"blockquote", "br", "fieldset", "figcaption", "figure", "form", "hr", "p", "pre"}
_PAGE = {"body", "head", "html"}
_BLOCKS = _PAGE | _HEADINGS | _LISTS_AND_TABLES | _SECTIONS | _PARAGRAPHS
_CELLS = {"td", "th"}
_DROPPED = {"script", "style", "title"}
_LETTERING = {"b", "big", "cite", "code", "del", "em", "font", "i", "ins", "mark", "s", "small", "strike", "strong"}
_OTHERS = {"a", "abbr", "img", "label", "link", "meta", "q", "span", "sub", "sup", "tt", "u"}
_KNOWN = _BLOCKS | _CELLS | _DROPPED | _LETTERING | _OTHERS

_TAG = re.compile(rf"<(?P<end>/)?(?P<name>{'|'.join(sorted(_KNOWN))})(?:\s[^<>]*)?/?>", re.IGNORECASE)
_HTML_OPENING = re.compile(r"<(?:!doctype\s+html|html[\s>]|!--)", re.IGNORECASE)
_STANDS_ALONE = {"br", "hr", "img"}

# Python's parser raises on some declarations and needs quadratic time for many unclosed ones: they leave before it.
_DECLARATION = re.compile(r"<!\[?[^<>]*>")
_HALF_A_DECLARATION = re.compile(r"<!+")
_ENDLESS_REFERENCE = re.compile(r"&#\d{8,};?")


def looks_like_html(text: str) -> bool:
    """Whether a text is marked up as HTML, and does not merely mention a tag or compare two numbers."""
    if "<" not in text:
        return False
    beginning = text[:LOOKED_AT_CHARACTERS].strip()
    if _HTML_OPENING.match(beginning):
        return True
    opened: set[str] = set()
    tags = 0
    is_marked_up = False
    for match in _TAG.finditer(beginning):
        tags += 1
        name = match["name"].lower()
        if match["end"]:
            is_marked_up = is_marked_up or name in opened
        else:
            opened.add(name)
            is_marked_up = is_marked_up or name in _STANDS_ALONE
    # Plain text that quotes some markup has lines of its own; HTML has at least a tag for each.
    return is_marked_up and (_TAG.match(beginning) is not None or beginning.count("\n") <= tags)


def html_to_text(html: str) -> str:
    """The readable text of an HTML body: blocks on lines of their own, no scripts and styles, entities resolved."""
    extractor = _Extractor()
    html = _without_comments(_bounded(html))
    html = _HALF_A_DECLARATION.sub("<", _DECLARATION.sub("", html))
    html = _ENDLESS_REFERENCE.sub("\ufffd", html)
    # Behind the last tag there is only text, which the parser would search again for each "<" in it.
    markup, closing, tail = html.rpartition(">")
    extractor.feed(markup + closing)
    extractor.close()
    extractor.handle_data(unescape(tail))
    return extractor.text()


def tidy(text: str) -> str:
    """The text with newlines as `\\n` and without white space around it."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.strip()


def shown(text: str) -> str:
    """The beginning of a text of someone else's, fit for one line of a message on a terminal."""
    line = "".join(character if character.isprintable() else " " for character in text[: 2 * SHOWN_CHARACTERS])
    line = " ".join(line.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}..."


def _bounded(html: str) -> str:
    pieces = html[:HTML_LIMIT_CHARACTERS].split("<", HTML_LIMIT_TAGS)
    return "<".join(pieces[:HTML_LIMIT_TAGS])


def _without_comments(html: str) -> str:
    pieces: list[str] = []
    position = 0
    while (start := html.find("<!--", position)) >= 0:
        end = html.find("-->", start + 4)
        if end < 0:
            break
        pieces.append(html[position:start])
        position = end + 3
    pieces.append(html[position:])
    return "".join(pieces)


class _Extractor(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._dropping: str | None = None
        self._preformatted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._dropping is not None:
            return
        if tag in _DROPPED:
            self._dropping = tag
        elif tag in _BLOCKS:
            self._pieces.append("\n")
            self._preformatted += tag == "pre"
        elif tag in _CELLS:
            self._pieces.append(" ")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _DROPPED:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._dropping:
            self._dropping = None
        elif self._dropping is None and tag in _BLOCKS:
            self._pieces.append("\n")
            if tag == "pre" and self._preformatted:
                self._preformatted -= 1

    def handle_data(self, data: str) -> None:
        if self._dropping is None:
            self._pieces.append(data if self._preformatted else re.sub(r"\s+", " ", data))

    def text(self) -> str:
        text = re.sub(r"[ \t\xa0]+", " ", "".join(self._pieces))
        text = re.sub(r" ?\n ?", "\n", text)
        return re.sub(r"\n{3,}", "\n\n", text).strip()
