"""Watching production: rules look once at each window that has closed, and incidents begin and end.

Their estimates hold the rate of false alarms; the texts of alerts have the figures that a person on call needs.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import numpy as np

from evalflows.analysis.comparability import JUDGE_DRIFT
from evalflows.analysis.figures import estimate_text, figure
from evalflows.analysis.judge_exclusions import Exclusion, by_people
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import ProductionBaseline
from evalflows.specs.grouping import grouped
from evalflows.specs.metrics import MetricSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.specs.watch import ALL, DIMENSIONS, PREVIOUS, TRACES, RuleKind, WatchSpec, WindowSize
from evalflows.stats.means import MeanEstimate
from evalflows.stats.monitoring import (
    MIN_BASELINE,
    ChangeEvidence,
    Variation,
    WindowSums,
    change_evidence,
    difference_interval,
    variation_of,
    window_mean,
)
from evalflows.stats.proportions import normal_quantile
from evalflows.store.described import from_described
from evalflows.store.queries.incidents import (
    Incident,
    event_id,
    experiment_mean,
    incidents,
    looks_since,
    watched_until,
    write_event,
)
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.queries.traces import batch_row, condition
from evalflows.store.queries.windows import (
    MEASURED_VERSION,
    Window,
    WindowsWanted,
    WindowTraces,
    days_with_windows,
    first_day,
    last_day,
    traces_of_day,
    windows_of_day,
)
from evalflows.store.records import CheckRow, EstimateRow, Reason, ReasonCode, dependent_id, derived_id, from_json
from evalflows.store.store import Store
from evalflows.store.trace_records import AlertRow, WatchedWindowRow, WatchOutcome, WatermarkRow

LENGTH: dict[WindowSize, timedelta] = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
WINDOWS: dict[WindowSize, int] = {"hour": 720, "day": 30}
"""Windows in 30 days."""

FALSE_ALARMS: dict[RuleKind, float] = {"threshold": 0.75, "failure_share": 0.75, "fall": 0.1, "change": 0.2}
"""False alarms that a rule may raise in 30 days, over all its slices, if the truth is at its bound. For a fall that is
every quiet day, so it may raise fewer. With daily windows of one slice, the confidence level of a threshold's interval
is 95 %. The change detector raises fewer than it may: the simulation has at most 0.1."""

RECOVERY = {"hour": 6, "day": 1}
"""Windows in a row that must be good before an incident has recovered."""
PREVIOUS_WITHIN = 7
"""A window counts as the previous one if it is at most so many windows earlier."""

MOST_CHANGED = 8

BEFORE = timedelta(days=7)
"""How long before an incident the items began that those in it are compared with."""

AT_ONCE_DAYS = 7
"""Days of which traces are read at once: planning a query takes longer than reading thousands of them."""

_OF_LOOK = (
    *("evaluation_id", "rule", "kind", "metric", "slice", "evaluator_version", "window_start", "window_end", "since"),
    *("n", "missing", "value", "ci_low", "ci_high", "confidence_level", "reference", "evidence"),
)
_OF_INCIDENT = ("evaluation_id", "name", "rule", "kind", "metric", "slice", "evaluator_version", "reference")

LOOKED_BACK = timedelta(days=28)
"""How far a new rule looks back, and how many days the change detector compares with."""
REMEMBERED = 2 * LOOKED_BACK
"""Looks of so long are read again: the change detector follows changes as long as it compares with."""
CLOSED_AFTER = timedelta(days=7)
"""An incident is closed if no window of its slice had enough traces for so long."""
MOST_SLICES = 50
"""Slices that one rule watches: those with the most traces."""

StreamKey = tuple[str, str]
"""A slice and an evaluator version."""


def default_level(kind: RuleKind, size: WindowSize, slices: int) -> float:
    """Return the confidence level of two-sided intervals of which one side errs FALSE_ALARMS times in 30 days."""
    return 1 - 2 * FALSE_ALARMS[kind] / (WINDOWS[size] * max(1, slices))


def alarm_threshold(size: WindowSize, slices: int) -> float:
    """Return the e-value of an alarm: the number of windows before the first false alarm, on average and at least."""
    return WINDOWS[size] * max(1, slices) / FALSE_ALARMS["change"]


def sums_of(window: Window) -> WindowSums:
    """Return a window's sums for `stats.monitoring`."""
    names = WindowSums.__slots__
    return WindowSums(**{name: getattr(window, name) for name in names})


def estimate_of(row: WatchedWindowRow | EstimateRow, level: float) -> MeanEstimate | None:
    """Return a stored mean with its interval at another level; None if it has none.

    Both halves of the interval are scaled by the ratio of the normal quantiles.
    """
    mean = row.value if isinstance(row, WatchedWindowRow) else row.mean
    if mean is None or row.ci_low is None or row.ci_high is None or row.confidence_level is None:
        return None
    ratio = normal_quantile(level) / normal_quantile(row.confidence_level)
    n = row.n if isinstance(row, WatchedWindowRow) else row.n_examples
    return MeanEstimate(
        mean=mean,
        low=mean - ratio * (mean - row.ci_low),
        high=mean + ratio * (row.ci_high - mean),
        confidence_level=level,
        method="stored",
        n=n,
        n_clusters=row.n_clusters,
        reason=None,
    )


