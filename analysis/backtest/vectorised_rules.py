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
    """The estimates that a rule tests in each of R replicates, turned so that more is better."""

    worst_case_interval_at: Callable[[float], Ends]  # by confidence level; infinite if there is no interval
    is_known: npt.NDArray[np.bool_]  # whether there is an interval
    p_value: Values
    n: int
    higher_is_better: bool

    def lies_below(self, rule: Rule, confidence_level: float) -> npt.NDArray[np.bool_]:
        return np.asarray(
            self.worst_case_interval_at(confidence_level)[1] < rule.threshold(higher_is_better=self.higher_is_better)
        )


def many_of_difference(
    plain: PairedDifferences, ends: tuple[PairedDifferences, PairedDifferences] | None, *, higher_is_better: bool
) -> ReplicateEstimates:
    """Estimates of differences; `ends` are the worst cases over missing values, None for an unbounded metric."""
    lowest, highest = ends or (plain, plain)
    known = lowest.has_interval & highest.has_interval & (ends is not None)
    is_plain = ends is not None and lowest is plain

    def worst_case_interval_at(confidence_level: float) -> Ends:
        low, high = lowest.interval_at(confidence_level)[0], highest.interval_at(confidence_level)[1]
        low, high = np.where(known, low, -np.inf), np.where(known, high, np.inf)
        if is_plain:
            alike = _are_alike(plain, confidence_level)
            low, high = (np.where(alike, plain.difference, end) for end in (low, high))
        return (low, high) if higher_is_better else (-high, -low)

    return ReplicateEstimates(
        worst_case_interval_at=worst_case_interval_at,
        is_known=known | _are_alike(plain, 0.5) if is_plain else known,
        p_value=plain.p_value if plain.units > 1 else np.zeros_like(plain.p_value),  # none that could disagree
        n=plain.n_pairs if plain.n_clusters is None else plain.n_clusters,
        higher_is_better=higher_is_better,
    )


def without_inference(found: PairedDifferences) -> PairedDifferences:
    """The differences without intervals or p-values."""
    return replace(found, has_interval=np.zeros_like(found.has_interval), units=0)


def _are_alike(found: PairedDifferences, confidence_level: float) -> npt.NDArray[np.bool_]:
    """The vectorised form of `differences.verdicts.are_alike`, for an unbounded metric."""
    units = found.n_pairs if found.n_clusters is None else found.n_clusters
    enough = found.units > 1 and 2.0 ** (1 - units) <= 1 - confidence_level
    return np.asarray(~found.has_interval & (found.error == 0) & enough)


def many_of_one(one: BoundedEstimate, count: int) -> ReplicateEstimates:
    """Repeat one estimate for all replicates."""

    def worst_case_interval_at(confidence_level: float) -> Ends:
        low, high = one.worst_case_interval_at(confidence_level) or (-np.inf, np.inf)
        return np.full(count, low), np.full(count, high)

    return ReplicateEstimates(
        worst_case_interval_at=worst_case_interval_at,
        is_known=np.full(count, one.worst_case_interval_at(0.5) is not None),
        p_value=np.ones(count) if one.p_value is None else np.full(count, one.p_value),
        n=one.n,
        higher_is_better=one.higher_is_better,
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
    alpha, most = (1 - confidence_level) / 2, len(estimates)
    tested = np.array([one.is_known & (one.n >= min_examples) for _, one in estimates])
    rejected = _REJECTED[adjustment](lambda part: _below(estimates, alpha * part) & tested, tested.sum(axis=0), most)
    return [
        _codes(rule, one, rejected[place], confidence_level=confidence_level)
        if one.n >= min_examples
        else np.full(tested.shape[1], OPEN, dtype=np.int8)
        for place, (rule, one) in enumerate(estimates)
    ]


Rejected = npt.NDArray[np.bool_]  # rules by replicates
BelowAt = Callable[[float], Rejected]


def _below(estimates: Sequence[tuple[Rule, ReplicateEstimates]], alpha: float) -> Rejected:
    return np.array([one.lies_below(rule, 1 - 2 * alpha) for rule, one in estimates])


def _by_holm(below: BelowAt, tests: npt.NDArray[np.int_], most: int) -> Rejected:
    parts = [below(1 / max(1, left)) for left in range(most + 1)]
    count = np.zeros_like(tests)
    for _ in range(most + 1):
        chosen = _picked(parts, np.maximum(tests - count, 0))
        count = np.maximum(count, chosen.sum(axis=0))
    return chosen


def _by_benjamini_hochberg(below: BelowAt, tests: npt.NDArray[np.int_], most: int) -> Rejected:
    chosen = np.zeros((most, len(tests)), dtype=bool)
    for of in range(1, most + 1):
        for rank in range(1, of + 1):
            these = below(rank / of)
            chosen |= these & (tests == of) & (these.sum(axis=0) >= rank)
    return chosen


def _unadjusted(below: BelowAt, tests: npt.NDArray[np.int_], most: int) -> Rejected:
    return below(1.0)


def _picked(parts: Sequence[Rejected], which: npt.NDArray[np.int_]) -> Rejected:
    """Select the rejected rules of each replicate at its own significance level."""
    return np.asarray(np.array(parts)[which, :, np.arange(len(which))].T)


_REJECTED: Mapping[Adjustment, Callable[[BelowAt, npt.NDArray[np.int_], int], Rejected]] = {
    "holm": _by_holm,
    "benjamini_hochberg": _by_benjamini_hochberg,
    "none": _unadjusted,
}


def _codes(rule: Rule, one: ReplicateEstimates, rejected: npt.NDArray[np.bool_], *, confidence_level: float) -> Codes:
    met = one.worst_case_interval_at(confidence_level)[0] > rule.threshold(higher_is_better=one.higher_is_better)
    if rule.kind == "superiority" and rule.bound == 0:
        met = met & (one.p_value <= 1 - confidence_level)
    return np.where(rejected, BROKEN, np.where(met, MET, OPEN)).astype(np.int8)
