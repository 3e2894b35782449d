"""Charts as SVG, drawn on the server: no script, no style attribute, colours by class.

Intervals, values over time, shares and histograms.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime

from markupsafe import Markup, escape

from evalflows.analysis.figures import figure
from evalflows.specs.escaping import escaped
from evalflows.specs.frozen import dataclass

TOP, BOTTOM = 10, 22
"""Pixels above and below what a timeline draws; those beside it are the padding of `.timeline`."""

INSIDE = 0.015
"""The share of a timeline's width before the first point and after the last one."""

NARROW, WIDE = 300, 860
"""Widths for which labels are placed so that they do not overlap: those with room on a wide chart alone are `roomy`."""

WHISKER_WIDTH, HEIGHT = 150, 20
INSET = 6

ROW, LETTER, GAP, FOREST_WIDTH = 26, 6.6, 14, 260
"""Pixels: of a row's height, of a letter on average, between columns, and of a plot."""

MOST_LETTERS, MOST_LETTERS_OF_MARK = 40, 16
"""Letters of a label, and of a mark's name."""


def element(tag: str, *content: str | Markup, **attributes: str | float) -> Markup:
    """Return an element. `class_` is the attribute class, and `_` in names is `-`; numbers have at most two digits."""
    text = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_number(value))}"' for name, value in attributes.items()
    )
    return Markup(f"<{tag}{text}>{''.join(map(_content, content))}</{tag}>")  # every part is escaped


def drawing(
    width: float | str,
    height: float,
    title: str,
    *content: Markup,
    class_: str = "chart",
    has_links: bool = False,
    is_alone: bool = False,
) -> Markup:
    """Return a drawing whose title says in words what it shows, for tooltips and for people who do not see it.

    One that `has_links` is a group, as what is in an image cannot be reached; one that `is_alone` can be a file. In one
    whose width is in percent, places across are in percent, too.
    """
    named = {
        "role": "group" if has_links else "img",
        "aria-label": escaped(title),
    }
    if not isinstance(width, str):
        named["viewBox"] = f"0 0 {_number(width)} {_number(height)}"
    if is_alone:
        named["xmlns"] = "http://www.w3.org/2000/svg"
    return element("svg", element("title", title), *content, class_=class_, width=width, height=height, **named)


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale: values from `low` to `high` are drawn from pixel `start` to pixel `end`; others at its ends."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        width = self.high - self.low
        share = (value - self.low) / width if width else 0.5
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))

    def ticks(self, count: int = 4) -> list[float]:
        """Return round values inside the scale, about `count` of them."""
        width = self.high - self.low
        if width <= 0 or not math.isfinite(width):
            return [self.low]
        rough = width / count
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def domain(values: Iterable[float | None], *, pad: float = 0.05) -> tuple[float, float]:
    """Return the range that holds all finite values, a little wider; (0, 1) if there are none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    margin = pad * (high - low) or 0.5 * abs(high) or 0.5
    return low - margin, high + margin


def _content(content: str | Markup) -> str:
    return str(content) if isinstance(content, Markup) else str(escape(escaped(content)))


def _number(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def share_bar(parts: Sequence[tuple[str, float, str]], title: str, *, width: int = 160) -> Markup:
    """Draw the parts of a whole side by side. A part has a name, a size, and the class of its colour."""
    whole, x, height = sum(size for _, size, _ in parts), 0.0, 14
    drawn = []
    for name, size, colour in parts:
        length = width * size / whole if whole else 0.0
        if length:
            label = element("title", f"{name}: {size:g}")
            drawn.append(element("rect", label, class_=f"part {colour}", x=x, y=0, width=length, height=height))
        x += length
    return drawing(width, height, title, *drawn, class_="chart shares")


def histogram(counts: Sequence[tuple[str, int]], title: str, *, height: int = 96) -> Markup:
    """Draw how many values there are of each kind, or in each interval, over all the width there is: pairs of a label
    and a count, in order."""
    most = max((count for _, count in counts), default=0)
    y, step, foot = Scale(0, most or 1, 0, height - 28), 1 / max(len(counts), 1), height - 14
    drawn = []
    for index, (name, count) in enumerate(counts):
        tall, middle = y(count), _percent(step * (index + 0.5))
        places = {"x": _percent(step * (index + 0.02)), "width": _percent(step * 0.96)}
        label = element("title", f"{name}: {count:,}")
        drawn.append(element("rect", label, class_="bar", y=foot - tall, height=tall, **places))
        if len(counts) <= 12:
            drawn.append(element("text", name, class_="tick", x=middle, y=height - 2, text_anchor="middle"))
            drawn.append(
                element("text", f"{count:,}", class_="tick", x=middle, y=foot - tall - 2, text_anchor="middle")
            )
    return drawing("100%", height, title, *drawn, class_="chart histogram")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value at a time. One that is missing leaves a gap."""

    at: datetime
    value: float | None
    low: float | None = None
    high: float | None = None
    title: str  # in words
    kind: str = ""  # `better`, `worse` or empty: the colour
    alike: tuple[str | None, ...] = ()  # points of a series that have the same can be compared, and are connected
    is_release: bool = False  # the target has changed
    href: str | None = None
    series: int = 0  # which of several lines it is on