@dataclass(frozen=True, slots=True)
class Span:
    """A time whose windows the change detector does not compare with: an incident."""

    since: datetime
    until: datetime


@dataclass(slots=True, kw_only=True)
class Stream:
    """A rule on one slice, judged by one evaluator version."""

    evaluation_id: str
    rule: WatchSpec
    metric: MetricSpec
    slice: str
    evaluator_version: str
    looks: list[WatchedWindowRow]  # the earlier ones, in order of time
    ended: Sequence[Incident]  # earlier incidents that are over
    incident: Incident | None = None  # the one that is not
    reference: EstimateRow | None = None  # the mean of the experiment that a fall is measured against
    upcoming: Sequence[Window] = ()  # the windows that are looked at next
    doubt: Reason | None = None  # why people's labels reject the judge whose values are watched
    spans: list[Span] = field(default_factory=list)  # of incidents that ended meanwhile
    _evidence: tuple[list[datetime], ChangeEvidence] | None = None

    @property
    def sign(self) -> float:
        return 1.0 if self.metric.higher_is_better else -1.0

    @property
    def margin(self) -> float:
        """The loss that does not matter."""
        if self.rule.kind not in ("fall", "change"):
            return 0.0
        return self.rule.margin if self.rule.margin is not None else self.metric.margin or 0.0

    def look(self, window: Window, slices: int) -> WatchedWindowRow:
        """Look at the next window. `slices` is the number of slices that the rule looks at in it."""
        level = self.rule.confidence_level or default_level(self.rule.kind, self.rule.window, slices)
        bounds = self._bounds(window)
        estimate = window_mean(sums_of(window), confidence_level=level, bounds=bounds)
        row = self._with(window, estimate)
        if window.clusters < self.rule.min_n:
            looked = replace(row, outcome="not_evaluated", reason_code="below_min_examples")
        elif estimate.low is None:
            looked = replace(row, outcome="not_evaluated", reason_code=estimate.reason_code)
        else:
            looked = self._evaluated(row, estimate, slices)
        self.looks.append(looked)
        return looked

    def _bounds(self, window: Window) -> tuple[float, float] | None:
        """Return the range of the values: that of shares, the declared one, or that of yes and no."""
        is_yes_no = self.rule.kind == "failure_share" or (self.metric.range is None and window.is_binary)
        return (0.0, 1.0) if is_yes_no else self.metric.range

    def _with(self, window: Window, estimate: MeanEstimate) -> WatchedWindowRow:
        size = self.rule.window
        identity = (self.evaluation_id, self.rule.title, self.slice, self.evaluator_version, window.start.isoformat())
        return WatchedWindowRow(
            look_id=derived_id("look", *identity),
            period=f"{self.evaluation_id}-{window.start:%Y-%m}",
            evaluation_id=self.evaluation_id,
            rule=self.rule.title,
            kind=self.rule.kind,
            metric=self.rule.metric,
            slice=self.slice,
            evaluator_version=self.evaluator_version,
            size=size,
            window_start=window.start,
            window_end=window.start + LENGTH[size],
            n=window.n,
            missing=window.missing,
            n_clusters=window.clusters if window.clusters < window.n else None,
            value=estimate.mean,
            standard_error=estimate.standard_error,
            ci_low=estimate.low,
            ci_high=estimate.high,
            confidence_level=estimate.confidence_level,
            outcome="holds",
        )

    def _evaluated(self, row: WatchedWindowRow, estimate: MeanEstimate, slices: int) -> WatchedWindowRow:
        if self.rule.kind in ("threshold", "failure_share"):
            return self._against_bound(row, estimate)
        if self.incident is not None:
            outcome: WatchOutcome = "holds" if self.is_good(row, self.incident) else "violated"
            return replace(row, reference=self.incident.reference, outcome=outcome)
        return self._fall(row, estimate) if self.rule.kind == "fall" else self._change(row, slices)

    def _against_bound(self, row: WatchedWindowRow, estimate: MeanEstimate) -> WatchedWindowRow:
        assert estimate.low is not None and estimate.high is not None
        low, high = self.rule.minimum, self.rule.maximum
        is_out = (low is not None and estimate.high < low) or (high is not None and estimate.low > high)
        return replace(row, reference=high if low is None else low, outcome="violated" if is_out else "holds")

    def _fall(self, row: WatchedWindowRow, estimate: MeanEstimate) -> WatchedWindowRow:
        before = self._before(row, estimate.confidence_level)
        if isinstance(before, str):
            return replace(row, outcome="not_evaluated", reason_code=before)
        windows = 2 if self.rule.against in (None, PREVIOUS) else 1  # an experiment is no window
        ends = difference_interval(estimate, before, self.variation(row), windows)
        assert ends is not None
        best = ends[1] if self.sign > 0 else -ends[0]  # the least loss that the interval includes, as a gain
        return replace(row, reference=before.mean, outcome="violated" if best < -self.margin else "holds")

    def variation(self, row: WatchedWindowRow) -> Variation:
        """By how much the windows before a look varied beyond their samples, in the metric's unit.

        Incidents count, since leaving out the worst windows would make the others look alike; what was before one that
        a person closed does not.
        """
        if self.rule.allow_variation is False:
            return Variation()
        oldest = row.window_start - LOOKED_BACK
        for incident in self.ended:
            if incident.ended_code == "closed_by_person":
                oldest = max(oldest, incident.since or incident.window_start)
        points = [point for point in filter(None, map(_point, self.looks)) if oldest <= point[0] < row.window_start]
        if len(points) < MIN_BASELINE:
            return Variation()
        _, means, sizes, variances = zip(*points, strict=True)
        low, high = self.metric.range or (0.0, 1.0)
        is_share = all(0 <= mean <= 1 for mean in means)
        return variation_of(means, sizes, variances, high - low if self.metric.range or is_share else None)

    def _before(self, row: WatchedWindowRow, level: float) -> MeanEstimate | ReasonCode:
        """Return what a fall is measured against, or why there is nothing."""
        if self.rule.against not in (None, PREVIOUS):
            if self.reference is None:
                return "no_reference"
            if self.reference.evaluator_version != self.evaluator_version:
                return "not_comparable"
            return estimate_of(self.reference, level) or "no_interval"
        oldest = row.window_start - PREVIOUS_WITHIN * LENGTH[self.rule.window]
        for earlier in reversed(self.looks):
            if earlier.window_start < oldest:
                break
            if earlier.outcome != "not_evaluated" or earlier.reason_code == "no_reference":
                return estimate_of(earlier, level) or "no_reference"
        return "no_reference"

    def _change(self, row: WatchedWindowRow, slices: int) -> WatchedWindowRow:
        starts, evidence = self._evidence or self._gathered()
        self._evidence = starts, evidence
        index = starts.index(row.window_start) if row.window_start in starts else -1
        if index < 0 or np.isnan(evidence.e_values[index]):
            return replace(row, outcome="not_evaluated", reason_code="learning")
        e_value, level = float(evidence.e_values[index]), float(evidence.levels[index])
        half = normal_quantile(row.confidence_level or 0.95) * float(evidence.level_errors[index])
        if e_value < alarm_threshold(self.rule.window, slices):
            return replace(row, reference=float(evidence.baselines[index]), evidence=e_value)
        return replace(
            row,
            value=level,
            ci_low=level - half,
            ci_high=level + half,
            standard_error=float(evidence.level_errors[index]),
            reference=float(evidence.baselines[index]),
            evidence=e_value,
            since=starts[int(evidence.starts[index])],
            outcome="violated",
        )

    def _gathered(self) -> tuple[list[datetime], ChangeEvidence]:
        """Return the evidence after each window, from the looks so far and the windows that come next.

        Its levels are in the metric's unit.
        """
        spans = [*self._past_spans(), *self.spans]
        points = [*filter(None, map(_point, self.looks)), *filter(None, map(self._next_point, self.upcoming))]
        unique = {start: rest for start, *rest in points if not any(s.since <= start < s.until for s in spans)}
        starts = sorted(unique)
        last_end = max((span.until for span in spans), default=None)
        first = 0 if last_end is None else sum(start < last_end for start in starts)
        values, sizes, variances = np.array([unique[start] for start in starts], dtype=np.float64).reshape(-1, 3).T
        bounds = {self._bounds(window) for window in self.upcoming}
        width = None
        if len(bounds) == 1 and (known := bounds.pop()) is not None:
            width = known[1] - known[0]
        yes_no = all(window.is_binary for window in self.upcoming) and bool(((values >= 0) & (values <= 1)).all())
        shift = 1.0 if yes_no and self.sign < 0 else 0.0  # the share of no, where yes is what is bad
        evidence = change_evidence(
            shift + self.sign * values,
            sizes,
            variances,
            horizon=28 * WINDOWS[self.rule.window] // 30,
            first=first,
            wanted=sum(start < self.upcoming[0].start for start in starts),
            margin=self.margin,
            width=width,
            yes_no=yes_no,
            varies=self.rule.allow_variation is not False,
        )
        levels, baselines = (self.sign * (series - shift) for series in (evidence.levels, evidence.baselines))
        return starts, replace(evidence, levels=levels, baselines=baselines)

    def _past_spans(self) -> list[Span]:
        """Return the times of earlier incidents.

        A person who closes an incident accepts its level, so what was before is left out.
        """
        spans = []
        for incident in self.ended:
            since = incident.since or incident.window_start
            if incident.ended_code == "closed_by_person":
                spans.append(Span(datetime.min.replace(tzinfo=since.tzinfo), since))
            else:
                spans.append(Span(since, incident.ended_window_end or incident.window_end))
        return spans

    def _next_point(self, window: Window) -> Any:
        return _point(self._with(window, window_mean(sums_of(window), bounds=self._bounds(window))), self.rule.min_n)

    def restart(self, span: Span) -> None:
        """Leave out the windows of an incident that has ended."""
        self.spans.append(span)
        self._evidence = None

    def is_good(self, row: WatchedWindowRow, incident: Incident) -> bool:
        """Return whether a window counts toward recovery: on the right side of the bound, or nearer to before than
        after."""
        if row.value is None or incident.reference is None or incident.value is None:
            return False
        if self.rule.kind == "failure_share":
            return row.value <= incident.reference
        if self.rule.kind == "threshold":
            return row.value >= incident.reference if self.rule.minimum is not None else row.value <= incident.reference
        return self.sign * row.value >= self.sign * (incident.reference + incident.value) / 2

    def has_recovered(self) -> bool:
        """Return whether the last windows since the alarm, as many as it takes, were all good."""
        incident = self.incident
        if incident is None:
            return False
        since = [
            row for row in self.looks if row.window_start > incident.window_start and row.outcome != "not_evaluated"
        ]
        last = since[-RECOVERY[self.rule.window] :]
        return len(last) == RECOVERY[self.rule.window] and all(self.is_good(row, incident) for row in last)


