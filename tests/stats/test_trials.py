"""pass@k and pass^k, against every subset of the trials."""

from itertools import combinations
from math import comb

import pytest

from evalflows.stats.paired import pass_at_k, pass_hat_k

CASES = [(c, n, k) for n in range(1, 9) for c in range(n + 1) for k in range(1, n + 1)]


@pytest.mark.parametrize("n", range(1, 9))
def test_both_equal_the_shares_of_enumerated_subsets(n: int) -> None:
    for c, _, k in (case for case in CASES if case[1] == n):
        drawn = list(combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k([c], n, k)[0] == pytest.approx(sum(map(any, drawn)) / len(drawn), abs=1e-14)
        assert pass_hat_k([c], n, k)[0] == pytest.approx(sum(map(all, drawn)) / len(drawn), abs=1e-14)


def test_thousands_of_trials_do_not_overflow() -> None:
    exact = [comb(c, 500) / comb(5000, 500) for c in (4999, 4990, 4000)]
    assert pass_hat_k([4999, 4990, 4000], 5000, 500).tolist() == pytest.approx(exact, rel=1e-10)
    assert pass_at_k([1, 10, 1000], 5000, 500).tolist() == pytest.approx([1 - share for share in exact], rel=1e-10)


@pytest.mark.parametrize(
    ("successes", "trials", "k", "says"),
    [
        ([1], 4, 5, r"trials\[0\]: got 4.0, wanted at least k = 5"),
        ([1], 4, 0, "k: got 0, wanted a whole number of at least 1"),
        ([1], 4, 1.5, "k: got 1.5, wanted a whole number"),
        ([5], 4, 1, r"successes\[0\]: got 5.0, wanted at most the number of trials"),
        ([-1], 4, 1, r"successes\[0\]: got -1.0, wanted a whole number of at least 0"),
        ([float("nan")], 4, 1, r"successes\[0\]: got nan, wanted a finite number"),
        ([[1, 2]], 4, 1, r"successes: got shape \(1, 2\)"),
    ],
)
@pytest.mark.parametrize("share", [pass_at_k, pass_hat_k])
def test_impossible_counts_are_refused(share: object, successes: object, trials: object, k: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        share(successes, trials, k)  # type: ignore[operator]
