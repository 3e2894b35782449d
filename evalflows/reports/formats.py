"""Markdown that shows what comes from outside as it is."""

import re
from collections.abc import Iterable, Sequence

from evalflows.specs import hints
from evalflows.specs.escaping import joined, one_line
from evalflows.specs.hints import Hint

MOST_CHARACTERS = 1000
"""Characters that are shown of a text of an example."""

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


def where_shown(hint: Hint, address: str | None) -> str:
    """Say which command shows something in the shell, and where it is in the dashboard, if that is known."""
    browser = code(hints.dashboard().command) if address is None else f"[its page]({address})"
    return f"In the shell: {code(hint.command)}; in a browser: {browser}"
