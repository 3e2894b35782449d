"""A metric over time: the runs of one name and target."""

from collections.abc import Callable

from evalflows.pages.charts import Point
from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.figures import figure
from evalflows.reports.metric_lines import LinePoint, MetricLine, metric_line
from evalflows.store.existing import no_experiments

NEWEST = 100
"""Runs that are shown, at most."""

Figure = Callable[[LinePoint], float | None]


def over_time_page(site: Site, query: Query) -> Page:
    """A metric, the cost and the latency over the runs of a line, which `name` and `target` choose."""
    name, target, metric = (query.text(one) for one in ("name", "target", "metric"))
    shown = metric_line(site.store, name, target, metric, newest=NEWEST)
    body = render(
        "over_time.html",
        site,
        shown=shown,
        targets=[one.target for one in shown.known if shown.line and one.name == shown.line.name],
        points=_points(site, shown, shown.metric or "", lambda one: one.mean),
        costs=_points(site, shown, "cost", lambda one: one.cost_usd),
        latencies=_points(site, shown, "latency", lambda one: one.latency),
        how_to_begin=no_experiments(site.store.layout),
        newest=NEWEST,
    )
    return Page(title="Over time", section="over_time", body=body)


def _points(site: Site, shown: MetricLine, metric: str, value: Figure) -> list[Point]:
    is_metric = metric == shown.metric
    return [
        Point(
            at=one.started_at,
            value=value(one),
            low=one.ci_low if is_metric else None,
            high=one.ci_high if is_metric else None,
            title=f"{one.started_at:%Y-%m-%d %H:%M}: {figure(value(one), metric)}{_said(one)}",
            is_break=bool(one.changes),
            href=site.links.experiment(one.experiment_id),
        )
        for one in shown.points
    ]


def _said(one: LinePoint) -> str:
    commit = f", commit {one.git_commit[:8]}" if one.git_commit else ""
    return f"{commit}{', another ' + ' and '.join(one.changes) if one.changes else ''}"
