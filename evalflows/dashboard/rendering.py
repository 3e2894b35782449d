"""What pages are made of: Jinja templates, links, the parameters of an address, and texts.

Every text is escaped for HTML, and its control and bidi characters are shown as escapes.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from functools import cache, partial, wraps
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from evalflows.analysis.figures import estimate_text, figure, p_text, usd
from evalflows.dashboard.charts import domain, histogram, line_sample, scatter, share_bar, sparkline, timeline, whisker
from evalflows.dashboard.links import Links, query_text
from evalflows.dashboard.texts import markdown, rendered
from evalflows.reports.kept_comparisons import KeptComparisons
from evalflows.reports.names import when
from evalflows.reports.results import conclusion_text
from evalflows.reports.side_by_side import Answer, ComparedRow
from evalflows.reports.word_diff import WordDiff, word_diff
from evalflows.specs.attachments import Attachment, opened_text
from evalflows.specs.errors import InputError, StorageError
from evalflows.specs.escaping import escaped, json_text
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES
from evalflows.store.attachments import content_in
from evalflows.store.query_process import QueryProcesses
from evalflows.store.records import now
from evalflows.store.stop import Stop
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.reports.picture import Card

Section = Literal[
    "home", "experiments", "datasets", "compare", "pairwise", "decisions", "over_time", "judges", "modes", "production",
    "review", "none",
]  # fmt: skip

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"

MISSING = "-"
"""What stands for a value that is missing."""

CHARTS = (domain, histogram, line_sample, scatter, share_bar, sparkline, timeline, whisker)
"""What templates draw with."""

SECTIONS = (
    ("home", "Home"),
    ("experiments", "Experiments"),
    ("datasets", "Datasets"),
    ("compare", "Compare"),
    ("pairwise", "Pairwise"),
    ("decisions", "Decisions"),
    ("over_time", "Over time"),
    ("judges", "Judges"),
    ("modes", "Failure modes"),
    ("production", "Production"),
    ("review", "Review"),
)
"""The navigation: a page's section, and its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What every page is made from: a store, and where links lead."""

    store: Store
    links: Links
    now: datetime = field(default_factory=now)
    stop: Stop = field(default_factory=Stop)  # set when nobody waits for the page any more
    compared: KeptComparisons = field(default_factory=KeptComparisons)
    queries: QueryProcesses | None = None  # run the SQL of others; a report of one file has none
    most_rows: int | None = None  # of each list in a report of one file, which has no pager
    is_raw: bool = False  # whether texts are shown as they are, not rendered

    def in_page(self, rows: int) -> int:
        """Return how many rows of a list a page shows, which are `rows` in the dashboard."""
        return self.most_rows or rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page, without the frame around it."""

    title: str
    section: Section = "none"
    body: Markup
    refresh_s: int | None = None  # seconds after which its content may have changed; None: it is final
    is_of_store: bool = True  # whether only another state of the store changes it
    is_shared: bool = False  # whether it is a report, which can be sent as a file
    reported: str | None = None  # what `evalflows report` is asked for the same
    card: "Callable[[], Card] | None" = None  # what a picture of it shows, if that is not what is `reported`
    has_key_r: bool = False  # whether that key is its own, and not that of raw texts
    summary: Markup | None = None  # in a report, what its first screen shows; the body is folded below


PICTURE = "png"
"""The value of the parameter `file` that asks for a picture of a page."""

Choice = TypeVar("Choice", bound=str)

MOST_PAGES = 1_000_000


@dataclass(frozen=True, slots=True)
class Query:
    """Names and values; a name may have several values."""

    values: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]] = (), path: Mapping[str, Any] | None = None) -> "Query":
        return cls(grouped((name, str(value)) for name, value in [*pairs, *(path or {}).items()]))

    def all(self, name: str) -> list[str]:
        """Return every value of a name that is not empty."""
        return [value for value in self.values.get(name, ()) if value]

    def text(self, name: str) -> str | None:
        """Return the last value of a name; None if there is none, or if it is empty."""
        return next(reversed(self.all(name)), None)

    def wanted(self, name: str) -> str:
        """Return the value of a name that must be there. Raise InputError if it is not."""
        if (value := self.text(name)) is None:
            raise InputError(f"{name}: got none, wanted a value")
        return value

    def choice(self, name: str, choices: Sequence[Choice], default: Choice) -> Choice:
        """Return one of the choices. Raise InputError for another value."""
        value = self.text(name)
        if value is None:
            return default
        for choice in choices:
            if choice == value:
                return choice
        raise InputError(f"{name}: got {value!r}, wanted one of {', '.join(choices)}")

    def number(self, name: str, default: int = 1, most: int = MOST_PAGES) -> int:
        """Return a whole number from 1 to `most`. Raise InputError for another value."""
        value = self.text(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or not 1 <= int(value[:9]) <= most:
            raise InputError(f"{name}: got {value!r}, wanted a whole number from 1 to {most}")
        return int(value)


IN_TABLE = 400
"""Characters of a text in a table of many."""

ON_PAGE = 100_000
"""Characters of a text on a page of its own."""

SHORT = 1_000
"""Characters below which a text is one of many in a table."""

SMALL_PICTURE, PICTURE_ON_PAGE = 200_000, 3_000_000
"""Most bytes of a picture in a file or a table, and on a page."""


@dataclass(frozen=True, slots=True)
class Clipped:
    """The begin of a text, and how many characters of it are not shown."""

    text: str
    left_out: int


def clipped(text: str, most: int = IN_TABLE) -> Clipped:
    return Clipped(text[:most], max(0, len(text) - most))


def fields_of(content: str | None) -> list[tuple[str | None, str]]:
    """Return the fields of a JSON object as names and texts; a single field, or another value, has no name.

    Empty for None: there is no such content.
    """
    if content is None:
        return []
    value = json.loads(content)
    if not isinstance(value, dict):
        return [(None, _text(value))]
    names = [None] if len(value) == 1 else list(value)
    return [(name, _text(inner)) for name, inner in zip(names, value.values(), strict=True)]


def shown_text(content: str | None) -> str:
    """Return JSON as one text: a single field as its text, several with their names."""
    fields = fields_of(content)
    return "\n".join(text if name is None else f"{name}: {text}" for name, text in fields)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value, indent=1 if isinstance(value, dict | list) else None)


def marked(rows: Sequence[ComparedRow], baseline: str) -> dict[tuple[str, str], WordDiff]:
    """Return the words of each answer that is not the baseline's, by example and experiment."""
    return {
        (row.example_id, owner): words
        for row in rows
        for owner, side in row.sides.items()
        if owner != baseline and (words := _words(row.sides[baseline].answer, side.answer)) is not None
    }


