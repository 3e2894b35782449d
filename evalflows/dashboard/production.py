"""Production: what trace evaluations judged, what watch rules found, and traces as a list and as a tree."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

from evalflows.analysis.figures import estimate_text, tokens_text
from evalflows.analysis.monitoring import Changed, WindowFigures, baseline_before, what_changed, window_figures
from evalflows.dashboard.charts import Point
from evalflows.dashboard.links import PROOF
from evalflows.dashboard.rendering import Page, Query, Site, render, shown_text
from evalflows.reports.datasets import dataset_names
from evalflows.reports.idle_rules import rules_that_could_not_look
from evalflows.reports.judges import label_text
from evalflows.specs import hints
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import json_text
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.moments import moment_in
from evalflows.specs.watch import ALL, DIMENSIONS, OF_METADATA, check_dimension
from evalflows.store.layout import quoted
from evalflows.store.observations import last_owner
from evalflows.store.queries.incidents import (
    Incident,
    episode_of,
    episodes,
    events_of,
    find_incident,
    incidents,
    looks_since,
    versions_since,
    worst_items,
)
from evalflows.store.queries.trace_evaluations import batches_of, trace_evaluation, trace_evaluations
from evalflows.store.queries.traces import (
    TraceWithTexts,
    Verdict,
    metadata_keys,
    observations_of_trace,
    scores_of_traces,
    traces_with_texts,
    verdicts_of_trace,
)
from evalflows.store.queries.windows import in_slice
from evalflows.store.trace_records import WatchedWindowRow
from evalflows.telemetry.conventions import answer_text, last_user_text, messages_of
from evalflows.telemetry.views import ObservationView, in_depth, trace_view

MOST_WORST = 10
"""Items of an incident's page."""

MOST_SLICES = 3
"""Slices of what changed above the worst items; others are folded."""

DAYS = {"day": 90, "hour": 7}
"""Days before the last look whose looks are drawn, by the size of the windows."""

HALF = 0.5
MOST_CHARTS = 6
FIGURES_DAYS = 7
MOST_FIGURES_DAYS = 90
BATCHES = 10

Size = Literal["day", "hour"]
SIZES: tuple[Size, ...] = ("day", "hour")
Shown = Literal["now", "all"]
SHOWN: tuple[Shown, ...] = ("now", "all")

_LookKey = tuple[str, str, datetime]
"""A rule, a slice, and when a window starts."""

_TEXTS = "lower(concat_ws(chr(10), input, output))"

MOST_METRICS = 4
"""Metrics with a column in the list of traces."""

IN_PAGE = 50
MOST = 500
DEEPEST = 12
"""Levels of the tree that are indented."""


def production_page(site: Site, query: Query) -> Page:
    """Return the incidents that are not over, or with `incidents=all` all; the watched metrics, and the trace
    evaluations."""
    shown = query.choice("incidents", SHOWN, "now")
    known, evaluations = incidents(site.store), trace_evaluations(site.store)
    found = episodes(known)
    charts = [
        (evaluation, chart)
        for evaluation in evaluations
        for chart in _of_all_traces(_watched(site, evaluation.evaluation_id, known))
    ]
    body = render(
        "production.html",
        site,
        evaluations=evaluations,
        episodes=[episode for episode in found if shown == "all" or not episode.is_over],
        over=sum(episode.is_over for episode in found),
        shown=shown,
        charts=charts,
        versions=_versions(site, [chart for _, chart in charts]),
    )
    return Page(title="Production", section="production", body=body)


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
    """Return one trace evaluation: what its watch rules saw, its incidents and batches.

    `part=windows` has its metrics.
    """
    name = query.wanted("name")
    if query.choice("part", ("all", "windows"), "all") == "windows":
        return windows_page(site, query, name)
    evaluation = trace_evaluation(site.store, name)
    found = incidents(site.store, name)
    watched = _watched(site, evaluation.evaluation_id, found)
    body = render(
        "evaluation.html",
        site,
        evaluation=evaluation,
        episodes=episodes(found),
        watched=watched,
        versions=_versions(site, watched),
        idle=rules_that_could_not_look(site.store, name),
        batches=batches_of(site.store, evaluation.evaluation_id, BATCHES),
        dimensions=DIMENSIONS,
    )
    return Page(title=name, section="production", body=body, refresh_s=10 if evaluation.state == "running" else None)


