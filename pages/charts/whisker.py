"""An estimate with its interval on one line, for the cell of a table; cells of one column share their scale."""

from collections.abc import Sequence

from markupsafe import Markup

from evalflows.pages.charts.svg import Scale, drawing, element

WIDTH, HEIGHT = 150, 20
INSET = 6


def whisker(
    value: float | None,
    low: float | None,
    high: float | None,
    scale: tuple[float, float],
    title: str,
    *,
    marks: Sequence[float | None] = (),
    kind: str = "",
    width: int = WIDTH,
) -> Markup:
    """Draw a dot for the value and a line for its interval.

    Args:
        value: The estimate; nothing is drawn for None.
        low: The interval's low end; None without an interval.
        high: Its high end.
        scale: The lowest and the highest value of the column, see `domain`.
        title: What it shows, in words.
        marks: Values with a line of their own, such as 0 or a gate's bound.
        kind: `better`, `worse` or empty: the colour.
        width: Pixels.
    """
    x, middle = Scale(*scale, INSET, width - INSET), HEIGHT / 2
    parts = [element("line", class_="axis", x1=INSET, x2=width - INSET, y1=middle, y2=middle)]
    parts += [
        element("line", class_="mark", x1=x(mark), x2=x(mark), y1=1, y2=HEIGHT - 1)
        for mark in marks
        if mark is not None
    ]
    if low is not None and high is not None:
        parts.append(element("line", class_="interval", x1=x(low), x2=x(high), y1=middle, y2=middle))
        parts += [
            element("line", class_="interval", x1=x(end), x2=x(end), y1=middle - 4, y2=middle + 4)
            for end in (low, high)
        ]
    if value is not None:
        parts.append(element("circle", class_="dot", cx=x(value), cy=middle, r=4))
    return drawing(width, HEIGHT, title, *parts, class_=f"chart whisker {kind}".strip())
