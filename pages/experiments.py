"""The list of experiments: filtered by name, dataset, tag and state, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.experiments_report import ExperimentOverview, overviews

IN_PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    experiments: Sequence[ExperimentOverview]


def experiments_page(site: Site, query: Query) -> Page:
    """The list of experiments."""
    shown = overviews(
        site.store,
        "$1 is null or contains(lower(name), lower($1)) order by started_at desc limit 50",
        [query.text("q")],
    )
    is_running = any(one.state == "running" for one in shown)
    body = render("experiments.html", site, experiments=shown, q=query.text("q"))
    return Page(title="Experiments", section="experiments", body=body, refresh_s=5 if is_running else None)
