"""pass@k and pass^k, against every subset of the trials."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from evalflows.stats import pass_at_k, pass_hat_k

CASES = [(c, n, k) for n in range(1, 9) for c in range(n + 1) for k in range(1, n + 1)]


@pytest.mark.parametrize("n", range(1, 9))
def test_both_equal_the_shares_of_enumerated_subsets(n: int) -> None:
    for c, _, k in (case for case in CASES if case[1] == n):
        drawn = list(combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k([c], n, k)[0] == pytest.approx(sum(map(any, drawn)) / len(drawn), abs=1e-14)
        assert pass_hat_k([c], n, k)[0] == pytest.approx(sum(map(all, drawn)) / len(drawn), abs=1e-14)


def test_of_two_successes_in_four_trials() -> None:
    assert pass_at_k([2], 4, 2).tolist() == pytest.approx([5 / 6])  # of six pairs, one has no success
    assert pass_hat_k([2], 4, 2).tolist() == pytest.approx([1 / 6])  # and one has no failure


def test_with_k_of_1_both_are_the_share_of_successes() -> None:
    assert pass_at_k([0, 1, 3], [2, 2, 4], 1).tolist() == pytest.approx([0.0, 0.5, 0.75])
    assert pass_hat_k([0, 1, 3], [2, 2, 4], 1).tolist() == pytest.approx([0.0, 0.5, 0.75])


def test_swapping_success_and_failure_swaps_pass_at_k_and_pass_hat_k() -> None:
    for c, n, k in CASES:
        assert pass_at_k([c], n, k)[0] == pytest.approx(1 - pass_hat_k([n - c], n, k)[0])


def test_none_and_all_are_exact() -> None:
    for n in (1, 7, 5000):
        for k in {1, n}:
            assert pass_at_k([0, n], n, k).tolist() == [0.0, 1.0]
            assert pass_hat_k([0, n], n, k).tolist() == [0.0, 1.0]


def test_thousands_of_trials_do_not_overflow() -> None:
    exact = [comb(c, 500) / comb(5000, 500) for c in (4999, 4990, 4000)]
    assert pass_hat_k([4999, 4990, 4000], 5000, 500).tolist() == pytest.approx(exact, rel=1e-10)
    assert pass_at_k([1, 10, 1000], 5000, 500).tolist() == pytest.approx([1 - share for share in exact], rel=1e-10)


def test_both_are_within_0_to_1_and_diverge_with_k() -> None:
    rng = np.random.default_rng(5)
    n = rng.integers(10, 300, 200)
    c = rng.integers(0, n + 1)
    any_of, all_of = ([share(c, n, k) for k in range(1, 11)] for share in (pass_at_k, pass_hat_k))
    assert np.all((np.diff(any_of, axis=0) >= -1e-12) & (np.diff(all_of, axis=0) <= 1e-12))
    assert np.min([any_of, all_of]) >= 0 and np.max([any_of, all_of]) <= 1


def test_no_examples_give_an_empty_result() -> None:
    assert pass_at_k([], 4, 2).shape == pass_hat_k([], [], 2).shape == (0,)


@pytest.mark.parametrize(
    ("successes", "trials", "k", "says"),
    [
        ([1], 4, 5, r"trials\[0\]: got 4.0, wanted at least k = 5"),
        ([1, 1], [4, 2], 3, r"trials\[1\]: got 2.0, wanted at least k = 3"),
        ([1], 4, 0, "k: got 0, wanted a whole number of at least 1"),
        ([1], 4, 1.5, "k: got 1.5, wanted a whole number"),
        ([1], 4, True, "k: got True, wanted a whole number"),
        ([5], 4, 1, r"successes\[0\]: got 5.0, wanted at most the number of trials"),
        ([-1], 4, 1, r"successes\[0\]: got -1.0, wanted a whole number of at least 0"),
        ([0.5], 4, 1, r"successes\[0\]: got 0.5, wanted a whole number"),
        ([float("nan")], 4, 1, r"successes\[0\]: got nan, wanted a finite number"),
        ([1, 2], [4], 1, "trials: got 1 counts, wanted one for each of 2 examples"),
        ([[1, 2]], 4, 1, r"successes: got shape \(1, 2\)"),
    ],
)
@pytest.mark.parametrize("share", [pass_at_k, pass_hat_k])
def test_impossible_counts_are_refused(share: object, successes: object, trials: object, k: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        share(successes, trials, k)  # type: ignore[operator]