def _words(old: Answer | None, new: Answer | None) -> WordDiff | None:
    """Return the difference of two answers; None unless both are there."""
    if old is None or new is None or old.outputs is None or new.outputs is None:
        return None
    return word_diff(shown_text(old.outputs), shown_text(new.outputs), IN_TABLE)


def render(template: str, site: Site, **values: Any) -> Markup:
    """Return a template with these values; `site`, `links` and `now` are always there."""
    return Markup(_environment().get_template(template).render(site=site, links=site.links, now=site.now, **values))


def whole_page(page: Page, site: Site, address: str = "/") -> str:
    """Return a page with the dashboard's frame: its navigation, style and script; `address` is the page's own."""
    return render(
        "layout.html",
        site,
        page=page,
        sections=SECTIONS,
        style=versioned("style.css"),
        script=versioned("script.js"),
        file=f"{address}{'&' if '?' in address else '?'}file=" if page.is_shared else None,
        picture=PICTURE if (page.reported or page.card) and find_spec("PIL") else None,
        texts=f"/texts?{query_text(raw=None if site.is_raw else '1', to=address)}",
        left_out=site.store.left_out(),
    )


def anchor_of(number: int) -> str:
    """Return the anchor of a page in a report of several, counted from 0."""
    return f"part-{number + 1}"


def steady(page: Callable[[Site, Query], Page]) -> Callable[[Site, Query], Page]:
    """Render a page from one state of the store, whose files are listed once."""

    @wraps(page)
    def rendered(site: Site, query: Query) -> Page:
        return site.store.steady(lambda: page(site, query))

    return rendered


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
def _content(context: Context, content: str, most: int, n_alike: int = 0) -> Markup:
    site: Site = context["site"]
    if not site.is_raw:
        content = opened_text(content, partial(_picture, site, most))
    return rendered(content, most, is_raw=site.is_raw, has_links=site.links.page() is not None, n_alike=n_alike)


def _picture(site: Site, most: int, attachment: Attachment) -> str | None:
    """Return a picture as base64; None for a large one in a file or a table, and for other files."""
    is_small = site.links.page() is None or most < SHORT
    if attachment.modality != "image" or attachment.size > (SMALL_PICTURE if is_small else PICTURE_ON_PAGE):
        return None
    with suppress(StorageError):  # of a damaged file its name is shown
        return content_in(site.store, attachment)
    return None


@pass_context
def _markdown(context: Context, text: str, most: int) -> Markup:
    site: Site = context["site"]
    return markdown(text, most, is_raw=site.is_raw, has_links=site.links.page() is not None)


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
        "usd": usd,
        "interval": estimate_text,
        "p": p_text,
        "when": _when,
        "model": _model,
        "clipped": clipped,
        "content": _content,
        "markdown": _markdown,
        "coded": _coded,
        "fields": fields_of,
        "shown_text": shown_text,
        "conclusion": conclusion_text,
    }
    environment.globals |= {"missing": MISSING, "measures": MEASURES, "anchor_of": anchor_of} | {
        drawn.__name__: drawn for drawn in CHARTS
    }
    return environment


def _coded(text: str) -> Markup:
    """Return a message with what stands between backticks, such as a command, as code."""
    plain, code = Markup("{}"), Markup("<code>{}</code>")
    parts = enumerate(re.split(r"`([^`]+)`", text))
    return Markup("").join((code if index % 2 else plain).format(escaped(part)) for index, part in parts)


def _shown(value: Any) -> Any:
    """Return what a template's expression prints: texts with visible control characters, and a dash for None."""
    if value is None:
        return MISSING
    return escaped(value) if isinstance(value, str) and not isinstance(value, Markup) else value