def _point(row: WatchedWindowRow, min_n: int = 0) -> tuple[datetime, float, float, float] | None:
    """Return a window for the change detector: its start, mean, size, and the variance of a value. None if too few.

    The look that alarmed holds the mean since the change, so it is left out; so are looks without an interval.
    """
    if row.value is None or row.standard_error is None or (row.outcome == "violated" and row.since is not None):
        return None
    if row.reason_code not in (None, "learning", "no_reference") or (row.n_clusters or row.n) < min_n:
        return None
    return row.window_start, row.value, float(row.n), row.n * row.standard_error**2


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
    row = _newest_batch(store, "name", name)
    if row is None:
        known = store.query("select distinct name from source.watermarks order by 1")
        there = ", ".join(evaluation for (evaluation,) in known) or "none yet"
        raise InputError(f"trace evaluation {name!r}: not in {store.layout.root}, wanted one of: {there}")
    spec = TraceEvaluationSpec.model_validate(from_json(row.spec))
    wanted = _wanted(row, size, dimensions)
    found = [
        window
        for of in _spans(store, row, days)
        for window in _of_days(windows_of_day(store, wanted, *of), traces_of_day(store, wanted, *of), spec)
    ]
    return sorted(
        (window for window in found if not metrics or window.metric in metrics),
        key=lambda window: (window.metric, window.slice, window.window_start),
    )


