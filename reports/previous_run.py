"""The earlier run that an experiment can be held against, and how it did, in one sentence."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from evalflows.reports.figures import figure
from evalflows.reports.names_apart import when
from evalflows.reports.results import conclusion_text
from evalflows.specs.metric_names import MEASURES
from evalflows.store.reasons import ReasonCode
from evalflows.store.records import Conclusion, ExperimentRow, VerdictRow

MOST_METRICS = 3
"""Metrics that the sentence names: those that differ, then the others."""

_ORDER = ("worse", "better", "no_worse", "equivalent", "not_enough_evidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSince:
    """One metric in the previous run and now, over the examples that both scored."""

    metric: str
    previous_mean: float | None
    mean: float | None
    difference: float | None
    ci_low: float | None
    ci_high: float | None
    p_adjusted: float | None
    margin: float | None
    conclusion: Conclusion
    reason_code: ReasonCode | None

    @property
    def text(self) -> str:
        """`contains 0.81 → 0.84, no significant difference`."""
        means = " → ".join(figure(mean, self.metric) for mean in (self.previous_mean, self.mean))
        return f"{self.metric} {means}, {conclusion_text(self.conclusion, self.reason_code, self.margin)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousRun:
    """An earlier run of an experiment's name, and each metric of evaluators since."""

    experiment_id: str
    previous_experiment_id: str
    previous_name: str
    previous_started_at: datetime
    metrics: Sequence[MetricSince]

    def sentence(self, now: datetime | None = None) -> str:
        """Return which run it is, and how the metrics did since."""
        named = sorted(self.metrics, key=lambda one: _ORDER.index(one.conclusion))
        more = len(named) - MOST_METRICS
        shown = [*(one.text for one in named[:MOST_METRICS]), *([f"{more} more"] if more > 0 else [])]
        at = when(self.previous_started_at, now or datetime.now(UTC))
        said = "; ".join(shown) or "no metric of an evaluator is shared"
        return f"against the previous run {self.previous_name} ({at}): {said}"

    @property
    def command(self) -> str:
        """The command that shows everything of the difference."""
        return f"evalflows diff {self.previous_experiment_id} {self.experiment_id}"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sentence": self.sentence(), "command": self.command}


def previous_run(row: ExperimentRow, previous: ExperimentRow, verdicts: Sequence[VerdictRow]) -> PreviousRun:
    """Return the previous run with the verdicts on the difference from it, without those on built-in measures."""
    return PreviousRun(
        experiment_id=row.experiment_id,
        previous_experiment_id=previous.experiment_id,
        previous_name=previous.name,
        previous_started_at=previous.started_at,
        metrics=[
            MetricSince(
                metric=one.metric,
                previous_mean=one.baseline_mean,
                mean=one.candidate_mean,
                difference=one.difference,
                ci_low=one.ci_low,
                ci_high=one.ci_high,
                p_adjusted=one.p_adjusted,
                margin=one.margin,
                conclusion=one.conclusion,
                reason_code=one.reason_code,
            )
            for one in verdicts
            if one.metric not in MEASURES
        ],
    )