def incident_page(site: Site, query: Query) -> Page:
    """Return one incident: its figures over time, what changed with it, its worst items, a form to acknowledge it."""
    found = find_incident(site.store, query.wanted("id"))
    same_slice = [
        row
        for row in looks_since(site.store, found.evaluation_id, site.now - timedelta(days=max(DAYS.values())))
        if (row.rule, row.slice, row.metric) == (found.rule, found.slice, found.metric)
    ]
    episode = episode_of(site.store, found)
    watched = [_one_watched(site, same_slice, _alarms(episode.incidents))] if same_slice else []
    changed, where = what_changed(site.store, found), _traces_of(found)
    body = render(
        "incident.html",
        site,
        incident=found,
        episode=episode,
        watched=watched,
        versions=_versions(site, watched),
        changed=changed,
        reasons=_reasons(changed),
        most_slices=MOST_SLICES,
        worst=worst_items(site.store, found, MOST_WORST),
        value=estimate_text(found.value, found.ci_low, found.ci_high, found.metric),
        events=sorted(
            (event for incident in episode.incidents for event in events_of(site.store, incident.incident_id)),
            key=lambda event: event.recorded_at,
        ),
        where=where,
        command=_command(where, f"{found.window_start:%Y-%m-%d}"),
        gate=hints.gate_against(baseline_before(found, changed).text).command,
        datasets=dataset_names(site.store),
        as_json=captured_json,
    )
    return Page(title=f"Incident: {found.rule}", section="production", body=body, is_shared=True)


def _reasons(changed: Sequence[Changed]) -> list[Changed]:
    """Return the slices that explain half of the change or more, one of each dimension."""
    by_dimension: dict[str, Changed] = {}
    for row in changed:
        if row.of_change is not None and row.of_change >= HALF:
            by_dimension.setdefault(row.slice.partition("=")[0], row)
    return list(by_dimension.values())


def _traces_of(incident: Incident) -> str:
    """Return the condition on traces that began in the window and slice of an alarm."""
    start, end = (f"{moment:%Y-%m-%d %H:%M:%S}+00" for moment in (incident.window_start, incident.window_end))
    conditions = [f"started_at >= '{start}'", f"started_at < '{end}'", in_slice(incident.slice)]
    return " and ".join(filter(None, conditions))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metric:
    """One metric of one slice, window by window."""

    metric: str
    slice: str
    windows: Sequence[tuple[WindowFigures, str]]  # with the mean and its interval as text
    points: Sequence[Point]


def windows_page(site: Site, query: Query, name: str) -> Page:
    """Return the metrics of a trace evaluation by window and slice, as `evalflows windows` prints them."""
    size, days = query.choice("window", SIZES, "day"), query.number("days", FIGURES_DAYS, MOST_FIGURES_DAYS)
    try:
        sliced = [check_dimension(dimension)] if (dimension := query.text("slice")) else []
    except ValueError as error:
        raise InputError(f"slice: {error}") from None
    found = window_figures(site.store, name, size=size, dimensions=sliced, days=days)
    metrics = _by_metric(found, size, site, incidents(site.store, name))
    known = [*DIMENSIONS, *(f"{OF_METADATA}{key}" for key in metadata_keys(site.store))]
    body = render(
        "windows.html",
        site,
        name=name,
        metrics=metrics,
        size=size,
        days=days,
        sliced=sliced,
        sizes=SIZES,
        dimensions=[*dict.fromkeys([*known, *sliced])],
    )
    return Page(title=f"Windows of {name}", section="production", body=body)


def _watched(site: Site, evaluation_id: str, found: Sequence[Incident]) -> list[_Watched]:
    looks = looks_since(site.store, evaluation_id, site.now - timedelta(days=max(DAYS.values())))
    by_rule = grouped(((look.rule, look.slice, look.metric), look) for look in looks)
    alarms = _alarms([incident for incident in found if incident.evaluation_id == evaluation_id])
    return [_one_watched(site, rows, alarms) for _, rows in sorted(by_rule.items())]