def _newest_batch(store: Store, column: str, value: str) -> WatermarkRow | None:
    query = f"select batch_id from source.watermarks where {column} = ? order by recorded_at desc limit 1"
    newest = store.query(query, [value])
    return batch_row(store, newest[0][0]) if newest else None


def _wanted(row: WatermarkRow, size: WindowSize, dimensions: Collection[str]) -> WindowsWanted:
    """Return the windows of what an evaluation judged, as a batch of it describes them."""
    spec = TraceEvaluationSpec.model_validate(from_json(row.spec))
    return WindowsWanted(
        evaluation_id=row.evaluation_id,
        scope=row.scope,
        versions=[judge.version for judge in from_described(row.evaluators)],
        condition=condition(spec.filter, spec.scope),
        size=size,
        dimensions=dimensions,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One slice of the items in an incident, and of those in the week before; None where there are none."""

    slice: str
    n: int  # values in the incident
    n_before: int
    share: float  # of the items, 0 to 1
    share_before: float
    mean: float | None
    mean_before: float | None
    of_change: float | None  # its share of the change of the whole mean


def what_changed(store: Store, incident: Incident) -> list[Changed]:
    """Return the slices of an incident's items, those that explain most of the change first; at most MOST_CHANGED, and
    none that all items are in.

    With the shares w and the means m of a slice, and the mean M of the week before, a slice adds
    w (m - M) - w' (m' - M) to the change of the mean, where ' is before. Over the values of one dimension that are
    apart, such as versions, these add up to the change.
    """
    row, start, end = _newest_batch(store, "evaluation_id", incident.evaluation_id), incident.began, incident.window_end
    if row is None:
        return []
    size: WindowSize = "hour" if incident.window_end - incident.window_start < LENGTH["day"] else "day"
    version, metric = incident.evaluator_version or "", incident.metric
    wanted = replace(_wanted(row, size, DIMENSIONS), versions=[version], within=incident.slice, metric=metric)
    sums: defaultdict[str, list[list[float]]] = defaultdict(lambda: [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    of = "failure" if incident.kind == "failure_share" else "value"
    for window in windows_of_day(store, wanted, (start - BEFORE).date(), (end - timedelta(microseconds=1)).date()):
        if (window.evaluator_version, window.of) == (version, of) and start - BEFORE <= window.start < end:
            totals = sums[window.slice][window.start >= start]
            for index, value in enumerate((window.n, window.weight, window.total)):
                totals[index] += value
    (_, weight_before, total_before), (_, weight, total) = sums.pop(ALL, [[0.0] * 3, [0.0] * 3])
    if not weight:
        return []
    before = total_before / weight_before if weight_before else None
    change = None if before is None else total / weight - before
    found = []
    for name, ((n_before, w_before, t_before), (n, w, t)) in sums.items():
        added = None if before is None else (t - w * before) / weight - (t_before - w_before * before) / weight_before
        found.append(
            Changed(
                slice=name,
                n=int(n),
                n_before=int(n_before),
                share=w / weight,
                share_before=w_before / weight_before if weight_before else 0.0,
                mean=t / w if w else None,
                mean_before=t_before / w_before if w_before else None,
                of_change=added / change if added is not None and change else None,
            )
        )
    apart = [entry for entry in found if (entry.share, entry.share_before) != (1.0, 1.0)]
    return sorted(apart, key=lambda entry: (-(entry.of_change or 0.0), -entry.share, entry.slice))[:MOST_CHANGED]


def baseline_before(incident: Incident, changed: Sequence[Changed]) -> ProductionBaseline:
    """Return the week before an incident, as the baseline of a gate: of the version that most items were of then, if
    another one came."""
    versions = [version for version in changed if version.slice.startswith("version=")]
    most = max(versions, key=lambda version: version.share_before, default=None)
    is_replaced = most is not None and most.share < most.share_before and most.n_before > 0
    return ProductionBaseline(
        evaluation=incident.name,
        since=incident.began - BEFORE,
        until=incident.began,
        version=most.slice.partition("=")[2] if most is not None and is_replaced else None,
    )


def _spans(store: Store, row: WatermarkRow, days: int | None) -> Iterator[tuple[date, date]]:
    """Yield the first and the last of some days, until the last judged one; single days of sessions, which have the
    slices of that day's traces."""
    first, last = first_day(store, row.evaluation_id), last_day(store, row.evaluation_id)
    if first is None or last is None:
        return
    day = first if days is None else max(first, last - timedelta(days=days - 1))
    length = timedelta(days=1 if row.scope == "sessions" else AT_ONCE_DAYS)
    while day <= last:
        yield day, min(last, day + length - timedelta(days=1))
        day += length