def timeline(
    points: Sequence[Point],
    metric: str,
    title: str,
    *,
    bounds: Sequence[float] = (),
    marks: Sequence[tuple[datetime, str]] = (),
    height: int = 200,
) -> Markup:
    """Draw points with intervals over all the width there is, those of a series in order of time; a line connects those
    that can be compared, whose dots are hollow in every other group. A dashed line stands for a break or a bound, a
    thin one for a release. `marks` are releases by name: one at the first point says what it was, each later one stands
    before the first point at or after it."""
    ends = [*_ends(points), *bounds]
    low, high = domain(ends)
    if all(end is None or end >= 0 for end in ends):
        low = max(low, 0.0)  # no axis below 0 for what cannot be negative, such as a cost
    top, foot = TOP + ROW / 2 if marks else TOP, height - BOTTOM
    y, x = Scale(low, high, foot, top), _times(points)
    ticks = y.ticks()
    digits = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9)) if len(ticks) > 1 else None
    parts = [
        drawn
        for tick in ticks
        for drawn in (
            element("line", class_="grid", x1=0, x2="100%", y1=y(tick), y2=y(tick)),
            element("text", figure(tick, metric, digits=digits), class_="tick", x=-6, y=y(tick) + 4, text_anchor="end"),
        )
    ]
    parts += [element("line", class_="mark", x1=0, x2="100%", y1=y(bound), y2=y(bound)) for bound in bounds]
    parts += _named_marks(marks, points, x, top, foot)
    for number in dict.fromkeys(point.series for point in points):
        some = [(point, at) for point, at in zip(points, x, strict=True) if point.series == number]
        drawn, seen, before = [], set[tuple[str | None, ...]](), 0.0
        for point, at in some:
            is_break = point.value is not None and point.alike not in seen
            if seen and (is_break or point.is_release):
                drawn.append(_upright("break" if is_break else "release", (before + at) / 2, top, foot))
            if point.value is not None:
                seen.add(point.alike)
            before = at
        for place, alike in enumerate(dict.fromkeys(point.alike for point, _ in some if point.value is not None)):
            among = [(point, at) for point, at in some if point.alike == alike]
            dots = [shape for point, at in among for shape in _point(point, _percent(at), y)]
            drawn.append(element("g", _line(among, y, height), *dots, class_="hollow" if place % 2 else "filled"))
        parts.append(element("g", *drawn, class_=f"series-{number}"))
    parts += _days(points, x, height - 6)
    has_links = any(point.href for point in points)
    return drawing("100%", height, title, *parts, class_="chart timeline", has_links=has_links)


def _percent(share: float) -> str:
    return f"{_number(100 * share)}%"


def _upright(kind: str, at: float, top: float, foot: float, *content: Markup) -> Markup:
    return element("line", *content, class_=kind, x1=_percent(at), x2=_percent(at), y1=top, y2=foot)


