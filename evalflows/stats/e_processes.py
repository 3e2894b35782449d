"""E-processes on whether a stream has changed: evidence that may be looked at after every value.

Without a change, the values of a stream are exchangeable. A bet on a value pays its weight divided by the mean weight
of all values so far, so that its expectation is 1 in any order of the same values; the product of the bets since a
moment is an e-value against the hypothesis that nothing has changed then. Values of a subject may be compared with
those of the same subject alone. As in an e-detector (Shin, Ramdas and Rinaldo 2022, arXiv 2203.03532) the products from
several moments on are averaged, with weights that add up to at most 1. By Ville's inequality, evidence of at least
1/alpha comes up in at most a share alpha of streams without a change.
"""

# The expectation of 1 is exact after any number of values, and the bound over all of them nearly so, since the mean
# weight is estimated: tests/stats/test_e_processes.py counts the alarms of quiet streams.

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import FloatArray

STAKES = (0.3, 0.8, 2.0)
"""Exponents of the bets, per unit of a feature; each is bet on a rise and on a fall."""

APART = (1.0, 2.0, 4.0)
"""Exponents of the bets on subjects that change in directions of their own."""

STEP = 25
"""Values between two moments at which a change may have begun."""

HORIZON = 10_000
"""Values for which the bound holds: the weights of all moments among them add up to about 1."""

LARGEST = 500.0
"""Largest logarithm of evidence."""


RESAMPLES = 4_000


class Bets(NamedTuple):
    """Features of the values of a stream, on which is bet."""

    features: Sequence[FloatArray]  # one number per value, in units of which about 1 is a large difference; each (n,)
    subjects: NDArray[np.int64] | None = None  # of what each is; given, it is compared with those of its subject alone
    apart: bool = False  # whether some subjects may rise while others fall


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
    moments = np.arange(0, n, STEP) if begins is None else np.asarray(begins, dtype=np.int64)
    weights = 1 / np.arange(1, len(moments) + 1) / (1 + np.log(HORIZON / STEP))
    if at_once:
        weights = np.full(len(moments), 1 / max(1, len(moments)))
    if not n or not len(moments):
        return StreamEvidence(np.ones(n), None, None)
    of_begin = np.mean([_won_apart(bet, moments) if bet.apart else _won(bet, moments) for bet in bets], axis=0)
    evidence = 1 - weights.sum() + weights @ of_begin
    (alarms,) = np.nonzero(evidence >= 1 / alpha)
    if not len(alarms):
        return StreamEvidence(evidence, None, None)
    alarm = int(alarms[0])
    anywhere = np.arange(moments[0], alarm + 1)
    won = np.sum([_won(bet, anywhere, alarm)[:, 0] for bet in bets if not bet.apart], axis=0)
    return StreamEvidence(evidence, alarm, int(anywhere[np.argmax(won)]))


def _won(bet: Bets, begins: NDArray[np.int64], only: int | None = None) -> FloatArray:
    """Return what bets since each moment have won after each value, or after the value `only`; shape (begins, n)."""
    stakes = np.array([*STAKES, *(-stake for stake in STAKES)])
    paid = np.concatenate([_logarithms_paid(feature, stakes, bet.subjects) for feature in bet.features], axis=1)
    total = np.vstack([np.zeros(paid.shape[1]), np.cumsum(paid, axis=0)])
    if only is not None:
        until: FloatArray = np.exp(np.minimum(total[only + 1] - total[begins], LARGEST)).mean(axis=1, keepdims=True)
        return until
    won = np.ones((len(begins), len(paid)))
    for number, begin in enumerate(begins):
        won[number, begin:] = np.exp(np.minimum(total[begin + 1 :] - total[begin], LARGEST)).mean(axis=1)
    return won


def _won_apart(bet: Bets, begins: NDArray[np.int64]) -> FloatArray:
    """Return the same where each subject is bet on with all stakes, and what the subjects win is multiplied."""
    assert bet.subjects is not None
    stakes = np.array([*APART, *(-stake for stake in APART)])
    paid = _logarithms_paid(bet.features[0], stakes, bet.subjects)
    of_subject = np.zeros((len(begins), int(bet.subjects.max()) + 1, len(stakes)))
    logarithm, won = np.zeros(len(begins)), np.ones((len(begins), len(paid)))
    for number, subject in enumerate(bet.subjects):
        begun = int(np.searchsorted(begins, number, side="right"))
        before = of_subject[:begun, subject]
        after = before + paid[number]
        logarithm[:begun] += np.log(np.exp(after).mean(axis=1)) - np.log(np.exp(before).mean(axis=1))
        of_subject[:begun, subject] = after
        won[:begun, number] = np.exp(np.minimum(logarithm[:begun], LARGEST))
    return won


def _logarithms_paid(feature: FloatArray, stakes: FloatArray, subjects: NDArray[np.int64] | None) -> FloatArray:
    """Return what each bet on each value pays, as a logarithm; shape (n, stakes)."""
    order = np.arange(len(feature)) if subjects is None else np.argsort(subjects, kind="stable")
    exponents = feature[order, None] * stakes
    is_first = np.zeros(len(feature), dtype=bool)
    is_first[0] = True
    if subjects is not None:
        is_first[1:] = np.diff(subjects[order]) != 0
    firsts = np.nonzero(is_first)[0][np.cumsum(is_first) - 1]  # the first value of each one's subject
    sums = np.vstack([np.zeros(len(stakes)), np.cumsum(np.exp(exponents), axis=0)])
    seen = np.arange(len(feature)) - firsts + 1
    paid = np.empty_like(exponents)
    paid[order] = exponents - np.log((sums[1:] - sums[firsts]) / seen[:, None])
    return paid


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