def _of_days(
    windows: Sequence[Window], traces: Sequence[WindowTraces], spec: TraceEvaluationSpec
) -> Iterator[WindowFigures]:
    took = {(trace.start, trace.slice): trace for trace in traces}
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


def alarm_text(
    rule: WatchSpec, row: WatchedWindowRow, *, margin: float, threshold: float, variation: float = 0.0
) -> str:
    """Return what an alarm says.

    `threshold` is the e-value at which a change alarms; `variation` is that of windows beyond their samples.
    """
    said = {"threshold": _threshold, "failure_share": _failures, "fall": _fall, "change": _change}[rule.kind]
    margin_said = f", margin {figure(margin, rule.metric)}" if margin else ""
    evidence = f", evidence {row.evidence:.3g} (alarm at {threshold:.0f})" if row.evidence is not None else ""
    varied = f" ({row.size}s vary by {figure(variation, rule.metric)} beyond chance)" if variation else ""
    return f"{_slice(row)}{said(rule, row)}{varied}{margin_said}{evidence}; {counts(row)}"


def counts(row: WatchedWindowRow) -> str:
    return f"n {row.n}" + (f", {row.missing} missing" if row.missing and row.kind != "failure_share" else "")


def window_text(start: datetime, size: str) -> str:
    """Return a window in words: its day, or the day and hour."""
    return f"{'on' if size == 'day' else 'at'} {_when(start, size)}"


def _when(start: datetime, size: str) -> str:
    if size == "day":
        return f"{start:%Y-%m-%d}"
    return f"{start:%Y-%m-%d %H:%M}-{start + timedelta(hours=1):%H:%M} UTC"


def _threshold(rule: WatchSpec, row: WatchedWindowRow) -> str:
    side, bound = ("below", rule.minimum) if rule.minimum is not None else ("above", rule.maximum)
    when = window_text(row.window_start, row.size)
    return f"{row.metric} {_value(row)} {when}, {side} {figure(bound, row.metric)}"


def _failures(rule: WatchSpec, row: WatchedWindowRow) -> str:
    when = window_text(row.window_start, row.size)
    return f"{_name(row)} {_value(row)} {when}, above {rule.maximum:.3%}".replace(".000%", "%")


def _fall(rule: WatchSpec, row: WatchedWindowRow) -> str:
    before = "the window before" if rule.against in (None, "previous") else f"experiment {rule.against}"
    when = window_text(row.window_start, row.size)
    return f"{row.metric} {_value(row)} {when}, worse than {figure(row.reference, row.metric)} of {before}"


def _change(rule: WatchSpec, row: WatchedWindowRow) -> str:
    since = _when(row.since, row.size) if row.since else "-"
    return f"{row.metric} {_value(row)} since {since}, worse than {figure(row.reference, row.metric)} before"


