"""Estimates with their intervals below each other, with labels: a drawing that stands alone, outside of the pages."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from evalflows.pages.charts.svg import drawing, element
from evalflows.pages.charts.whisker import HEIGHT, whisker

ROW, LETTER, GAP, WIDTH = 26, 6.6, 14, 260
"""Pixels: of a row's height, of a letter on average, between columns, and of a plot."""

MOST_LETTERS = 40
"""Letters of a label."""

STYLE = """
.forest { font: 12px system-ui, "Segoe UI", "Liberation Sans", sans-serif; }
.forest .back { fill: #ffffff; }
.forest text { fill: #1b1f26; }
.forest .axis { stroke: #d5d9df; }
.forest .mark { stroke: #596170; stroke-dasharray: 3 2; }
.forest .interval { stroke: #24406e; stroke-width: 2; }
.forest .dot { fill: #24406e; }
.forest .better .interval { stroke: #11683a; } .forest .better .dot { fill: #11683a; }
.forest .worse .interval { stroke: #a81c1c; } .forest .worse .dot { fill: #a81c1c; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its interval. Nothing is drawn for None."""

    label: str
    value: float | None
    low: float | None
    high: float | None
    scale: tuple[float, float]
    text: str  # the value and its interval
    mark: float | None = None
    kind: str = ""  # `better`, `worse` or empty: the colour


def forest(estimates: Sequence[Estimate], title: str) -> Markup:
    """Draw a row for each estimate: its label, a plot, and its text. The colours are in the drawing itself."""
    labels = [one.label if len(one.label) <= MOST_LETTERS else f"{one.label[: MOST_LETTERS - 1]}…" for one in estimates]
    left = GAP + LETTER * max(map(len, labels), default=0) + GAP
    right = left + WIDTH + GAP
    width = right + LETTER * max((len(one.text) for one in estimates), default=0) + GAP
    height = ROW * max(len(estimates), 1) + GAP
    parts = [element("style", Markup(STYLE)), element("rect", class_="back", x=0, y=0, width=width, height=height)]
    for place, (one, label) in enumerate(zip(estimates, labels, strict=True)):
        top = GAP / 2 + ROW * place
        middle = top + ROW / 2 + 4
        drawn = whisker(
            one.value,
            one.low,
            one.high,
            one.scale,
            f"{one.label}: {one.text}",
            marks=[one.mark],
            kind=one.kind,
            width=WIDTH,
        )
        parts += [
            element("text", label, x=GAP, y=middle),
            element("g", drawn, transform=f"translate({left:.0f} {top + (ROW - HEIGHT) / 2:.0f})"),
            element("text", one.text, x=right, y=middle),
        ]
    return drawing(width, height, title, *parts, class_="chart forest", is_alone=True)
