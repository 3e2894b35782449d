"""pass@k and pass^k, against every subset of the trials."""

from itertools import combinations
from math import comb

import pytest

from evalflows.stats.pass_at_k import pass_at_k, pass_hat_k

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