def _value(row: WatchedWindowRow) -> str:
    if row.kind == "failure_share":
        value = "-" if row.value is None else f"{row.value:.1%}"
        ends = "" if row.ci_low is None or row.ci_high is None else f" [{row.ci_low:.1%}, {row.ci_high:.1%}]"
        return value + ends
    return estimate_text(row.value, row.ci_low, row.ci_high, row.metric)


def _name(row: WatchedWindowRow) -> str:
    if row.kind != "failure_share":
        return row.metric
    return "failed traces" if row.metric == TRACES else f"failed judgements of {row.metric}"


def _slice(row: WatchedWindowRow) -> str:
    return "" if row.slice == ALL else f"{row.slice}: "


def alarm(name: str, stream: Stream, look: WatchedWindowRow, slices: int) -> AlertRow:
    """Return the alarm of a look. Its incident's id follows from what was looked at."""
    origin = (look.evaluation_id, look.rule, look.slice, look.evaluator_version, look.window_start.isoformat())
    identity = dependent_id("incident", look.window_end, *origin)
    threshold = alarm_threshold(stream.rule.window, slices)
    variation = stream.variation(look).sd if look.kind == "fall" else 0.0
    text = alarm_text(stream.rule, look, margin=stream.margin, threshold=threshold, variation=variation)
    return AlertRow(
        event_id=event_id(identity, "alarm"),
        incident_id=identity,
        name=name,
        event="alarm",
        text=text if stream.doubt is None else f"{text}; {stream.doubt.text}",
        **_taken(look, _OF_LOOK),
    )


def drift_alert(check: CheckRow, evaluation_id: str, name: str) -> AlertRow:
    """Return the alarm of a check that found that a judge has drifted."""
    seen = from_json(check.observed)
    since, until = (datetime.fromisoformat(seen[moment]) for moment in ("since", "seen_at"))
    identity = dependent_id("incident", until, evaluation_id, JUDGE_DRIFT, check.column_name or "", seen["since"])
    return AlertRow(
        event_id=event_id(identity, "alarm"),
        incident_id=identity,
        evaluation_id=evaluation_id,
        name=name,
        rule=f"{JUDGE_DRIFT} {check.column_name}",
        kind=JUDGE_DRIFT,
        metric=check.column_name or "",
        slice=ALL,
        evaluator_version=seen["version"],
        event="alarm",
        window_start=since,
        window_end=max(until, since + timedelta(microseconds=1)),
        since=since,
        n=seen["n_since"],
        value=seen["score"],
        reference=seen["score_before"],
        evidence=seen["evidence"],
        text=check.message or "",
        reason_code=check.reason_code,
        flow_run_id=check.flow_run_id,
    )


def incident_of(event: AlertRow) -> Incident:
    """Return the incident that an alarm begins."""
    assert event.window_start is not None and event.window_end is not None
    names = {field.name for field in fields(Incident)} & {field.name for field in fields(AlertRow)}
    given: dict[str, Any] = {field.name: None for field in fields(Incident)}
    given |= {name: getattr(event, name) for name in names}
    return Incident(**given | {"state": "open", "alarmed_at": event.recorded_at})


def recovered(incident: Incident, look: WatchedWindowRow) -> AlertRow:
    """Return the event with which an incident has recovered."""
    return AlertRow(
        event_id=event_id(incident.incident_id, "recovered"),
        incident_id=incident.incident_id,
        name=incident.name,
        event="recovered",
        text=f"{_slice(look)}{_name(look)} recovered: {_value(look)} {window_text(look.window_start, look.size)}; "
        f"{counts(look)}",
        **(_taken(look, _OF_LOOK) | {"reference": incident.reference, "since": incident.since, "evidence": None}),
    )


def follow(name: str, stream: Stream, slices: int) -> AlertRow | None:
    """Begin an incident if the last look of a stream raised one, or end the one that has recovered."""
    look = stream.looks[-1]
    if stream.incident is None:
        if look.outcome != "violated":
            return None
        event = alarm(name, stream, look, slices)
        stream.incident = incident_of(event)
        return event
    if not stream.has_recovered():
        return None
    incident = stream.incident
    stream.restart(Span(incident.since or incident.window_start, look.window_end))
    stream.incident = None
    return recovered(incident, look)


def closed(
    incident: Incident, code: ReasonCode, why: str, *, until: datetime | None, by: str | None = None
) -> AlertRow:
    """Return the event with which an incident ends without a recovery."""
    return AlertRow(
        event_id=event_id(incident.incident_id, "closed"),
        incident_id=incident.incident_id,
        event="closed",
        window_end=until,
        text=f"{'' if incident.slice == ALL else f'{incident.slice}: '}{incident.metric} closed: {why}",
        reason_code=code,
        acknowledged_by=by,
        **_taken(incident, _OF_INCIDENT),
    )


