"""The list of judges: whether each can be relied on."""

from evalflows.analysis.human_labels.standings import judge_standings
from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.judge_records import judges_health


def judges_page(site: Site, query: Query) -> Page:
    """The list of judges, and their agreement with people."""
    return site.store.steady(lambda: _judges_page(site, query))  # the store's files are listed once


def _judges_page(site: Site, query: Query) -> Page:
    text = query.text("q")
    health = [one for one in judges_health(site.store) if _has(text, one.evaluator, one.judge_model, *one.metrics)]
    standings = [one for one in judge_standings(site.store) if _has(text, one.evaluator, one.judge_model, one.metric)]
    body = render("judges.html", site, judges=health, standings=standings, q=text)
    return Page(title="Judges", section="judges", body=body)


def _has(text: str | None, *names: str) -> bool:
    return text is None or any(text.lower() in name.lower() for name in names)
