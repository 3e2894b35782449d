"""Flip rates and their intervals, and which examples vary more than the others."""

from itertools import product

import numpy as np
import pytest

from evalflows.stats.flips import LARGEST, departing_shares, flip_rate, noise_weights


def test_the_rate_is_the_share_of_differing_pairs_and_its_interval_covers() -> None:
    for values in ([1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0]):
        pairs = [a != b for (i, a), (j, b) in product(enumerate(values), repeat=2) if i < j]
        assert flip_rate([sum(values)], [len(values)]).rate == pytest.approx(np.mean(pairs))
    rng = np.random.default_rng(0)
    for p, groups in ((0.05, (10,)), (0.5, (20,)), (0.2, (6, 5, 4)), (0.5, (2, 2, 2, 2))):
        counts, true = np.array(groups), 2 * p * (1 - p)
        found = [flip_rate(rng.binomial(counts, p), counts) for _ in range(500)]
        covered = np.mean([one.low - 1e-9 <= true <= one.high + 1e-9 for one in found])  # type: ignore[operator]
        assert covered >= 0.93, (p, groups)
        assert all(one.rate <= LARGEST for one in found)
    for wrong in (([1], [1]), ([3], [2]), ([], []), ([1, 1], [2])):
        with pytest.raises(ValueError, match=r"yes|at least 2"):
            flip_rate(*wrong)


RUNS = 20
"""Of each kind of noise: if a rule named some in a third of the runs, one kind in fifty would pass."""


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1, 0.2])
@pytest.mark.parametrize("n", [3, 8, 20])
def test_ordinary_noise_is_named_seldom_and_flaky_ones_are_found(noise: float, n: int) -> None:
    rng, named, found, false = np.random.default_rng(0), 0, 0, 0
    for _ in range(RUNS):
        steady, flaky = rng.binomial(n, noise, 280), rng.binomial(n, 0.5, 20)
        named += departing_shares(np.minimum(steady, n - steady), np.full(280, n)).is_departing.any()
        both = np.concatenate([flaky, steady])
        departing = departing_shares(np.minimum(both, n - both), np.full(300, n)).is_departing
        found, false = found + departing[:20].sum(), false + departing[20:].sum()
    assert named <= 0.1 * RUNS and false <= 0.07 * max(found, 20)
    if (n, noise) in ((8, 0.0), (20, 0.0), (20, 0.02)):
        assert found >= 0.85 * 20 * RUNS
    assert departing_shares([], []).is_departing.size == 0


def test_what_noise_leaves_of_a_weight() -> None:
    weights = noise_weights([0.0, 0.1, 0.5], between=0.09, typical=0.1)
    assert weights.tolist() == pytest.approx([1, 1, 0.19 / 0.59])
    for wrong in ({"noise": [-0.1], "between": 0.1}, {"noise": [0.1], "between": 0.0}):
        with pytest.raises(ValueError, match="got"):
            noise_weights(typical=0.1, **wrong)