def acknowledge(store: Store, incident: Incident, *, by: str, note: str | None = None, close: bool = False) -> AlertRow:
    """Write that a person acknowledged an incident, or closes it. Raise InputError if it is over."""
    if incident.is_over:
        raise InputError(
            f"incident {incident.incident_id}: is {incident.state}, wanted an open or acknowledged incident"
        )
    if close:
        row = closed(incident, "closed_by_person", f"by {by}" + (f": {note}" if note else ""), until=None, by=by)
    else:
        row = AlertRow(
            event_id=event_id(incident.incident_id, "acknowledged"),
            incident_id=incident.incident_id,
            event="acknowledged",
            text=f"acknowledged by {by}" + (f": {note}" if note else ""),
            acknowledged_by=by,
            note=note,
            **_taken(incident, _OF_INCIDENT),
        )
    write_event(store, row)
    return row


def _taken(origin: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(origin, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What the rules of an evaluation saw: their looks, all events, and those to send."""

    looks: Sequence[WatchedWindowRow] = ()
    events: Sequence[AlertRow] = ()
    sent: Sequence[AlertRow] = ()


@dataclass(slots=True, kw_only=True)
class Watching:
    """The rules of one trace evaluation at work, up to a moment."""

    store: Store
    evaluation_id: str
    name: str
    spec: TraceEvaluationSpec
    versions: Sequence[str]
    until: datetime  # all that was recorded until then is judged
    rejected: Mapping[tuple[str, str], Exclusion]  # judges that people's labels reject, by version and metric
    looks: list[WatchedWindowRow] = field(default_factory=list)
    events: list[AlertRow] = field(default_factory=list)

    def watched(self) -> Watched:
        known = incidents(self.store, self.name)
        earlier = looks_since(self.store, self.evaluation_id, self.until - REMEMBERED)
        for size in ("hour", "day"):
            rules = [rule for rule in self.spec.watch if rule.window == size]
            if rules:
                begin = {rule.title: self._begin(rule, earlier) for rule in rules}
                windows = self._new_windows(rules, size, begin)
                for rule in rules:
                    of_rule = [incident for incident in known if incident.rule == rule.title]
                    looks = [
                        look for look in earlier if look.rule == rule.title and look.window_start < begin[rule.title]
                    ]
                    self._watch(rule, windows[rule.title], looks, of_rule)
        self._close_removed(known)
        return Watched(looks=self.looks, events=self.events, sent=_sent(self.events, known))

    def _new_windows(
        self, rules: Sequence[WatchSpec], size: WindowSize, begin: Mapping[str, datetime]
    ) -> Mapping[str, list[Window]]:
        """Return the closed windows from the `begin` of each rule on, read a day at a time."""
        found: defaultdict[str, list[Window]] = defaultdict(list)
        wanted = WindowsWanted(
            evaluation_id=self.evaluation_id,
            scope=self.spec.scope,
            versions=self.versions,
            condition=condition(self.spec.filter, self.spec.scope),
            size=size,
            dimensions={entry.partition("=")[0] for rule in rules for entry in rule.slices} - {ALL},
        )
        for day in days_with_windows(self.store, self.evaluation_id, min(begin.values()).date(), self.until.date()):
            for window in windows_of_day(self.store, wanted, day):
                for rule in rules:
                    is_closed = window.start + LENGTH[size] + timedelta(seconds=rule.closes_after_s) <= self.until
                    if is_closed and window.start >= begin[rule.title] and is_watched(rule, window):
                        found[rule.title].append(window)
        return found

    def _begin(self, rule: WatchSpec, earlier: Sequence[WatchedWindowRow]) -> datetime:
        """Return the start of the first window that a rule has not passed.

        The last windows that had too few traces are looked at again if some now have enough, by a lower `min_n`.
        """
        looks = [look for look in earlier if look.rule == rule.title]
        looked_at = [look for look in looks if look.reason_code != "below_min_examples"]
        passed = max((look.window_end for look in looked_at), default=None)
        later = [look for look in looks if passed is None or look.window_start >= passed]
        if not any((look.n_clusters or look.n) >= rule.min_n for look in later):
            passed = max((look.window_end for look in looks), default=None)
        if passed is not None:
            return max(passed, self.until - LOOKED_BACK)
        oldest = (self.until - LOOKED_BACK).replace(hour=0, minute=0, second=0, microsecond=0)
        first = first_day(self.store, self.evaluation_id)
        return oldest if first is None else max(oldest, datetime.combine(first, time(tzinfo=UTC)))

    def _watch(
        self, rule: WatchSpec, windows: Sequence[Window], looks: Sequence[WatchedWindowRow], known: Sequence[Incident]
    ) -> None:
        streams = self._streams(rule, windows, looks, known)
        enough = Counter(
            window.start
            for window in windows
            if window.clusters >= rule.min_n and (window.slice, window.evaluator_version) in streams
        )
        for stream in streams.values():
            for window in stream.upcoming:
                self.looks.append(stream.look(window, enough[window.start]))
                if (event := follow(self.name, stream, enough[window.start])) is not None:
                    self.events.append(event)
            self._close_silent(stream)

    def _streams(
        self, rule: WatchSpec, windows: Sequence[Window], looks: Sequence[WatchedWindowRow], known: Sequence[Incident]
    ) -> Mapping[StreamKey, Stream]:
        """Return the streams of a rule: the slices with the most traces, and those that are in an incident."""
        upcoming = grouped(((window.slice, window.evaluator_version), window) for window in windows)
        largest = sorted(upcoming, key=lambda key: -sum(window.n for window in upcoming[key]))[:MOST_SLICES]
        in_incident = [
            (old.slice, old.evaluator_version or "") for old in known if not old.is_over and self._is_current(old)
        ]
        reference = self._reference(rule) if largest else {}
        return {
            (name, version): Stream(
                evaluation_id=self.evaluation_id,
                rule=rule,
                metric=self.spec.direction(rule.metric),
                slice=name,
                evaluator_version=version,
                looks=[look for look in looks if (look.slice, look.evaluator_version) == (name, version)],
                ended=[old for old in known if old.is_over and (old.slice, old.evaluator_version) == (name, version)],
                incident=next(
                    (old for old in known if not old.is_over and (old.slice, old.evaluator_version) == (name, version)),
                    None,
                ),
                reference=reference.get(version) or next(iter(reference.values()), None),
                upcoming=upcoming[name, version],
                doubt=None if judge is None or rule.kind == "failure_share" else judge.reason,
            )
            for name, version in dict.fromkeys([*largest, *in_incident])
            for judge in [self.rejected.get((version, rule.metric))]
        }

    def _reference(self, rule: WatchSpec) -> dict[str, EstimateRow]:
        """Return the means of the experiment that a fall is measured against, by evaluator version; none if unknown."""
        if rule.against in (None, PREVIOUS):
            return {}
        try:
            (experiment,) = find_experiments(self.store, str(rule.against), just_one=True)
        except InputError:
            return {}  # each look says so: no_reference
        return {row.evaluator_version: row for row in experiment_mean(self.store, experiment, rule.metric)}

    def _close_silent(self, stream: Stream) -> None:
        """Close an incident of a slice that has had too few traces for long: it can neither last nor recover."""
        incident = stream.incident
        if incident is None:
            return
        seen = [look.window_end for look in stream.looks if look.outcome != "not_evaluated"]
        last = max([incident.window_end, *seen])
        if self.until - last > CLOSED_AFTER:
            why = f"no window with {stream.rule.min_n} traces in {CLOSED_AFTER.days} days"
            self.events.append(closed(incident, "no_data", why, until=last))
            stream.incident = None

    def _is_current(self, incident: Incident) -> bool:
        return incident.evaluator_version in self.versions or incident.evaluator_version == MEASURED_VERSION

    def _close_removed(self, known: Sequence[Incident]) -> None:
        """Close the incidents that no rule, or no evaluator, can end any more."""
        titles = {rule.title for rule in self.spec.watch}
        for incident in known:
            reason: tuple[ReasonCode, str] | None = None
            if incident.kind == JUDGE_DRIFT:
                continue  # a person closes it
            if incident.rule not in titles:
                reason = "rule_removed", "its rule is no longer in the spec"
            elif not self._is_current(incident):
                reason = "evaluator_changed", "its evaluator has changed"
            if reason and not incident.is_over:
                self.events.append(closed(incident, *reason, until=incident.window_end))


def is_watched(rule: WatchSpec, window: Window) -> bool:
    """Return whether a rule looks at a window: at its values, or at what failed in it."""
    sums = "failure" if rule.kind == "failure_share" else "value"
    is_since = rule.since is None or window.start.date() >= rule.since
    return is_since and window.of == sums and window.metric == rule.metric and rule.watches(window.slice)


def watch(
    store: Store, evaluation_id: str, spec: TraceEvaluationSpec, versions: Sequence[str], flow_run_id: str | None = None
) -> Watched:
    """Look at the windows of a trace evaluation that have closed since the last time, and write nothing.

    `versions` are those of its evaluators and composites. A window has closed when all that was recorded until its end,
    and some time after it, is judged; see `WatchSpec.late_s`. Raise InputError for a filter that DuckDB rejects.
    """
    until = watched_until(store, evaluation_id)
    if until is None:
        return Watched()
    watching = Watching(
        store=store,
        evaluation_id=evaluation_id,
        name=spec.name,
        spec=spec,
        versions=versions,
        until=until,
        rejected=by_people(store) if spec.watch else {},
    )
    watched = watching.watched()
    return Watched(
        looks=[replace(look, flow_run_id=flow_run_id) for look in watched.looks],
        events=[replace(event, flow_run_id=flow_run_id) for event in watched.events],
        sent=[replace(event, flow_run_id=flow_run_id) for event in watched.sent],
    )


def _sent(events: Sequence[AlertRow], known: Sequence[Incident]) -> list[AlertRow]:
    """Return the events to send: not of incidents that began and ended in windows looked at together, and no alarm of a
    metric and slice of which a person has acknowledged an incident that is not over."""
    before = {incident.incident_id for incident in known}
    ended = {event.incident_id for event in events if event.event != "alarm"}
    silenced = {(incident.metric, incident.slice) for incident in known if incident.state == "acknowledged"}
    return [
        event
        for event in events
        if event.incident_id in before
        or (event.incident_id not in ended and (event.metric, event.slice) not in silenced)
    ]
