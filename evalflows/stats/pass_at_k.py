"""pass@k and pass^k: at least one, or all, of k tries succeed."""

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, finite_vector, refuse_where


def pass_at_k(successes: ArrayLike, trials: ArrayLike, k: int) -> FloatArray:
    """Return the probability that at least one of `k` trials succeeds, per example: 1 - C(n - c, k) / C(n, k).

    `successes` (c) has the shape (n_examples,); `trials` (n) has the same shape, or is one number for all examples. The
    result has that shape, 0 to 1. It is the share of the subsets of k trials that contain a success, hence unbiased
    (Chen et al. 2021, Evaluating Large Language Models Trained on Code, eq. 1). Its mean over examples is pass@k.

    Raise ValueError for k below 1 or above an example's trials, for counts that are not whole or are below 0, for more
    successes than trials, and for other shapes.
    """
    passed, total = _counts(successes, trials, k)
    return 1.0 - _share_of_subsets(total - passed, total, k)


def pass_hat_k(successes: ArrayLike, trials: ArrayLike, k: int) -> FloatArray:
    """Return the probability that all of `k` trials succeed, per example: C(c, k) / C(n, k), known as pass^k.

    Shapes and errors are those of `pass_at_k`. It is the share of the subsets of k trials in which all succeed, hence
    unbiased (Yao et al. 2024, tau-bench). For k = 1, both are c / n.
    """
    passed, total = _counts(successes, trials, k)
    return _share_of_subsets(passed, total, k)


def _share_of_subsets(part: FloatArray, total: FloatArray, k: int) -> FloatArray:
    """C(part, k) / C(total, k) as a product of k ratios of at most 1, which cannot overflow."""
    share = np.ones_like(part)
    for drawn in range(k):
        share *= np.maximum(part - drawn, 0.0) / (total - drawn)
    return share


def _counts(successes: ArrayLike, trials: ArrayLike, k: int) -> tuple[FloatArray, FloatArray]:
    passed = finite_vector("successes", successes)
    n_trials = np.asarray(trials, dtype=np.float64)
    total = finite_vector("trials", np.full(passed.shape, n_trials) if n_trials.ndim == 0 else n_trials)
    if total.size != passed.size:
        raise ValueError(f"trials: got {total.size} counts, wanted one for each of {passed.size} examples")
    for name, counts in (("successes", passed), ("trials", total)):
        refuse_where(name, counts, (counts < 0) | (counts != np.floor(counts)), "a whole number of at least 0")
    refuse_where("successes", passed, passed > total, "at most the number of trials")
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k: got {k!r}, wanted a whole number of at least 1")
    refuse_where("trials", total, total < k, f"at least k = {k}")
    return passed, total
