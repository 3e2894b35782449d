"""The list of judges: whether each can be relied on."""

from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.judge import judge_standings
from evalflows.reports.judge_records import judges_health


def judges_page(site: Site, query: Query) -> Page:
    """The list of judges, and their agreement with people."""
    text = query.text("q")
    health = [one for one in judges_health(site.store) if _has(text, one.evaluator, one.judge_model, *one.metrics)]
    standings = [one for one in judge_standings(site.store) if _has(text, one.evaluator, one.judge_model, one.metric)]
    body = render("judges.html", site, judges=health, standings=standings, q=text)
    return Page(title="Judges", section="judges", body=body)


def _has(text: str | None, *names: str) -> bool:
    return text is None or any(text.lower() in name.lower() for name in names)
