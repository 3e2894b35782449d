"""What a page is made of, and what it is made from."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from markupsafe import Markup

from evalflows.pages.links import Links
from evalflows.store.parquet import Store
from evalflows.store.query_process import QueryProcesses
from evalflows.store.records import now
from evalflows.store.stop import Stop

Section = Literal[
    "experiments", "compare", "pairwise", "decisions", "over_time", "judges", "production", "review", "none"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What every page is made from: a store, and where links lead."""

    store: Store
    links: Links
    now: datetime = field(default_factory=now)
    stop: Stop = field(default_factory=Stop)  # set when nobody waits for the page any more
    queries: QueryProcesses | None = None  # run the SQL of others; a report of one file has none
    most_rows: int | None = None  # of each list in a report of one file, which has no pager

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
