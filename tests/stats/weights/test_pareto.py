"""The Pareto front and its resamples."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.stats.weights import means_of_examples, pareto_front

SMALL = st.integers(1, 3).flatmap(
    lambda criteria: st.lists(
        st.lists(st.integers(0, 3).map(float), min_size=criteria, max_size=criteria), min_size=1, max_size=6
    )
)
NAN = float("nan")


def test_equal_systems_and_rounding_do_not_dominate() -> None:
    assert pareto_front([[0.3, 1.0], [0.3, 1.0]], [True, True]).on_front == (True, True)
    assert pareto_front([[0.1 + 0.2, 1.0], [0.3, 1.0]], [True, True]).on_front == (True, True)


@given(SMALL, st.data())
@settings(max_examples=100)
def test_the_front_matches_the_definition_pair_by_pair(table: list[list[float]], data: Any) -> None:
    higher = data.draw(st.lists(st.booleans(), min_size=len(table[0]), max_size=len(table[0])))
    signed = [[x if up else -x for x, up in zip(row, higher, strict=True)] for row in table]

    def beats(one: list[float], other: list[float]) -> bool:
        pairs = list(zip(one, other, strict=True))
        return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)

    result = pareto_front(table, higher)
    for place, row in enumerate(signed):
        beaten = [other for other in range(len(signed)) if beats(signed[other], row)]
        assert result.on_front[place] == (not beaten)
        dominator = result.dominated_by[place]
        assert (dominator is None) == (not beaten)
        if dominator is not None:
            assert dominator in beaten and result.on_front[dominator]
    assert any(result.on_front)


def test_resamples_give_the_share_on_the_front() -> None:
    """The second system is barely behind by one criterion: on the front of about half of the resamples."""
    rng = np.random.default_rng(0)
    values = np.zeros((3, 2, 200))
    values[0] = 0.5
    values[1, 0], values[1, 1] = 0.5 + rng.normal(0, 0.1, 200), 0.2
    values[1, 0] -= values[1, 0].mean() - 0.4999
    values[2] = 0.1
    means, drawn = means_of_examples(values, resamples=2000)
    result = pareto_front(means, [True, True], resamples=drawn)
    assert result.on_front == (True, False, False) and result.shares is not None
    assert result.shares[0] == 1.0 and result.shares[2] == 0.0
    assert 0.4 < result.shares[1] < 0.6


def test_means_use_the_examples_that_all_systems_have_per_criterion() -> None:
    values = [[[1.0, NAN, 3.0], [1, 2, 3]], [[5.0, 6.0, 7.0], [1, 1, 1]]]
    means, drawn = means_of_examples(values, resamples=100)
    assert means.tolist() == [[2.0, 2.0], [6.0, 1.0]]
    assert drawn is not None and drawn.shape[1:] == (2, 2) and np.isfinite(drawn).all()
    weighed, _ = means_of_examples(values, weights=[[3, 1, 1], [1, 1, 2]])
    assert weighed.tolist() == [[1.5, 2.25], [5.5, 1.0]]


def test_whole_clusters_are_drawn_and_a_single_one_gives_no_resamples() -> None:
    values = np.random.default_rng(1).random((2, 1, 6))
    _, drawn = means_of_examples(values, clusters=["a", "a", "b", "b", None, "c"], resamples=500)
    assert drawn is not None
    groups = [values[:, 0, :2].mean(axis=1), values[:, 0, 2:4].mean(axis=1), values[:, 0, 4], values[:, 0, 5]]
    lowest, highest = np.min(groups, axis=0), np.max(groups, axis=0)
    assert (drawn[:, :, 0].min(axis=0) == pytest.approx(lowest)) and (
        drawn[:, :, 0].max(axis=0) == pytest.approx(highest)
    )
    assert means_of_examples(values, clusters=["a"] * 6)[1] is None
