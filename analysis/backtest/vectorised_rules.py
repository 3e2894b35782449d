"""The rules of a gate on many replicates at once: the outcomes of `analysis.gates.rules`, without texts or p-values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from evalflows.analysis.gates.rules import BoundedEstimate, Rule
from evalflows.specs.gate import Adjustment
from evalflows.stats.differences.paired_many import PairedDifferences
from evalflows.store.queries.metric_values import Values

Codes = npt.NDArray[np.int8]
OPEN, MET, BROKEN = 0, 1, 2
Ends = tuple[Values, Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateEstimates:
    """The estimates that a rule tests in each of R replicates, negated if less is better."""

    worst_case_interval_at: Callable[[float], Ends]  # by confidence level; infinite without an interval
    is_known: npt.NDArray[np.bool_]  # whether there is an interval
    p_value: Values
    n: int
    higher_is_better: bool

    def lies_below(self, rule: Rule, confidence_level: float) -> npt.NDArray[np.bool_]:
        return np.asarray(
            self.worst_case_interval_at(confidence_level)[1] < rule.threshold(higher_is_better=self.higher_is_better)
        )


def replicate_differences(
    differences: PairedDifferences,
    worst_cases: tuple[PairedDifferences, PairedDifferences] | None,
    *,
    higher_is_better: bool,
) -> ReplicateEstimates:
    """Estimates of differences; `worst_cases` are those with missing values at either extreme, None if unbounded."""
    lowest, highest = worst_cases or (differences, differences)
    is_known = lowest.has_interval & highest.has_interval & (worst_cases is not None)

    def worst_case_interval_at(confidence_level: float) -> Ends:
        low, high = lowest.interval_at(confidence_level)[0], highest.interval_at(confidence_level)[1]
        low, high = np.where(is_known, low, -np.inf), np.where(is_known, high, np.inf)
        return (low, high) if higher_is_better else (-high, -low)

    no_p_value = np.zeros_like(differences.p_value)  # 0 never disagrees with the interval
    return ReplicateEstimates(
        worst_case_interval_at=worst_case_interval_at,
        is_known=is_known,
        p_value=differences.p_value if differences.units > 1 else no_p_value,
        n=differences.n_pairs if differences.n_clusters is None else differences.n_clusters,
        higher_is_better=higher_is_better,
    )


def without_inference(differences: PairedDifferences) -> PairedDifferences:
    """The differences without intervals or p-values."""
    return replace(differences, has_interval=np.zeros_like(differences.has_interval), units=0)


def repeated_estimate(estimate: BoundedEstimate, count: int) -> ReplicateEstimates:
    """The same estimate in all replicates."""

    def worst_case_interval_at(confidence_level: float) -> Ends:
        low, high = estimate.worst_case_interval_at(confidence_level) or (-np.inf, np.inf)
        return np.full(count, low), np.full(count, high)

    return ReplicateEstimates(
        worst_case_interval_at=worst_case_interval_at,
        is_known=np.full(count, estimate.worst_case_interval_at(0.5) is not None),
        p_value=np.ones(count) if estimate.p_value is None else np.full(count, estimate.p_value),
        n=estimate.n,
        higher_is_better=estimate.higher_is_better,
    )


def outcomes(
    estimates: Sequence[tuple[Rule, ReplicateEstimates]],
    *,
    confidence_level: float,
    min_examples: int,
    adjustment: Adjustment,
) -> list[Codes]:
    """OPEN, MET or BROKEN for each rule in each replicate; no rule may be a plain threshold.

    Equal to `rule_results.evaluate_rules`: an adjusted p is at most alpha exactly where the interval at the matching
    level lies below the threshold. That level is alpha / (m - r) for Holm, with r others rejected, and alpha k / m for
    Benjamini and Hochberg.
    """
    if not estimates:
        return []
    alpha, n_rules = (1 - confidence_level) / 2, len(estimates)
    tested = np.array([estimate.is_known & (estimate.n >= min_examples) for _, estimate in estimates])
    rejected = _REJECTED[adjustment](lambda part: _below(estimates, alpha * part) & tested, tested.sum(axis=0), n_rules)
    return [
        _codes(rule, estimate, rejected[number], confidence_level=confidence_level)
        if estimate.n >= min_examples
        else np.full(tested.shape[1], OPEN, dtype=np.int8)
        for number, (rule, estimate) in enumerate(estimates)
    ]


Rejected = npt.NDArray[np.bool_]  # rules by replicates
BelowAt = Callable[[float], Rejected]


def _below(estimates: Sequence[tuple[Rule, ReplicateEstimates]], alpha: float) -> Rejected:
    return np.array([estimate.lies_below(rule, 1 - 2 * alpha) for rule, estimate in estimates])


def _by_holm(below: BelowAt, tests: npt.NDArray[np.int_], n_rules: int) -> Rejected:
    by_level = [below(1 / max(1, n_left)) for n_left in range(n_rules + 1)]
    count = np.zeros_like(tests)
    for _ in range(n_rules + 1):
        chosen = _at_own_level(by_level, np.maximum(tests - count, 0))
        count = np.maximum(count, chosen.sum(axis=0))
    return chosen


def _by_benjamini_hochberg(below: BelowAt, tests: npt.NDArray[np.int_], n_rules: int) -> Rejected:
    chosen = np.zeros((n_rules, len(tests)), dtype=bool)
    for n_tests in range(1, n_rules + 1):
        for rank in range(1, n_tests + 1):
            rejected_at_rank = below(rank / n_tests)
            chosen |= rejected_at_rank & (tests == n_tests) & (rejected_at_rank.sum(axis=0) >= rank)
    return chosen


def _unadjusted(below: BelowAt, tests: npt.NDArray[np.int_], n_rules: int) -> Rejected:
    return below(1.0)


def _at_own_level(parts: Sequence[Rejected], which: npt.NDArray[np.int_]) -> Rejected:
    """Select the rejected rules of each replicate at its own significance level."""
    return np.asarray(np.array(parts)[which, :, np.arange(len(which))].T)


_REJECTED: Mapping[Adjustment, Callable[[BelowAt, npt.NDArray[np.int_], int], Rejected]] = {
    "holm": _by_holm,
    "benjamini_hochberg": _by_benjamini_hochberg,
    "none": _unadjusted,
}


def _codes(
    rule: Rule, estimate: ReplicateEstimates, rejected: npt.NDArray[np.bool_], *, confidence_level: float
) -> Codes:
    met = estimate.worst_case_interval_at(confidence_level)[0] > rule.threshold(
        higher_is_better=estimate.higher_is_better
    )
    if rule.kind == "superiority" and rule.bound == 0:
        met = met & (estimate.p_value <= 1 - confidence_level)
    return np.where(rejected, BROKEN, np.where(met, MET, OPEN)).astype(np.int8)