def _line(points: Sequence[tuple[Point, float]], y: Scale, height: float) -> Markup:
    """Draw the line through points, in a drawing of its own that is stretched: lines have no places in percent."""
    lines = _lines([point for point, _ in points], [1000 * at for _, at in points], y)
    stretched = {"viewBox": f"0 0 1000 {_number(height)}", "preserveAspectRatio": "none"}
    return element("svg", *lines, width="100%", height=height, **stretched) if lines else Markup()


def _days(points: Sequence[Point], x: Sequence[float], y: float) -> list[Markup]:
    """Name the day of the first and the last point, and of others where there is room; of one day, the times."""
    order = sorted(range(len(points)), key=lambda index: points[index].at)
    if not order:
        return []
    first, last = points[order[0]].at, points[order[-1]].at
    is_one_day = first.date() == last.date() and first != last
    times = [f"{points[index].at:{'%H:%M' if is_one_day else '%Y-%m-%d'}}" for index in order]
    begin = f"{first:%Y-%m-%d %H:%M}" if is_one_day else times[0]
    ends = [(x[order[0]], begin, "middle" if len(order) == 1 else "start"), (x[order[-1]], times[-1], "end")]
    between = [(x[index], time, "middle") for index, time in zip(order[1:-1], times[1:-1], strict=True)]
    told_once = {label[1]: label for label in reversed([*ends[: len(order)], *between])}
    return _labels(reversed(told_once.values()), y)


def _labels(labels: Iterable[tuple[float, str, str]], y: float) -> list[Markup]:
    """Write labels, each with a place, a text and an anchor, without those that would overlap an earlier one."""
    parts = []
    taken: dict[int, list[tuple[float, float]]] = {WIDE: [], NARROW: []}
    for at, text, anchor in labels:
        size, kind = LETTER * (len(text) + 1), "tick"
        for width, others in taken.items():
            begin = at * width - {"start": 0, "middle": size / 2, "end": size}[anchor]
            if any(begin < end and start < begin + size for start, end in others):
                kind = "" if width == WIDE else "tick roomy"
                break
            others.append((begin, begin + size))
        if kind:
            parts.append(element("text", text, class_=kind, x=_percent(at), y=y, text_anchor=anchor))
    return parts


