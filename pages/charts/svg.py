"""SVG elements as escaped markup, and the scale from values to pixels."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

from evalflows.specs.safe_text import escaped


def element(tag: str, *content: str | Markup, **attributes: str | float) -> Markup:
    """Return an element. `class_` is the attribute class, and `_` in names is `-`; numbers have at most two digits."""
    text = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_number(value))}"' for name, value in attributes.items()
    )
    return Markup(f"<{tag}{text}>{''.join(map(_content, content))}</{tag}>")  # every part is escaped


def drawing(
    width: float,
    height: float,
    title: str,
    *content: Markup,
    class_: str = "chart",
    has_links: bool = False,
    is_alone: bool = False,
) -> Markup:
    """Return a drawing whose title says in words what it shows, for tooltips and for people who do not see it.

    One that `has_links` is a group, as what is in an image cannot be reached; one that `is_alone` can be a file.
    """
    named = {
        "role": "group" if has_links else "img",
        "aria-label": escaped(title),
        "viewBox": f"0 0 {_number(width)} {_number(height)}",
    }
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
