"""The rules of a stored decision as figures: the estimate, its intervals, and the bound that they are held against."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.analysis.gates.rules import Kind, Outcome, Rule
from evalflows.reports.decisions import Decision
from evalflows.specs.metric_slices import metric_of
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRule:
    """One rule of a decision. All figures are in the metric's own direction."""

    kind: Kind
    metric: str
    outcome: Outcome
    text: str
    is_difference: bool  # from the baseline; else the figures are of the candidate's mean
    higher_is_better: bool
    threshold: float  # where the estimate must lie above, or below if less is better
    value: float | None
    low: float | None
    high: float | None
    worst_case_low: float | None  # with missing values at either extreme; None if it is not known
    worst_case_high: float | None
    n: int | None
    n_missing: int | None
    p_below: float | None
    p_adjusted: float | None

    @property
    def has_worst_case(self) -> bool:
        """Whether missing values widen the interval."""
        worst, plain = (self.worst_case_low, self.worst_case_high), (self.low, self.high)
        return None not in worst and worst != plain and bool(self.n_missing)


def stored_rules(store: Store, decision: Decision) -> list[StoredRule]:
    """Return the rules of a decision, in its order."""
    metrics = [metric_of(rule["metric"]) for rule in decision.rules]
    directions, verdicts = ask(
        store, (_DIRECTIONS, [decision.candidate_experiment_id, metrics]), (_WORST_CASES, [decision.decision_id])
    )
    higher = dict(directions)
    worst = {(rule, metric): (low, high) for rule, metric, low, high in verdicts}
    return [
        _stored(rule, higher.get(metric_of(rule["metric"]), True), worst.get((rule["rule"], rule["metric"])))
        for rule in decision.rules
    ]


def _stored(
    given: Mapping[str, Any], higher_is_better: bool, worst_case: Sequence[float | None] | None
) -> StoredRule:
    rule = Rule(kind=given["rule"], metric=given["metric"], bound=given["bound"])
    threshold = rule.threshold(higher_is_better=higher_is_better)
    low, high = worst_case if worst_case and rule.is_difference else (None, None)
    fields = ("value", "low", "high", "n", "n_missing", "p_below", "p_adjusted")  # decisions of early versions lack some
    return StoredRule(
        kind=rule.kind,
        metric=rule.metric,
        outcome=given["outcome"],
        text=given["text"],
        is_difference=rule.is_difference,
        higher_is_better=higher_is_better,
        threshold=threshold if higher_is_better else -threshold,
        worst_case_low=low,
        worst_case_high=high,
        **{name: given.get(name) for name in fields},
    )


_DIRECTIONS = """
select metric, higher_is_better(e.spec, metric)
from experiments e, (select unnest($2::varchar[]) as metric) m where e.experiment_id = $1
"""

_WORST_CASES = "select rule, metric, worst_case_ci_low, worst_case_ci_high from gate_rules where decision_id = $1"
