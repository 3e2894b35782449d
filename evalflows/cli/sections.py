"""What a command prints by default: sections, the answer first, cut to a number of lines. What was cut is counted."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.segment import Segment, Segments

from evalflows.cli.output import Console, echo
from evalflows.specs.escaping import one_line
from evalflows.specs.frozen import dataclass

IN_BRIEF = 24
"""Lines that a command prints by default, with the two below its sections."""

IN_BRIEF_SHOWN = 40
"""The same of `show`."""

BELOW = 4
"""Lines below the sections: what is not shown, a blank one, the page, and the next command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Items of one kind, most important first."""

    items: Sequence[Any]
    draw: Callable[[Sequence[Any]], RenderableType]  # of the first items, as many as are shown
    what: str  # one of the items that are not shown: `metric`
    least: int | None = None  # as many are shown in any case; None: all
    count: int | None = None  # of all items, if these are only the first
    is_apart: bool = False  # after a blank line


def lines_section(
    lines: Iterable[RenderableType], what: str = "note", *, least: int | None = None, is_apart: bool = False
) -> Section:
    """Return a section of sentences, which are wrapped between words."""
    return Section(items=list(lines), draw=lambda some: Group(*some), what=what, least=least, is_apart=is_apart)


def print_sections(out: Console, sections: Sequence[Section], most: int, more: str) -> None:
    """Print sections in at most so many lines, as far as their least items allow, and count what is not shown, which
    the command or the option `more` shows.

    Where lines lack, the section with the most items above its least gives one up, until the others fit.
    """
    shown = {
        index: len(section.items) if section.least is None else min(len(section.items), max(section.least, most))
        for index, section in enumerate(sections)
        if section.items
    }  # an item has a line at least
    drawn: dict[tuple[int, int], list[Segment]] = {}  # laid out once, which takes the most time of printing

    def draw(index: int) -> list[Segment]:
        key = (index, shown[index])
        if key not in drawn:
            section = sections[index]
            drawn[key] = [*out.render(section.draw(section.items[: shown[index]]))] if shown[index] else []
        return drawn[key]

    def height(index: int) -> int:
        return sum(part.text.count("\n") for part in draw(index)) + (sections[index].is_apart and shown[index] > 0)

    def spare(index: int) -> int:
        least = sections[index].least
        return 0 if least is None else shown[index] - least

    while sum(map(height, shown)) > most - BELOW:
        fullest = max(shown, key=spare, default=None)
        if fullest is None or spare(fullest) <= 0:
            break
        shown[fullest] -= 1
    is_first = True
    for index, count in shown.items():
        section = sections[index]
        if not count:
            continue
        if section.is_apart and not is_first:
            out.print()
        out.print(Segments(draw(index)), crop=False)  # commands to copy are longer than a line
        is_first = False
    hidden: Counter[str] = Counter()
    for index, count in shown.items():
        hidden[sections[index].what] += (sections[index].count or len(sections[index].items)) - count
    if counted := [_counted(left, what) for what, left in hidden.items() if left > 0]:
        echo(one_line(f"not shown: {', '.join(counted)}: {more}"))


def _counted(left: int, what: str) -> str:
    noun, *rest = what.split(" ", 1) if what.startswith("line ") else [what]
    return " ".join([f"{left} {noun}{'s' * (left > 1)}", *rest])
