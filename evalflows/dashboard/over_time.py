"""The page of metrics over time."""

from collections.abc import Callable, Mapping, Set
from datetime import datetime

from evalflows.analysis.figures import figure
from evalflows.analysis.judge_exclusions import excluded_metrics
from evalflows.dashboard.charts import Point
from evalflows.dashboard.rendering import Page, Query, Site, render
from evalflows.reports.experiment_report import spent_so_far
from evalflows.reports.metric_lines import Line, LinePoint, MetricLines, metric_lines, provider_changes
from evalflows.reports.names import Version, versions_of
from evalflows.store.store import no_experiments

NEWEST = 100
"""Runs of a line that are shown, at most."""

BEHIND = ", answered by another model or system_fingerprint behind the same name"

Figure = Callable[[LinePoint], float | None]


def over_time_page(site: Site, query: Query) -> Page:
    """Return a metric, the cost and the latency over the runs of lines, which `name`, once or several times, `target`
    and `dataset` choose."""
    names, target, metric = query.all("name"), query.text("target"), query.text("metric")
    dataset = query.text("dataset")
    shown = metric_lines(site.store, names, target, metric, newest=NEWEST, dataset=dataset)
    first = shown.lines[0].line if shown.lines else None
    drawn = [point for line in shown.lines for point in line.points]
    groups = {point.experiment_id: point.run_group for point in drawn}
    of_one = [point.experiment_id for point in drawn] if len(shown.lines) == 1 else []
    provider = provider_changes(site.store, of_one)
    versions = versions_of((point.experiment_id, point.application_version, point.git_commit) for point in drawn)
    told = {point.experiment_id: _told(point, versions.get(point.experiment_id)) for point in drawn}
    body = render(
        "over_time.html",
        site,
        shown=shown,
        first=first,
        names=names,
        dataset=dataset,
        targets=[line.target for line in shown.known if first and line.name == first.name],
        points=_points(site, shown, shown.metric or "", lambda point: point.mean, told, provider),
        costs=_points(site, shown, "cost", lambda point: point.cost_usd, told, provider),
        latencies=_points(site, shown, "latency", lambda point: point.latency, told, provider),
        spent=spent_so_far(site.store, [point.experiment_id for point in drawn if point.cost_usd is None]),
        provider=provider,
        excluded=excluded_metrics(site.store, groups),
        versions=versions,
        marks=_marks(shown, versions),
        named=_named,
        how_to_begin=no_experiments(site.store.layout),
        newest=NEWEST,
    )
    return Page(title="Over time", section="over_time", body=body)


def _marks(shown: MetricLines, versions: Mapping[str, Version]) -> list[tuple[datetime, str]]:
    """Return when another version ran than before, if one system is shown."""
    marks: list[tuple[datetime, str]] = []
    for point in shown.lines[0].points if len(shown.lines) == 1 else ():
        version = versions.get(point.experiment_id)
        if version and (not marks or marks[-1][1] != version.short):
            marks.append((point.started_at, version.short))
    return marks


def _named(line: Line) -> str:
    return line.name if line.target in line.name else f"{line.name}, {line.target}"


def _points(
    site: Site, shown: MetricLines, metric: str, value: Figure, told: Mapping[str, str], provider: Set[str]
) -> list[Point]:
    is_metric, is_one = metric == shown.metric, len(shown.lines) == 1
    return [
        Point(
            at=point.started_at,
            value=value(point),
            low=point.ci_low if is_metric else None,
            high=point.ci_high if is_metric else None,
            title=f"{'' if is_one else f'{_named(of.line)}, '}{point.started_at:%Y-%m-%d %H:%M}: "
            f"{figure(value(point), metric)}{told[point.experiment_id]}"
            f"{BEHIND if point.experiment_id in provider else ''}",
            alike=(point.snapshot_id, point.evaluator_version if is_metric else None),
            is_release=point.target_changed or point.experiment_id in provider,
            href=site.links.experiment(point.experiment_id),
            series=number,
        )
        for number, of in enumerate(shown.lines)
        for point in of.points
    ]


def _told(point: LinePoint, version: Version | None) -> str:
    """Return what is said of a run beside its figures."""
    named = f", version {version.text}" if version else ""
    changes = f", another {' and '.join(point.changes)}" if point.changes else ""
    return f"{named}{changes}"
