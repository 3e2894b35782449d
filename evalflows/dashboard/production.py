"""Production: what trace evaluations judged, what their watch rules found, and incidents."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from evalflows.analysis.monitoring.window_figures import WindowFigures, window_figures
from evalflows.pages.charts import Point
from evalflows.pages.page import Page, Site
from evalflows.pages.query import Query
from evalflows.pages.rendering import render
from evalflows.reports.figures import estimate
from evalflows.specs.watching import DIMENSIONS
from evalflows.store.queries.incidents import Incident, events_of, find_incident, incidents, looks_since
from evalflows.store.queries.trace_evaluations import batches_of, trace_evaluation, trace_evaluations
from evalflows.store.trace_records import WatchedWindowRow

DAYS = {"day": 90, "hour": 7}
"""Days before the last look whose looks are drawn, by the size of the windows."""

FIGURES_DAYS = 7
MOST_FIGURES_DAYS = 90
BATCHES = 10

Size = Literal["day", "hour"]
SIZES: tuple[Size, ...] = ("day", "hour")
Shown = Literal["now", "all"]
SHOWN: tuple[Shown, ...] = ("now", "all")


def production_page(site: Site, query: Query) -> Page:
    """The trace evaluations, and the incidents that are not over; with `incidents=all`, all."""
    shown = query.choice("incidents", SHOWN, "now")
    known = incidents(site.store)
    body = render(
        "production.html",
        site,
        evaluations=trace_evaluations(site.store),
        incidents=[one for one in known if shown == "all" or not one.is_over],
        over=sum(one.is_over for one in known),
        shown=shown,
    )
    return Page(title="Production", section="production", body=body)


_LookKey = tuple[str, str, datetime]
"""A rule, a slice, and when a window starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """What one rule saw in one slice, window by window."""

    rule: str
    slice: str
    metric: str
    points: Sequence[Point]
    bounds: Sequence[float]
    last: WatchedWindowRow
    last_value: str
    in_words: str


def evaluation_page(site: Site, query: Query) -> Page:
    """One trace evaluation: what its watch rules saw, its incidents and batches. `part=windows` has its metrics."""
    name = query.wanted("name")
    if query.choice("part", ("all", "windows"), "all") == "windows":
        return windows_page(site, query, name)
    evaluation = trace_evaluation(site.store, name)
    found = incidents(site.store, name)
    body = render(
        "evaluation.html",
        site,
        evaluation=evaluation,
        incidents=found,
        watched=_watched(site, evaluation.evaluation_id, found),
        batches=batches_of(site.store, evaluation.evaluation_id, BATCHES),
        dimensions=DIMENSIONS,
    )
    return Page(title=name, section="production", body=body, refresh_s=10 if evaluation.state == "running" else None)


def incident_page(site: Site, query: Query) -> Page:
    """One incident: its figures, its events, and a form to acknowledge or close it."""
    found = find_incident(site.store, query.wanted("id"))
    body = render(
        "incident.html",
        site,
        incident=found,
        value=" ".join(filter(None, estimate(found.value, found.ci_low, found.ci_high, found.metric))),
        events=events_of(site.store, found.incident_id),
        where=_traces_of(found),
    )
    return Page(title=f"Incident: {found.rule}", section="production", body=body)


def _traces_of(incident: Incident) -> str:
    """Return the condition on traces that began in the window and slice of an alarm."""
    start, end = (f"{moment:%Y-%m-%d %H:%M:%S}+00" for moment in (incident.window_start, incident.window_end))
    dimension, _, value = incident.slice.partition("=")
    quoted = "'" + value.replace("'", "''") + "'"
    column = {"tag": "list_contains(tags, {})", "model": "list_contains(models, {})"}.get(
        dimension, f"{dimension} = {{}}"
    )
    of_slice = f" and {column.format(quoted)}" if dimension in DIMENSIONS else ""
    return f"started_at >= '{start}' and started_at < '{end}'{of_slice}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metric:
    """One metric of one slice, window by window."""

    metric: str
    slice: str
    windows: Sequence[tuple[WindowFigures, str]]  # with the mean and its interval as text
    points: Sequence[Point]