def _named_marks(
    marks: Sequence[tuple[datetime, str]], points: Sequence[Point], x: Sequence[float], top: float, foot: float
) -> list[Markup]:
    """Draw each mark before the first point at or after its time, one at the first point without a line, with its name
    where there is room for it."""
    parts, labels = [], []
    for at, name in marks:
        position = next((index for index, point in enumerate(points) if point.at >= at), None)
        if position is None or (position == 0 and at < points[0].at):
            continue  # after the last point, or before the first one
        middle = (x[max(position - 1, 0)] + x[position]) / 2
        if position:
            parts.append(_upright("release", middle, top, foot, element("title", name)))
        label = name if len(name) <= MOST_LETTERS_OF_MARK else f"{name[: MOST_LETTERS_OF_MARK - 1]}…"
        labels.append((middle, label, "start" if middle < 0.2 else "end" if middle > 0.8 else "middle"))
    return [*parts, *_labels(labels, top - 4)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A point in the plane."""

    x: float
    y: float
    title: str  # in words
    series: int  # the group that it belongs to
    href: str | None = None


def scatter(places: Sequence[Place], title: str, *, width: int = 640, height: int = 420) -> Markup:
    """Draw points without axes, by one scale in both directions."""
    spread = [domain(place.x for place in places), domain(place.y for place in places)]
    unit = max((spread[0][1] - spread[0][0]) / width, (spread[1][1] - spread[1][0]) / height)
    middle = [sum(ends) / 2 for ends in spread]
    drawn = []
    for place in places:
        x, y = width / 2 + (place.x - middle[0]) / unit, height / 2 - (place.y - middle[1]) / unit
        dot = element("g", element("title", place.title), element("circle", class_="dot", cx=x, cy=y, r=4))
        linked = element("a", dot, href=place.href, aria_label=escaped(place.title)) if place.href else dot
        drawn.append(element("g", linked, class_=f"series-{place.series}"))
    return drawing(width, height, title, *drawn, class_="chart scatter", has_links=any(place.href for place in places))


def line_sample(series: int) -> Markup:
    """Draw how the line of a series looks, for a legend whose text names it."""
    line = element("line", class_="line", x1=1, x2=27, y1=6, y2=6)
    dot = element("circle", class_="dot", cx=14, cy=6, r=4)
    return drawing(28, 12, "its line", element("g", line, dot, class_=f"series-{series}"), class_="chart sample")


def sparkline(values: Sequence[float | None], title: str, *, width: int = 80, height: int = 20) -> Markup:
    """Draw values in order, without axes; None leaves a gap."""
    y, step = Scale(*domain(values), height - 3, 3), (width - 8) / max(len(values) - 1, 1)
    places = [4 + step * index for index in range(len(values))]
    points = [Point(at=datetime.min, value=value, title="") for value in values]
    parts = _lines(points, places, y)
    if points and points[-1].value is not None:
        parts.append(element("circle", class_="dot", cx=places[-1], cy=y(points[-1].value), r=2.5))
    return drawing(width, height, title, *parts, class_="chart sparkline")


def _ends(points: Sequence[Point]) -> list[float | None]:
    return [value for point in points for value in (point.value, point.low, point.high)]


def _times(points: Sequence[Point]) -> list[float]:
    """Return each point's place as a share of the width, by its time; evenly if all have the same time."""
    seconds = [point.at.timestamp() for point in points]
    if not seconds or min(seconds) == max(seconds):
        return [(index + 0.5) / len(points) for index in range(len(points))]
    scale = Scale(min(seconds), max(seconds), INSIDE, 1 - INSIDE)
    return [scale(second) for second in seconds]


def _lines(points: Sequence[Point], x: Sequence[float], y: Scale) -> list[Markup]:
    """Draw the line through the points; a missing value interrupts it."""
    runs: list[list[str]] = [[]]
    for point, at in zip(points, x, strict=True):
        if point.value is None:
            runs.append([])
        else:
            runs[-1].append(f"{at:.1f},{y(point.value):.1f}")
    return [element("polyline", class_="line", points=" ".join(run)) for run in runs if len(run) > 1]


def _point(point: Point, x: str, y: Scale) -> list[Markup]:
    if point.value is None:
        return []
    parts = [element("title", point.title), element("circle", class_="dot", cx=x, cy=y(point.value), r=4)]
    if point.low is not None and point.high is not None:
        parts.insert(1, element("line", class_="interval", x1=x, x2=x, y1=y(point.low), y2=y(point.high)))
    group = element("g", *parts, class_=f"point {point.kind}".strip())
    return [element("a", group, href=point.href, aria_label=escaped(point.title)) if point.href else group]


def whisker(
    value: float | None,
    low: float | None,
    high: float | None,
    scale: tuple[float, float],
    title: str,
    *,
    marks: Sequence[float | None] = (),
    kind: str = "",
    width: int = WHISKER_WIDTH,
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
    labels = [
        estimate.label if len(estimate.label) <= MOST_LETTERS else f"{estimate.label[: MOST_LETTERS - 1]}…"
        for estimate in estimates
    ]
    left = GAP + LETTER * max(map(len, labels), default=0) + GAP
    right = left + FOREST_WIDTH + GAP
    width = right + LETTER * max((len(estimate.text) for estimate in estimates), default=0) + GAP
    height = ROW * max(len(estimates), 1) + GAP
    parts = [element("style", Markup(STYLE)), element("rect", class_="back", x=0, y=0, width=width, height=height)]
    for index, (estimate, label) in enumerate(zip(estimates, labels, strict=True)):
        top = GAP / 2 + ROW * index
        middle = top + ROW / 2 + 4
        drawn = whisker(
            estimate.value,
            estimate.low,
            estimate.high,
            estimate.scale,
            f"{estimate.label}: {estimate.text}",
            marks=[estimate.mark],
            kind=estimate.kind,
            width=FOREST_WIDTH,
        )
        parts += [
            element("text", label, x=GAP, y=middle),
            element("g", drawn, transform=f"translate({left:.0f} {top + (ROW - HEIGHT) / 2:.0f})"),
            element("text", estimate.text, x=right, y=middle),
        ]
    return drawing(width, height, title, *parts, class_="chart forest", is_alone=True)
