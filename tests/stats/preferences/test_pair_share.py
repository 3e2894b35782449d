"""pair_share: effective sizes of pairs with common members, and coverage."""

from itertools import combinations

import pytest

from evalflows.stats.proportions import normal_quantile, pair_share, score_interval, wilson_interval


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