def _alarms(found: Sequence[Incident]) -> dict[_LookKey, Incident]:
    return {(incident.rule, incident.slice, incident.window_start): incident for incident in found}


def _of_all_traces(watched: Sequence[_Watched]) -> list[_Watched]:
    """Return one of each metric's charts of all traces: of a rule that alarmed, if one did."""
    by_metric: dict[str, _Watched] = {}
    for chart in sorted(watched, key=lambda chart: not any(point.href for point in chart.points)):
        if chart.slice == ALL:
            by_metric.setdefault(chart.metric, chart)
    return list(by_metric.values())[:MOST_CHARTS]


def _versions(site: Site, watched: Sequence[_Watched]) -> list[tuple[datetime, str]]:
    """Return when each version of the application began that did in the charts' time."""
    began = min((point.at for chart in watched for point in chart.points), default=None)
    return [] if began is None else versions_since(site.store, began)


def _one_watched(site: Site, rows: Sequence[WatchedWindowRow], alarms: Mapping[_LookKey, Incident]) -> _Watched:
    last = rows[-1]
    shown = [row for row in rows if row.window_start >= last.window_start - timedelta(days=DAYS.get(last.size, 90))]
    points = [_look(site, row, alarms) for row in shown]
    return _Watched(
        rule=last.rule,
        slice=last.slice,
        metric=last.metric,
        points=points,
        bounds=[last.reference] if last.kind in ("threshold", "failure_share") and last.reference is not None else [],
        last=last,
        last_value=estimate_text(last.value, last.ci_low, last.ci_high, last.metric),
        in_words=f"{last.rule}, {last.slice}: {len(shown)} windows, the last one {last.outcome.replace('_', ' ')}",
    )


def _look(site: Site, row: WatchedWindowRow, alarms: Mapping[_LookKey, Incident]) -> Point:
    incident = alarms.get((row.rule, row.slice, row.window_start))
    value = estimate_text(row.value, row.ci_low, row.ci_high, row.metric)
    return Point(
        at=row.window_start,
        value=row.value,
        low=row.ci_low,
        high=row.ci_high,
        title=f"{row.window_start:%Y-%m-%d %H:%M}: {value}, n {row.n}, {row.missing} missing"
        + (f"; alarm: {incident.text}" if incident else ""),
        kind="worse" if incident or row.outcome == "violated" else "",
        alike=(row.evaluator_version,),
        href=site.links.incident(incident.incident_id) if incident else None,
    )


def _by_metric(found: Sequence[WindowFigures], size: Size, site: Site, known: Sequence[Incident]) -> list[_Metric]:
    by_metric = grouped(((window.metric, window.slice), window) for window in found)
    alarms = {(incident.metric, incident.slice, incident.window_start): incident for incident in known}
    return [
        _Metric(
            metric=metric,
            slice=sliced,
            windows=[(row, _mean(row)) for row in reversed(rows)],
            points=[_window(site, row, size, alarms.get((metric, sliced, row.window_start))) for row in rows],
        )
        for (metric, sliced), rows in by_metric.items()
    ]


def _window(site: Site, window: WindowFigures, size: Size, incident: Incident | None) -> Point:
    at = f"{window.window_start:%Y-%m-%d}" if size == "day" else f"{window.window_start:%Y-%m-%d %H:%M}"
    return Point(
        at=window.window_start,
        value=window.mean,
        low=window.ci_low,
        high=window.ci_high,
        title=f"{at}: {_mean(window)}, n {window.n}, {window.missing} missing" + ("; alarm" if incident else ""),
        kind="worse" if incident else "",
        href=site.links.incident(incident.incident_id) if incident else None,
    )


def _mean(window: WindowFigures) -> str:
    return estimate_text(window.mean, window.ci_low, window.ci_high, window.metric)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """One observation in its tree."""

    view: ObservationView
    depth: int
    verdicts: Sequence[Verdict]


