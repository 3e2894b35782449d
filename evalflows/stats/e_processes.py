"""E-processes on whether a stream has changed: evidence that may be looked at after every value.

Without a change, the values of a stream are exchangeable. A bet on a value pays its weight divided by the mean weight
of all values so far, so that its expectation is 1 in any order of the same values; the product of the bets since a
moment is an e-value against the hypothesis that nothing has changed then. As in an e-detector (Shin, Ramdas and Rinaldo
2022, arXiv 2203.03532) the products from several moments on are averaged, with weights that add up to at most 1. By
Ville's inequality, evidence of at least 1/alpha comes up in at most a share alpha of streams without a change.
"""

# The bound is exact for a single moment, and for weights that do not depend on the values so far if their mean is
# known. Here the mean is estimated; benchmarks/simulation shows how often quiet streams raise an alarm.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalflows.stats.arrays import FloatArray

STAKES = (0.3, 0.8, 2.0)
"""Exponents of the bets, per unit of a feature; each is bet on a rise and on a fall."""

STEP = 25
"""Values between two moments at which a change may have begun."""

HORIZON = 10_000
"""Values for which the bound holds: the weights of all moments among them add up to about 1."""

LARGEST = 500.0
"""Largest logarithm of evidence."""


RESAMPLES = 4_000


class Bets(NamedTuple):
    """Features of some values of a stream, on which is bet."""

    features: Sequence[FloatArray]  # one number per value, in units of which about 1 is a large difference; each (m,)
    places: NDArray[np.int64]  # the numbers of these values in the stream, ascending; (m,)


@dataclass(frozen=True, slots=True)
class StreamEvidence:
    """Evidence that a stream has changed, after each of its values."""

    evidence: FloatArray  # 1 at the start; a change is called at 1/alpha
    alarm: int | None  # the number of the value, from 0, with which it is called; None if it is not
    change: int | None  # the number of the first value after the most likely moment of the change; None without alarm


def stream_evidence(
    n: int, bets: Sequence[Bets], alpha: float, *, begins: Sequence[int] | None = None, at_once: bool = False
) -> StreamEvidence:
    """Return the evidence that a stream of `n` values has changed: the mean of that of several kinds of bets.

    Args:
        n: The number of values.
        bets: What is bet on.
        alpha: The share of streams without a change that may raise an alarm.
        begins: Numbers of the values with which a change may have begun, ascending; default: every STEP values.
        at_once: Whether all of the stream is looked at once, so that no weight is left for moments to come.
    """
    begins = range(0, n, STEP) if begins is None else begins
    weights = 1 / np.arange(1, len(begins) + 1) / (1 + np.log(HORIZON / STEP))
    if at_once:
        weights = np.full(len(begins), 1 / max(1, len(begins)))
    bets = [bet for bet in bets if len(bet.places)]
    if not bets or not len(begins):
        return StreamEvidence(np.ones(n), None, None)
    of_begin, totals = np.zeros((len(begins), n)), [_total_paid(bet) for bet in bets]
    for bet, total in zip(bets, totals, strict=True):
        seen = np.searchsorted(bet.places, np.arange(n), side="right")  # values with features, by the stream's number
        for number, first in enumerate(np.searchsorted(bet.places, begins)):
            won = np.exp(np.minimum(total[first:] - total[first], LARGEST)).mean(axis=1)
            of_begin[number] += won[np.maximum(seen - first, 0)] / len(bets)
    evidence = 1 - weights.sum() + weights @ of_begin
    (alarms,) = np.nonzero(evidence >= 1 / alpha)
    if not len(alarms):
        return StreamEvidence(evidence, None, None)
    alarm = int(alarms[0])
    return StreamEvidence(evidence, alarm, _most_likely(bets, totals, alarm, int(begins[0])))


def _most_likely(bets: Sequence[Bets], totals: Sequence[FloatArray], alarm: int, first: int) -> int:
    """Return the number of the value, not before `first`, since which the bets would have won the most."""
    begins = np.arange(first, alarm + 1)
    won = np.zeros(len(begins))
    for bet, total in zip(bets, totals, strict=True):
        at_end, at_begin = (np.searchsorted(bet.places, places) for places in (alarm + 1, begins))
        won += np.exp(np.minimum(total[at_end] - total[at_begin], LARGEST)).mean(axis=1)
    return first + int(np.argmax(won))


def _total_paid(bets: Bets) -> FloatArray:
    """Return what each bet has paid before each of the m values and after the last, as a logarithm; (m + 1, bets)."""
    features = np.stack(bets.features, axis=1)
    stakes = np.array([*STAKES, *(-stake for stake in STAKES)])
    exponents = (features[:, :, None] * stakes).reshape(len(features), -1)
    seen = np.arange(1, len(features) + 1)[:, None]
    paid = exponents - np.log(np.cumsum(np.exp(exponents), axis=0) / seen)
    return np.vstack([np.zeros(paid.shape[1]), np.cumsum(paid, axis=0)])


def since_last(values: FloatArray, subjects: NDArray[np.int64]) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return by how much each value differs from the last one of the same subject, and the numbers of those values
    that have one before; shapes (m,)."""
    order = np.argsort(subjects, kind="stable")
    again = np.nonzero(subjects[order][1:] == subjects[order][:-1])[0]
    now, before = order[again + 1], order[again]
    in_turn = np.argsort(now)
    return (values[now] - values[before])[in_turn], now[in_turn]


def moved_p_value(before: Sequence[FloatArray], after: Sequence[FloatArray], seed: int) -> float:
    """Return the p-value of a permutation test that two samples are of one distribution.

    The statistic is the largest difference of the features' means, in units of their standard deviation over both.
    `before` and `after` have an array for each feature. See Phipson and Smyth 2010 for p-values of drawn permutations.
    """
    n, both = len(before[0]), np.stack([np.concatenate(sides) for sides in zip(before, after, strict=True)])
    spread = both.std(axis=1, keepdims=True)
    scaled = (both - both.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    count, random = both.shape[1], np.random.default_rng(seed)
    is_before = np.argsort(random.random((RESAMPLES, count)), axis=1) < n
    means = np.abs(is_before @ scaled.T)  # sums: the means of both sides differ by n times a constant
    observed = np.abs(scaled[:, :n].sum(axis=1)).max()
    return float((1 + (means.max(axis=1) >= observed - 1e-9).sum()) / (RESAMPLES + 1))
