"""Shares of a whole as one bar, and counts of values as a histogram."""

from collections.abc import Sequence

from markupsafe import Markup

from evalflows.pages.charts.svg import Scale, drawing, element


def share_bar(parts: Sequence[tuple[str, float, str]], title: str, *, width: int = 160) -> Markup:
    """Draw the parts of a whole side by side. A part has a name, a size, and the class of its colour."""
    whole, x, height = sum(size for _, size, _ in parts), 0.0, 14
    drawn = []
    for name, size, colour in parts:
        part = width * size / whole if whole else 0.0
        if part:
            label = element("title", f"{name}: {size:g}")
            drawn.append(element("rect", label, class_=f"part {colour}", x=x, y=0, width=part, height=height))
        x += part
    return drawing(width, height, title, *drawn, class_="chart shares")


def histogram(counts: Sequence[tuple[str, int]], title: str, *, width: int = 320, height: int = 96) -> Markup:
    """Draw how many values there are of each kind, or in each interval: pairs of a label and a count, in order."""
    most = max((count for _, count in counts), default=0)
    y, step, foot = Scale(0, most or 1, 0, height - 28), width / max(len(counts), 1), height - 14
    drawn = []
    for place, (name, count) in enumerate(counts):
        tall, middle = y(count), step * (place + 0.5)
        label = element("title", f"{name}: {count:,}")
        drawn.append(
            element("rect", label, class_="bar", x=step * place + 1, y=foot - tall, width=max(step - 2, 1), height=tall)
        )
        if len(counts) <= 12:
            drawn.append(element("text", name, class_="tick", x=middle, y=height - 2, text_anchor="middle"))
            drawn.append(
                element("text", f"{count:,}", class_="tick", x=middle, y=foot - tall - 2, text_anchor="middle")
            )
    return drawing(width, height, title, *drawn, class_="chart histogram")
