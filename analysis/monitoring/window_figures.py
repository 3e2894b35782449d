"""Figures of windows to show: n, mean, interval, failure share, latency and cost, by hour or day and slice."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from evalflows.analysis.monitoring.estimates import sums_of
from evalflows.specs.errors import InputError
from evalflows.specs.trace_evaluation import TraceEvaluationSpec
from evalflows.specs.watching import TRACES, WindowSize
from evalflows.stats.monitoring import window_mean
from evalflows.store.parquet import Store
from evalflows.store.queries.trace_batches import batch_row
from evalflows.store.queries.trace_filter import condition
from evalflows.store.queries.trace_windows import (
    MEASURED_VERSION,
    Window,
    WindowsWanted,
    WindowTraces,
    first_day,
    last_day,
    traces_of_day,
    windows_of_day,
)
from evalflows.store.records import from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFigures:
    """One metric in one window of one slice, and what its traces took."""

    metric: str
    slice: str
    window_start: datetime
    n: int
    missing: int
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    failure_share: float | None
    traces: int | None
    latency_p50_s: float | None
    latency_p95_s: float | None
    cost_usd: float | None


def window_figures(
    store: Store,
    name: str,
    *,
    size: WindowSize,
    dimensions: Collection[str] = (),
    metrics: Collection[str] = (),
    days: int | None = None,
) -> list[WindowFigures]:
    """Return the windows of the last days that a trace evaluation judged, as its newest batch describes it.

    `metrics` are all that its evaluators give, unless some are named. Raise InputError if there is no such evaluation.
    """
    newest = store.query(
        "select batch_id from source.watermarks where name = ? order by recorded_at desc limit 1", [name]
    )
    if not newest:
        known = store.query("select distinct name from source.watermarks order by 1")
        there = ", ".join(one for (one,) in known) or "none yet"
        raise InputError(f"trace evaluation {name!r}: not in {store.layout.root}, wanted one of: {there}")
    row = batch_row(store, newest[0][0])
    spec = TraceEvaluationSpec.model_validate(from_json(row.spec))
    wanted = WindowsWanted(
        evaluation_id=row.evaluation_id,
        scope=row.scope,
        versions=[evaluator["version"] for evaluator in from_json(row.evaluators)],
        condition=condition(spec.filter, spec.scope),
        size=size,
        dimensions=dimensions,
    )
    found = [
        one
        for day in _days(store, row.evaluation_id, days)
        for one in _of_day(windows_of_day(store, wanted, day), traces_of_day(store, wanted, day), spec)
    ]
    return sorted(
        (one for one in found if not metrics or one.metric in metrics),
        key=lambda one: (one.metric, one.slice, one.window_start),
    )


def _days(store: Store, evaluation_id: str, days: int | None) -> Iterator[date]:
    first, last = first_day(store, evaluation_id), last_day(store, evaluation_id)
    if first is None or last is None:
        return
    day = first if days is None else max(first, last - timedelta(days=days - 1))
    while day <= last:
        yield day
        day += timedelta(days=1)


def _of_day(
    windows: Sequence[Window], traces: Sequence[WindowTraces], spec: TraceEvaluationSpec
) -> Iterator[WindowFigures]:
    took = {(one.start, one.slice): one for one in traces}
    values = {(w.start, w.slice, w.metric, w.evaluator_version): w for w in windows if w.of == "value"}
    for window in windows:
        is_measured = window.evaluator_version == MEASURED_VERSION
        if window.of == "value" and not is_measured:
            continue  # the sums of what failed are there too
        if window.metric == TRACES:
            continue
        key = window.start, window.slice, window.metric, window.evaluator_version
        sums = sums_of(values[key]) if key in values else None
        declared = spec.direction(window.metric).range
        bounds = (0.0, 1.0) if declared is None and sums is not None and sums.is_binary else declared
        estimate = None if sums is None else window_mean(sums, bounds=bounds)
        of_traces = took.get((window.start, window.slice))
        yield WindowFigures(
            metric=window.metric,
            slice=window.slice,
            window_start=window.start,
            n=sums.n if sums else 0,
            missing=window.missing,
            mean=estimate.mean if estimate else None,
            ci_low=estimate.low if estimate else None,
            ci_high=estimate.high if estimate else None,
            failure_share=None if is_measured or not window.weight else window.total / window.weight,
            traces=of_traces.traces if of_traces else None,
            latency_p50_s=of_traces.latency_p50_s if of_traces else None,
            latency_p95_s=of_traces.latency_p95_s if of_traces else None,
            cost_usd=of_traces.cost_usd if of_traces else None,
        )
