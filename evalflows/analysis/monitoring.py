"""One watch rule on one slice: its looks at windows in order of time, and the incident that it may be in."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np

from evalflows.analysis.monitoring.estimates import (
    LENGTH,
    WINDOWS,
    alarm_threshold,
    default_level,
    estimate_of,
    sums_of,
)
from evalflows.specs.metric import MetricSpec
from evalflows.specs.watching import PREVIOUS, WatchSpec
from evalflows.stats import normal_quantile
from evalflows.stats.mean import MeanEstimate
from evalflows.stats.monitoring import ChangeEvidence, change_evidence, difference_interval, window_mean
from evalflows.store.queries.incidents import Incident
from evalflows.store.queries.trace_windows import Window
from evalflows.store.reasons import ReasonCode
from evalflows.store.records import EstimateRow, derived_id
from evalflows.store.trace_records import WatchedWindowRow, WatchOutcome

RECOVERY = {"hour": 6, "day": 1}
"""Windows in a row that must be good before an incident has recovered."""
PREVIOUS_WITHIN = 7
"""A window counts as the previous one if it is at most so many windows earlier."""


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
        level = self.rule.confidence_level or default_level(self.rule.window, slices)
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
        ends = difference_interval(estimate, before)
        assert ends is not None
        best = ends[1] if self.sign > 0 else -ends[0]  # the least loss that the interval includes, as a gain
        return replace(row, reference=before.mean, outcome="violated" if best < -self.margin else "holds")

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
        place = starts.index(row.window_start) if row.window_start in starts else -1
        if place < 0 or np.isnan(evidence.e_values[place]):
            return replace(row, outcome="not_evaluated", reason_code="learning")
        e_value, level = float(evidence.e_values[place]), self.sign * float(evidence.levels[place])
        half = normal_quantile(row.confidence_level or 0.95) * float(evidence.level_errors[place])
        if e_value < alarm_threshold(self.rule.window, slices):
            return replace(row, reference=self.sign * float(evidence.baselines[place]), evidence=e_value)
        return replace(
            row,
            value=level,
            ci_low=level - half,
            ci_high=level + half,
            standard_error=float(evidence.level_errors[place]),
            reference=self.sign * float(evidence.baselines[place]),
            evidence=e_value,
            since=starts[int(evidence.starts[place])],
            outcome="violated",
        )

    def _gathered(self) -> tuple[list[datetime], ChangeEvidence]:
        """Return the evidence after each window, from the looks so far and the windows that come next."""
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
        evidence = change_evidence(
            self.sign * values,
            sizes,
            variances,
            horizon=28 * WINDOWS[self.rule.window] // 30,
            first=first,
            margin=self.margin,
            width=width,
        )
        return starts, evidence

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
        """Whether a window counts toward recovery: on the right side of the bound, or nearer to before than after."""
        if row.value is None or incident.reference is None or incident.value is None:
            return False
        if self.rule.kind == "failure_share":
            return row.value <= incident.reference
        if self.rule.kind == "threshold":
            return row.value >= incident.reference if self.rule.minimum is not None else row.value <= incident.reference
        return self.sign * row.value >= self.sign * (incident.reference + incident.value) / 2

    def has_recovered(self) -> bool:
        """Whether the last windows since the alarm, as many as it takes, were all good."""
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
    if row.reason_code not in (None, "learning") or (row.n_clusters or row.n) < min_n:
        return None
    return row.window_start, row.value, float(row.n), row.n * row.standard_error**2
