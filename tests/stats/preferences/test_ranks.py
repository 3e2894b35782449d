"""Ranges of ranks."""

import numpy as np

from evalflows.stats.ratings import rank_ranges


def test_entries_far_apart_have_their_rank_and_those_alike_share_a_range() -> None:
    found = rank_ranges([3.0, 0.0, 0.1, -3.0], 0.01 * np.eye(4), df=200)
    assert found == [(1, 1), (2, 3), (2, 3), (4, 4)]


def test_a_covariance_of_ratings_counts_in_their_difference() -> None:
    """Ratings that err together differ more surely than their own errors say."""
    together = np.full((2, 2), 0.99) + 0.01 * np.eye(2)
    assert rank_ranges([0.5, 0.0], together, df=100) == [(1, 1), (2, 2)]
    assert rank_ranges([0.5, 0.0], np.eye(2), df=100) == [(1, 2), (1, 2)]


def test_each_pair_is_tested_as_by_hand() -> None:
    """Holm over three pairs: 0.02 is significant alone, not with two others of 0.03 and 0.9."""
    ratings, errors = np.array([2.3, 0.0, 0.12]), np.eye(3) * 0.5
    assert rank_ranges(ratings, errors, df=1e9) == [(1, 3), (1, 3), (1, 3)]
    assert rank_ranges(ratings, errors, df=1e9, adjustment="none") == [(1, 1), (2, 3), (2, 3)]
