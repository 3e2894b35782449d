"""A value over time with its intervals, and the same without axes for the cell of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from evalflows.pages.charts.svg import Scale, domain, drawing, element
from evalflows.reports.figures import figure
from evalflows.specs.safe_text import escaped

LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value at a time. One that is missing leaves a gap."""

    at: datetime
    value: float | None
    low: float | None = None
    high: float | None = None
    title: str  # in words
    kind: str = ""  # `better`, `worse` or empty: the colour
    is_break: bool = False  # values from here on are not comparable with earlier ones
    href: str | None = None
    series: int = 0  # which of several lines it is on


def timeline(
    points: Sequence[Point],
    metric: str,
    title: str,
    *,
    bounds: Sequence[float] = (),
    width: int = 640,
    height: int = 200,
) -> Markup:
    """Draw points with intervals, those of a series in order of time; a dashed line stands where versions changed, or
    for a bound."""
    ends = [*_ends(points), *bounds]
    low, high = domain(ends)
    if all(end is None or end >= 0 for end in ends):
        low = max(low, 0.0)  # no axis below 0 for what cannot be negative, such as a cost
    y = Scale(low, high, height - BOTTOM, TOP)
    x = _times(points, LEFT, width - RIGHT)
    parts = [
        drawn
        for tick in y.ticks()
        for drawn in (
            element("line", class_="grid", x1=LEFT, x2=width - RIGHT, y1=y(tick), y2=y(tick)),
            element("text", figure(tick, metric), class_="tick", x=LEFT - 6, y=y(tick) + 4, text_anchor="end"),
        )
    ]
    parts += [element("line", class_="mark", x1=LEFT, x2=width - RIGHT, y1=y(bound), y2=y(bound)) for bound in bounds]
    for number in dict.fromkeys(point.series for point in points):
        places = [place for place, point in enumerate(points) if point.series == number]
        some, at = [points[place] for place in places], [x[place] for place in places]
        ends_y = {"y1": TOP, "y2": height - BOTTOM}
        drawn = [element("line", class_="break", x1=place, x2=place, **ends_y) for place in _breaks(some, at)]
        drawn += _lines(some, at, y)
        drawn += [part for point, place in zip(some, at, strict=True) for part in _point(point, place, y)]
        parts.append(element("g", *drawn, class_=f"series-{number}"))
    by_time = sorted(range(len(points)), key=lambda place: points[place].at)
    for place, anchor in ((0, "start"), (-1, "end"))[: min(len(points), 2)]:
        day = f"{points[by_time[place]].at:%Y-%m-%d}"
        parts.append(element("text", day, class_="tick", x=x[by_time[place]], y=height - 6, text_anchor=anchor))
    has_links = any(point.href for point in points)
    return drawing(width, height, title, *parts, class_="chart timeline", has_links=has_links)


def line_sample(series: int) -> Markup:
    """Draw how the line of a series looks, for a legend whose text names it."""
    line = element("line", class_="line", x1=1, x2=27, y1=6, y2=6)
    dot = element("circle", class_="dot", cx=14, cy=6, r=4)
    return drawing(28, 12, "its line", element("g", line, dot, class_=f"series-{series}"), class_="chart sample")


def sparkline(values: Sequence[float | None], title: str, *, width: int = 80, height: int = 20) -> Markup:
    """Draw values in order, without axes; None leaves a gap."""
    y, step = Scale(*domain(values), height - 3, 3), (width - 8) / max(len(values) - 1, 1)
    places = [4 + step * place for place in range(len(values))]
    points = [Point(at=datetime.min, value=value, title="") for value in values]
    parts = _lines(points, places, y)
    if points and points[-1].value is not None:
        parts.append(element("circle", class_="dot", cx=places[-1], cy=y(points[-1].value), r=2.5))
    return drawing(width, height, title, *parts, class_="chart sparkline")


def _ends(points: Sequence[Point]) -> list[float | None]:
    return [value for point in points for value in (point.value, point.low, point.high)]


def _times(points: Sequence[Point], start: float, end: float) -> list[float]:
    """Return each point's place, by its time; evenly if all have the same time."""
    seconds = [point.at.timestamp() for point in points]
    if not seconds or min(seconds) == max(seconds):
        return [start + (end - start) * (place + 0.5) / len(points) for place in range(len(points))]
    scale = Scale(min(seconds), max(seconds), start + 8, end - 8)
    return [scale(second) for second in seconds]


def _breaks(points: Sequence[Point], x: Sequence[float]) -> list[float]:
    """Return where the lines of breaks stand: between a point and the one before."""
    return [(x[place - 1] + x[place]) / 2 for place, point in enumerate(points) if point.is_break and place]


def _lines(points: Sequence[Point], x: Sequence[float], y: Scale) -> list[Markup]:
    """Draw the line through the points; a missing value and a break interrupt it."""
    runs: list[list[str]] = [[]]
    for point, at in zip(points, x, strict=True):
        if point.value is None or point.is_break:
            runs.append([])
        if point.value is not None:
            runs[-1].append(f"{at:.1f},{y(point.value):.1f}")
    return [element("polyline", class_="line", points=" ".join(run)) for run in runs if len(run) > 1]


def _point(point: Point, x: float, y: Scale) -> list[Markup]:
    if point.value is None:
        return []
    parts = [element("title", point.title), element("circle", class_="dot", cx=x, cy=y(point.value), r=4)]
    if point.low is not None and point.high is not None:
        parts.insert(1, element("line", class_="interval", x1=x, x2=x, y1=y(point.low), y2=y(point.high)))
    group = element("g", *parts, class_=f"point {point.kind}".strip())
    return [element("a", group, href=point.href, aria_label=escaped(point.title)) if point.href else group]
