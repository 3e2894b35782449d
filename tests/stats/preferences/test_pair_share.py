"""pair_share: effective sizes of pairs with common members, and coverage."""

from itertools import combinations

import numpy as np
import pytest

from evalflows.stats.proportions import normal_quantile, score_interval, wilson_interval
from evalflows.stats.ratings import pair_share


def test_pairs_without_a_common_member_have_the_wilson_interval() -> None:
    result = pair_share([1, 0, 0, 1, 0], [(f"a{i}", f"b{i}") for i in range(5)])
    assert (result.low, result.high) == pytest.approx(wilson_interval(2, 5, confidence_level=0.95))
    assert (result.share, result.n_yes, result.n_pairs) == (0.4, 2, 5)


@pytest.mark.parametrize("k", [2, 3, 10])
def test_all_pairs_of_k_members_are_worth_k_over_2(k: int) -> None:
    pairs = list(combinations(range(k), 2))
    assert pair_share([0] * len(pairs), pairs).high == pytest.approx(score_interval(0, k / 2, normal_quantile(0.95))[1])


def test_no_pairs_give_no_share_and_a_reason() -> None:
    result = pair_share([], [])
    assert (result.share, result.low, result.high, result.reason) == (None, None, None, "no pairs")


@pytest.mark.parametrize(("threshold", "seed"), [(1.0, 1)])
def test_the_interval_covers_the_true_share_of_all_pairs(threshold: float, seed: int) -> None:
    """Return how often one of two values is lower by more than the threshold, in either direction."""
    rng, k = np.random.default_rng(seed), 14
    pairs = list(combinations(range(k), 2))
    first, second = np.array(pairs).T
    differences = rng.normal(size=(200_000, 2)) @ [1, -1]
    truth, covered, plain = float((differences < -threshold).mean()), 0, 0
    for _ in range(400):
        members = rng.normal(size=k)
        yes = members[first] - members[second] < -threshold
        result, naive = pair_share(yes, pairs), wilson_interval(int(yes.sum()), len(pairs), confidence_level=0.95)
        assert result.low is not None and result.high is not None
        covered += result.low <= truth <= result.high
        plain += naive[0] <= truth <= naive[1]
    assert covered >= 0.94 * 400  # at least 95 % expected; three standard errors are 3 %
    assert plain < 0.94 * 400  # treating pairs as independent does not cover
