"""Jinja templates. Every text is escaped for HTML, and its control and bidi characters are shown as escapes."""

import base64
import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from evalflows.pages.charts import domain, histogram, line_sample, share_bar, sparkline, timeline, whisker
from evalflows.pages.page import Page, Site
from evalflows.pages.texts import clipped, fields_of, shown_text
from evalflows.reports.figures import estimate, figure, p_text
from evalflows.reports.names_apart import when
from evalflows.reports.results import conclusion_text
from evalflows.specs.safe_text import escaped

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"

MISSING = "-"
"""What stands for a value that is missing."""

CHARTS = (domain, histogram, line_sample, share_bar, sparkline, timeline, whisker)
"""What templates draw with."""

SECTIONS = (
    ("experiments", "Experiments"),
    ("compare", "Compare"),
    ("pairwise", "Pairwise"),
    ("decisions", "Decisions"),
    ("over_time", "Over time"),
    ("judges", "Judges"),
    ("production", "Production"),
    ("review", "Review"),
)
"""The navigation: a page's section, and its name."""


def render(template: str, site: Site, **values: Any) -> Markup:
    """Return a template with these values; `site`, `links` and `now` are always there."""
    return Markup(_environment().get_template(template).render(site=site, links=site.links, now=site.now, **values))


def whole_page(page: Page, site: Site) -> str:
    """Return a page with the dashboard's frame: its navigation, style and script."""
    return render(
        "layout.html", site, page=page, sections=SECTIONS, style=versioned("style.css"), script=versioned("script.js")
    )


def anchor_of(number: int) -> str:
    """Return the anchor of a page in a report of several, counted from 0."""
    return f"part-{number + 1}"


def one_file(title: str, pages: Sequence[Page], site: Site) -> str:
    """Return pages as one HTML file that needs no other: its style is in it, and it has no script."""
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    made = f"{site.now.astimezone(UTC):%Y-%m-%d %H:%M} UTC by evalflows {version('evalflows')}"
    return render("report.html", site, title=title, pages=pages, made=made, style=Markup(style), digest=digest)


@cache
def versioned(name: str) -> str:
    """Return the address of a static file, which changes with its content so that browsers may keep it."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


@pass_context
def _when(context: Context, moment: datetime, now: datetime) -> str:
    """Return a time as it is read now; in a file, which is read later, with its date."""
    is_file = context["links"].page() is None
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if is_file else when(moment, now)


def _model(name: str | None) -> str | None:
    """Return a model's name; of a model that is a file on this machine, the file's name."""
    return Path(name).stem if name is not None and name.startswith("/") else name


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "figure": figure,
        "interval": _interval,
        "p": p_text,
        "when": _when,
        "model": _model,
        "clipped": clipped,
        "coded": _coded,
        "fields": fields_of,
        "shown_text": shown_text,
        "conclusion": conclusion_text,
    }
    environment.globals |= {"missing": MISSING, "anchor_of": anchor_of} | {drawn.__name__: drawn for drawn in CHARTS}
    return environment


def _interval(value: float | None, low: float | None, high: float | None, metric: str, *, signed: bool = False) -> str:
    """Return a value and its interval, if it has one."""
    marks = (0,) if signed else ()
    return " ".join(filter(None, estimate(value, low, high, metric, signed=signed, marks=marks)))


def _coded(text: str) -> Markup:
    """Return a message with what stands between backticks, such as a command, as code."""
    plain, code = Markup("{}"), Markup("<code>{}</code>")
    parts = enumerate(re.split(r"`([^`]+)`", text))
    return Markup("").join((code if place % 2 else plain).format(escaped(part)) for place, part in parts)


def _shown(value: Any) -> Any:
    """Return what a template's expression prints: texts with visible control characters, and a dash for None."""
    if value is None:
        return MISSING
    return escaped(value) if isinstance(value, str) and not isinstance(value, Markup) else value
