"""Numbers, p-values and intervals as text; Markdown that shows what comes from outside as it is; and texts quoted
for SQL and a shell.
"""

import re
from collections.abc import Iterable, Sequence

from evalflows.specs.errors import joined, one_line

MOST_DIGITS = {"cost": 6, "tokens": 1, "length": 1}
"""Digits after the point, at most. Other metrics have 3."""


def figure(value: float | None, metric: str, *, signed: bool = False, digits: int | None = None) -> str:
    """Format a number with the given digits after the point, by default as many as suit its metric; None as `-`."""
    if value is None:
        return "-"
    text = f"{value:{'+' if signed else ''}.{_most(metric) if digits is None else digits}f}"
    return text.replace("-", "+" if signed else "") if float(text) == 0 else text


def p_text(value: float | None) -> str:
    """Format a p-value; None as an empty text."""
    return "" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def estimate(
    value: float | None,
    low: float | None,
    high: float | None,
    metric: str,
    *,
    signed: bool = False,
    marks: Sequence[float] = (),
) -> tuple[str, str]:
    """Format a value and its interval with as many digits as the interval bears; without one it is empty.

    `marks` are numbers that decide something, such as a threshold: see `digits_of`.
    """
    if low is None or high is None:
        return figure(value, metric, signed=signed), ""
    digits = digits_of(low, high, _most(metric), marks)
    ends = [figure(end, metric, signed=signed, digits=digits) for end in (low, high)]
    return figure(value, metric, signed=signed, digits=digits), f"[{', '.join(ends)}]"


def percent(share: float | None, low: float | None, high: float | None) -> str:
    """Format a share with its interval, if it has one; None as `-`."""
    return " ".join(filter(None, percent_estimate(share, low, high)))


def percent_estimate(share: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    """Format a share and its interval in percent, with at most one digit after the point; 50 % is a mark."""
    if share is None:
        return "-", ""
    if low is None or high is None:
        return f"{share:.1%}", ""
    digits = digits_of(100 * low, 100 * high, 1, marks=(50,))
    return f"{share:.{digits}%}", f"[{low:.{digits}%}, {high:.{digits}%}]"


def digits_of(low: float, high: float, most: int, marks: Sequence[float] = ()) -> int:
    """Return the digits after the point with which half the interval's width has two significant digits.

    At most `most`, and more than two significant digits if rounding moved an end onto a mark: the text would then hide
    on which side of it the end lies.
    """
    half = abs(high - low) / 2
    digits = most if half == 0 else min(most, max(0, 1 - int(f"{half:.1e}".partition("e")[2])))
    while digits < most and any(_is_hidden(end, mark, digits) for end in (low, high) for mark in marks):
        digits += 1
    return digits


def _is_hidden(end: float, mark: float, digits: int) -> bool:
    return end != mark and round(end, digits) == round(mark, digits)


def _most(metric: str) -> int:
    return MOST_DIGITS.get(metric, 3)


MOST_CHARACTERS = 1000
"""Characters that are shown of a text of an example."""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table, escaping its cells."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(escaped, row))} |" for row in rows)])


def escaped(text: str) -> str:
    """Escape text from outside so that Markdown shows it as it is, on one line: no link, image, HTML or formatting.

    A backslash stands only before what a renderer would act on in its place: `snake_case`, `-0.5 [-0.7, -0.3]` and
    `p<0.001` stay as they are. Backslashes do not stop renderers that look for addresses in the finished text, so an
    invisible word joiner (U+2060) breaks those up.
    """
    line = _ADDRESS.sub("\\g<0>\u2060", one_line(joined(text)))
    return _NUMBERED.sub(r"\1\\\2", _ACTING.sub(_backslashed, line))


def _backslashed(match: re.Match[str]) -> str:
    if match["interval"]:
        return match[0]
    return _ENTITIES.get(match[0]) or "".join(f"\\{character}" for character in match[0])


def code(text: str) -> str:
    """Format text from outside as code, for use outside of tables."""
    line = one_line(text)
    longest = max(map(len, re.findall("`+", line)), default=0)
    ticks, space = "`" * (longest + 1), " " if longest or line.strip() != line else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def where_shown(command: str, address: str | None) -> str:
    """Say which command shows something in the shell, and where it is in the dashboard, if that is known."""
    browser = code("evalflows dashboard") if address is None else f"[its page]({address})"
    return f"In the shell: {code(command)}; in a browser: {browser}"


_ACTING = re.compile(
    r"""
    (?P<interval> \[ [-+]? \d [-+\d.,%e\ ]* \] (?! [(\[:] ) )  # not a link's text
    | [`|~^$\[\]] | (?<= \] ) \(
    | \\ (?! [^\W_] )  # a backslash before a letter or a digit is one
    | < (?= [A-Za-z/!?] | $ ) | ^ >
    | & (?= \#? \w+ ; )
    | \* (?! \s ) | (?<! \s ) \*
    | (?<! \w ) _+ | _+ (?! \w )  # not within a word
    | = (?= = ) | (?<= = ) = | ^ = $
    | \+ (?= \+ ) | (?<= \+ ) \+
    | ^ [-+] (?= \s | -*$ )  # a list, a line
    | ^ : (?= \s ) | : (?= [\w+-]+ : )  # a definition, an emoji
    | (?<! \w ) \#
    | \{ (?= [:\#.%{] )  # attributes, templates
    """,
    re.VERBOSE,
)
"""What renderers act on, the frequent extensions included; or an interval, which stays as it is."""

_ENTITIES = {"&": "&amp;", "<": "&lt;"}

_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
"""What begins a numbered list."""

_ADDRESS = re.compile(r":(?=/)|\bwww(?=\.)|@|\b(?:mailto|xmpp)(?=:)", re.IGNORECASE)
"""Where an address is broken up that renderers turn into a link: http://…, www.…, name@host, mailto:…"""


def sql_text(value: str) -> str:
    """Quote a text for SQL."""
    return "'" + value.replace("'", "''") + "'"


def shell_text(text: str) -> str:
    """Quote a text for a shell, in double quotes, so that SQL's single quotes stay readable."""
    return '"' + re.sub(r'[\\"$`]', r"\\\g<0>", text) + '"'