def windows_page(site: Site, query: Query, name: str) -> Page:
    """The metrics of a trace evaluation by window and slice, as `evalflows windows` prints them."""
    size, days = query.choice("window", SIZES, "day"), query.number("days", FIGURES_DAYS, MOST_FIGURES_DAYS)
    sliced = [query.choice("slice", DIMENSIONS, "version")] if query.text("slice") else []
    found = window_figures(site.store, name, size=size, dimensions=sliced, days=days)
    metrics = _by_metric(found, size, site, incidents(site.store, name))
    body = render("windows.html", site, name=name, metrics=metrics, size=size, days=days, sliced=sliced, sizes=SIZES)
    return Page(title=f"Windows of {name}", section="production", body=body)


def _watched(site: Site, evaluation_id: str, found: Sequence[Incident]) -> list[_Watched]:
    looks = looks_since(site.store, evaluation_id, site.now - timedelta(days=max(DAYS.values())))
    by_rule: defaultdict[tuple[str, str, str], list[WatchedWindowRow]] = defaultdict(list)
    for look in looks:
        by_rule[look.rule, look.slice, look.metric].append(look)
    alarms = {(one.rule, one.slice, one.window_start): one for one in found}
    return [_one_watched(site, rows, alarms) for _, rows in sorted(by_rule.items())]


def _one_watched(site: Site, rows: Sequence[WatchedWindowRow], alarms: Mapping[_LookKey, Incident]) -> _Watched:
    last = rows[-1]
    shown = [row for row in rows if row.window_start >= last.window_start - timedelta(days=DAYS.get(last.size, 90))]
    points = [_look(site, row, before, alarms) for before, row in zip([None, *shown], shown, strict=False)]
    return _Watched(
        rule=last.rule,
        slice=last.slice,
        metric=last.metric,
        points=points,
        bounds=[last.reference] if last.kind in ("threshold", "failure_share") and last.reference is not None else [],
        last=last,
        last_value=" ".join(filter(None, estimate(last.value, last.ci_low, last.ci_high, last.metric))),
        in_words=f"{last.rule}, {last.slice}: {len(shown)} windows, the last one {last.outcome.replace('_', ' ')}",
    )


def _look(
    site: Site,
    row: WatchedWindowRow,
    before: WatchedWindowRow | None,
    alarms: Mapping[_LookKey, Incident],
) -> Point:
    incident = alarms.get((row.rule, row.slice, row.window_start))
    value = " ".join(filter(None, estimate(row.value, row.ci_low, row.ci_high, row.metric)))
    return Point(
        at=row.window_start,
        value=row.value,
        low=row.ci_low,
        high=row.ci_high,
        title=f"{row.window_start:%Y-%m-%d %H:%M}: {value}, n {row.n}, {row.missing} missing"
        + (f"; alarm: {incident.text}" if incident else ""),
        kind="worse" if incident or row.outcome == "violated" else "",
        is_break=before is not None and before.evaluator_version != row.evaluator_version,
        href=site.links.incident(incident.incident_id) if incident else None,
    )


def _by_metric(found: Sequence[WindowFigures], size: Size, site: Site, known: Sequence[Incident]) -> list[_Metric]:
    by_metric: defaultdict[tuple[str, str], list[WindowFigures]] = defaultdict(list)
    for one in found:
        by_metric[one.metric, one.slice].append(one)
    alarms = {(one.metric, one.slice, one.window_start): one for one in known}
    return [
        _Metric(
            metric=metric,
            slice=sliced,
            windows=[(one, _mean(one)) for one in reversed(rows)],
            points=[_window(site, one, size, alarms.get((metric, sliced, one.window_start))) for one in rows],
        )
        for (metric, sliced), rows in by_metric.items()
    ]


def _window(site: Site, one: WindowFigures, size: Size, incident: Incident | None) -> Point:
    at = f"{one.window_start:%Y-%m-%d}" if size == "day" else f"{one.window_start:%Y-%m-%d %H:%M}"
    return Point(
        at=one.window_start,
        value=one.mean,
        low=one.ci_low,
        high=one.ci_high,
        title=f"{at}: {_mean(one)}, n {one.n}, {one.missing} missing" + ("; alarm" if incident else ""),
        kind="worse" if incident else "",
        href=site.links.incident(incident.incident_id) if incident else None,
    )


def _mean(one: WindowFigures) -> str:
    return " ".join(filter(None, estimate(one.mean, one.ci_low, one.ci_high, one.metric)))
