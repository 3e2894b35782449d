"""How often repeated observations of one example differ, and which examples vary more than the others do."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where
from evalflows.stats.multiple_tests import adjusted
from evalflows.stats.proportions import IntervalEstimate, clopper_pearson_interval, special_functions

LARGEST = 0.5
"""The largest probability that two independent draws of one yes/no variable differ: 2 p (1 - p) at p = 1/2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipRate(IntervalEstimate):
    """The probability that two fresh observations of a yes/no value differ."""

    rate: float
    n: int


def flip_rate(yes: ArrayLike, n: ArrayLike, *, confidence_level: float = 0.95) -> FlipRate:
    """Return the flip rate from G groups of observations under unchanged versions: `yes` of `n`, at least 2 in each.

    It is the share of pairs within a group that differ, an unbiased estimate of 2 p (1 - p), at most 1/2. Of one group,
    the interval is that of p (Clopper & Pearson 1934), mapped; of several, whose p may differ, it is that of a share
    of so many pairs as can be formed without using an observation twice.

    Raise ValueError for other shapes, for fewer than 2 observations, and for more yes than these.
    """
    passed, counts = finite_vector("yes", yes), finite_vector("n", n)
    if passed.size != counts.size or not counts.size:
        raise ValueError(f"yes: got {passed.size} counts, wanted one for each of {counts.size} groups, at least one")
    refuse_where("n", counts, counts < 2, "at least 2")
    refuse_where("yes", passed, (passed < 0) | (passed > counts), "0 to n")
    share = float((passed * (counts - passed)).sum() / (counts * (counts - 1) / 2).sum())
    if passed.size == 1:
        ends = clopper_pearson_interval(float(passed[0]), float(counts[0]), confidence_level=confidence_level)
        low, high = sorted(2 * end * (1 - end) for end in ends)
        high = LARGEST if ends[0] <= 0.5 <= ends[1] else high
    else:
        pairs = float((counts // 2).sum())
        low, high = clopper_pearson_interval(share * pairs, pairs, confidence_level=confidence_level)
    rate = min(share, LARGEST)
    return FlipRate(
        rate=rate,
        low=min(low, rate),
        high=max(min(high, LARGEST), rate),
        confidence_level=confidence_level,
        method="clopper-pearson",
        n=int(counts.sum()),
        reason=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Departing:
    """Which of E examples vary more than the others by chance."""

    is_departing: NDArray[np.bool_]
    p_values: FloatArray  # adjusted for all examples


def departing_shares(departures: ArrayLike, n: ArrayLike, *, alpha: float = 0.05) -> Departing:
    """Return the examples of which more observations depart from their usual result than of the others.

    `departures` are the observations that are not the usual result of each of E examples, of `n`: of yes/no values the
    rarer ones. Each is tested against the share of departures of the others by the binomial distribution; p-values are
    adjusted to a false discovery rate of `alpha` (Benjamini & Hochberg 1995). The share is at first the one with which
    as many examples would have as few departures as were seen to, which flaky ones hardly change; then that of the
    examples that do not depart, with one departure added, until no other one does. An example without departures has
    p = 1.

    Raise ValueError for other shapes, and for more departures than observations.
    """
    counts, sizes = finite_vector("departures", departures), finite_vector("n", n)
    if counts.size != sizes.size:
        raise ValueError(f"departures: got {counts.size} counts, wanted one for each of {sizes.size} examples")
    refuse_where("departures", counts, (counts < 0) | (counts > sizes), "0 to n")

    found = np.zeros(counts.size, dtype=bool)
    base = _typical_share(counts, sizes)
    while True:
        tail = special_functions().betainc(np.maximum(counts, 1), sizes - np.maximum(counts, 1) + 1, base)
        p_values = adjusted(np.where(counts > 0, tail, 1.0), "benjamini_hochberg")
        wider = found | (p_values <= alpha)
        if (wider == found).all():
            return Departing(is_departing=found, p_values=p_values)
        found, base = wider, _share(counts[~wider], sizes[~wider])


def _share(departures: FloatArray, n: FloatArray) -> float:
    """Return the share of departures, with one added."""
    return float((departures.sum() + 1) / (n.sum() + 1))


def _typical_share(departures: FloatArray, n: FloatArray) -> float:
    """Return the share of departures with which as many examples are expected to have at most the median's as have;
    at most the plain one."""
    few = np.ceil(n * np.median(departures / n)) if n.size else n
    seen, low, high = (departures <= few).sum(), 1 / (float(n.sum()) + 1), LARGEST
    for _ in range(50 if seen < n.size else 0):
        middle = (low + high) / 2
        expected = special_functions().betaincc(few + 1, np.maximum(n - few, 1), middle).sum()
        low, high = (middle, high) if expected > seen else (low, middle)
    return min(high, _share(departures, n))


def noise_weights(noise: ArrayLike, between: float, typical: float) -> FloatArray:
    """Return the weights, above 0 and at most 1, of E examples whose means vary by chance with variance `noise`.

    Each is (between + typical) / (between + noise): its precision relative to that of an example with `typical` noise,
    if examples differ by `between`, both variances, for other reasons. It is at most 1, so that no example gains.

    Raise ValueError for a variance below 0, and for a `between` that is not above 0.
    """
    own = finite_vector("noise", noise)
    refuse_where("noise", own, own < 0, "at least 0")
    if not (between > 0 and typical >= 0):
        raise ValueError(f"between and typical: got {between!r} and {typical!r}, wanted above 0 and at least 0")
    return np.minimum((between + typical) / (between + own), 1.0)
