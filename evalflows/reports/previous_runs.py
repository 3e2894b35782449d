"""Earlier runs that an experiment can be held against."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from evalflows.analysis.figures import figure
from evalflows.reports.names import at
from evalflows.reports.results import conclusion_text
from evalflows.specs import hints
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES, TRIAL
from evalflows.store.records import Conclusion, ReasonCode
from evalflows.store.store import Store

MOST_METRICS = 3
"""Metrics that the sentence names: those that differ, then the others."""

_ORDER = ("worse", "better", "no_worse", "equivalent", "not_enough_evidence")

_OF_VERDICT = ("metric", "difference", "ci_low", "ci_high", "p_adjusted", "margin", "conclusion", "reason_code")


def earlier_runs(store: Store, experiments: Sequence[str]) -> Mapping[str, str]:
    """Return the newest complete experiment before each of these, by id, if there is one.

    It has the same name, else the same target of a spec of the same name. Trials, experiments of the same run, and
    those without any answer do not count.
    """
    rows = store.query(_EARLIER, [list(experiments), TRIAL])
    return {str(identity): str(earlier) for identity, earlier in rows if earlier is not None}


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
    n_examples: int
    n_shared: int  # examples with the same inputs and references in both
    metrics: Sequence[MetricSince]
    limits: Sequence[str]  # what providers have changed behind the names of judges' models

    @property
    def sentence(self) -> str:
        """Which run it is, and how the metrics did since."""
        named = sorted(self.metrics, key=lambda metric: _ORDER.index(metric.conclusion))
        more = len(named) - MOST_METRICS
        shown = [*(metric.text for metric in named[:MOST_METRICS]), *([f"{more} more"] if more > 0 else [])]
        said = "; ".join(shown) or "no metric of an evaluator is shared"
        is_all = self.n_shared == self.n_examples
        on = "" if is_all else f", on the {self.n_shared} of {self.n_examples} examples that are in both"
        limits = "".join(f"; {limit}" for limit in self.limits)
        return f"against the previous run {self.previous_name} ({at(self.previous_started_at)}){on}: {said}{limits}"

    @property
    def rank(self) -> int:
        """Its place among several runs: those with something worse come first, then those with something better."""
        return min((_ORDER.index(metric.conclusion) for metric in self.metrics), default=len(_ORDER))

    @property
    def command(self) -> str:
        """The command that shows everything of the difference."""
        return hints.diff(self.previous_experiment_id, self.experiment_id).command

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sentence": self.sentence, "command": self.command}


def previous_runs(store: Store, earlier: Iterable[tuple[str, str]]) -> list[PreviousRun]:
    """Return how each experiment did against the earlier run beside it, if they share examples; both are ids.

    Verdicts on built-in measures are left out.
    """
    from evalflows.analysis.diff import judge_changes, verdicts_since  # late: specs are slow to import

    return [
        PreviousRun(
            experiment_id=pair.candidate.experiment_id,
            previous_experiment_id=previous.experiment_id,
            previous_name=previous.name,
            previous_started_at=previous.started_at,
            n_examples=pair.candidate.n_examples,
            n_shared=n_shared,
            metrics=[
                MetricSince(
                    previous_mean=verdict.baseline_mean,
                    mean=verdict.candidate_mean,
                    **{name: getattr(verdict, name) for name in _OF_VERDICT},
                )
                for verdict in verdicts
                if verdict.metric not in MEASURES
            ],
            limits=list(judge_changes(pair).values()),
        )
        for pair, n_shared, verdicts in verdicts_since(store, earlier)
        if (previous := pair.baseline) is not None
    ]


_EARLIER = """
select e.experiment_id,
       arg_max(b.experiment_id, (b.name = e.name, b.started_at, b.experiment_id))
from source.experiments e join source.experiments b
    on b.started_at < e.started_at and b.run_group <> e.run_group and b.state = 'completed'
       and not list_contains(b.tags, $2)
       and b.experiment_id not in (select experiment_id from source.estimates group by all having count(mean) = 0)
       and (b.name = e.name or (b.target = e.target and b.spec ->> 'name' = e.spec ->> 'name'))
where is_one_of(e.experiment_id, $1) and e.state = 'completed'
group by e.experiment_id
"""
