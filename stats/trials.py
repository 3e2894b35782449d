"""Repeated trials of an example: the chance that one of k succeeds, and that all k do."""

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where


def pass_at_k(successes: ArrayLike, trials: ArrayLike, k: int) -> FloatArray:
    """The chance that at least one of `k` trials succeeds, per example: 1 - C(n - c, k) / C(n, k).

    `successes` (c) is of shape (n_examples,), `trials` (n) too, or one number for all; the result is of that shape, 0
    to 1. It is the share of all subsets of k of the n trials that hold a success, hence unbiased (Chen et al. 2021,
    Evaluating Large Language Models Trained on Code, eq. 1). The mean over examples is what is published as pass@k.

    Raises ValueError for k below 1 or above an example's trials, for counts that are not whole or below 0, for more
    successes than trials, and for other shapes.
    """
    good, all_of = _counts(successes, trials, k)
    return 1.0 - _share_of_subsets(all_of - good, all_of, k)


def pass_hat_k(successes: ArrayLike, trials: ArrayLike, k: int) -> FloatArray:
    """The chance that all of `k` trials succeed, per example: C(c, k) / C(n, k), known as pass^k.

    Shapes and errors are those of `pass_at_k`. It is the share of all subsets of k of the n trials in which all
    succeeded, hence unbiased (Yao et al. 2024, tau-bench). With k of 1 both are c / n.
    """
    good, all_of = _counts(successes, trials, k)
    return _share_of_subsets(good, all_of, k)


def _share_of_subsets(among: FloatArray, all_of: FloatArray, k: int) -> FloatArray:
    """C(among, k) / C(all_of, k) as a product of k ratios, each at most 1, so that nothing overflows."""
    share = np.ones_like(among)
    for drawn in range(k):
        share *= np.maximum(among - drawn, 0.0) / (all_of - drawn)
    return share


def _counts(successes: ArrayLike, trials: ArrayLike, k: int) -> tuple[FloatArray, FloatArray]:
    good = finite_vector("successes", successes)
    given = np.asarray(trials, dtype=np.float64)
    all_of = finite_vector("trials", np.full(good.shape, given) if given.ndim == 0 else given)
    if all_of.size != good.size:
        raise ValueError(f"trials: got {all_of.size} counts, wanted as many as the {good.size} of successes")
    for name, counts in (("successes", good), ("trials", all_of)):
        refuse_where(name, counts, (counts < 0) | (counts != np.floor(counts)), "a whole number of at least 0")
    refuse_where("successes", good, good > all_of, "at most as many as there were trials")
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k: got {k!r}, wanted a whole number of at least 1")
    refuse_where("trials", all_of, all_of < k, f"at least k, {k}")
    return good, all_of