def traces_page(site: Site, query: Query) -> Page:
    """Return the newest traces that meet a condition on the columns of the view traces.

    A condition is SQL, so it is run only if a page of ours sent it.
    """
    # Reading all days to show the newest traces would take seconds and gigabytes.
    where, since = query.text("where"), query.text("since") or last_owner(site.store, "observations")
    text, session = query.text("q"), query.text("session")
    said = f"contains({_TEXTS}, {quoted(text.lower())})" if text else None
    only = _all_of(where, said, f"session_id = {quoted(session)}" if session else None)
    limit = query.number("limit", IN_PAGE, MOST)
    proofs = site.links.proofs
    is_proved = where is None or (proofs is not None and proofs.hold(query.text(PROOF), where))
    rows = partial(site.queries.rows, stop=site.stop) if site.queries and where else None
    traces = traces_with_texts(site.store, only, day_in(since), limit, rows) if is_proved else []
    scores = grouped((score.trace_id, score) for score in scores_of_traces(site.store, traces))
    if session:
        traces.reverse()
    body = render(
        "traces.html",
        site,
        traces=traces,
        scores={trace: {score.metric: score for score in some} for trace, some in scores.items()},
        metrics=sorted({score.metric for some in scores.values() for score in some})[:MOST_METRICS],
        texts=_texts,
        narrowed=lambda condition: site.links.traces(_all_of(only, condition), since),
        sql=quoted,
        conversation=lambda trace: site.links.page("production", "traces", session=trace.session_id, since=since),
        text=text,
        session=session,
        as_json=captured_json,
        where=where,
        is_proved=is_proved,
        proof=PROOF,
        since=since,
        limit=limit,
        most=MOST,
        command=_command(only, since),
        condition=only,
    )
    return Page(title=f"Session {session}" if session else "Traces", section="production", body=body)


def _all_of(*conditions: str | None) -> str | None:
    """Return that all conditions hold, in SQL; None without any."""
    wanted = [condition for condition in conditions if condition]
    if len(wanted) < 2:
        return next(iter(wanted), None)
    return " and ".join(f"({one})" if re.search(r"\bor\b", one, re.IGNORECASE) else one for one in wanted)


def _texts(trace: TraceWithTexts) -> tuple[str, str]:
    return asked_and_answered(captured_json(trace.input), captured_json(trace.output))


def asked_and_answered(inputs: str | None, outputs: str | None) -> tuple[str, str]:
    """Return what was asked last and what was answered, of JSON; of what holds no messages, all of it."""
    asked, answer = last_user_text(messages_of(inputs)), answer_text(messages_of(outputs))
    return (
        asked if isinstance(asked, str) else shown_text(inputs),
        answer if isinstance(answer, str) else shown_text(outputs),
    )


def trace_page(site: Site, query: Query) -> Page:
    """Return one trace: its observations with inputs, outputs, tokens, cost, scores and labels."""
    trace = trace_view(observations_of_trace(site.store, query.wanted("id")))
    by_subject = grouped((verdict.subject_id, verdict) for verdict in verdicts_of_trace(site.store, trace.id))
    nodes = [
        _Node(view=view, depth=min(depth, DEEPEST), verdicts=by_subject[f"{trace.id}/{view.id}"])
        for depth, view in in_depth(trace.observations)
    ]
    body = render(
        "trace.html",
        site,
        trace=trace,
        verdicts=by_subject[trace.id],
        nodes=nodes,
        command=_command(f"trace_id = '{trace.id}'", None),
        datasets=dataset_names(site.store),
        json=json_of,
        said=_said,
        tokens=tokens_text,
    )
    return Page(title=f"Trace: {trace.name}", section="production", body=body)


def _command(where: str | None, since: str | None) -> str:
    """Return the command that makes a dataset of such traces."""
    return hints.dataset_from_traces(where, since).command


def json_of(value: Any) -> str | None:
    return None if value is None else json_text(value, default=str)


def captured_json(text: str | None) -> str | None:
    """Return a captured text as JSON: an object or a list that it holds, else the text itself."""
    try:
        return text if text and isinstance(json.loads(text), dict | list) else json_of(text)
    except (ValueError, RecursionError):
        return json_of(text)


def _said(verdict: Verdict) -> str:
    if verdict.value is None and verdict.label is None:
        return verdict.problem or "no value"
    return label_text(verdict.value, verdict.label, None)


def day_in(text: str | None) -> datetime | None:
    return moment_in("since", text, "a day such as 2026-11-01")
