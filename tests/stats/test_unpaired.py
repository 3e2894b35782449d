"""unpaired_difference: two sides of different examples."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stats.clusters import clustering_of, degrees_of_freedom
from stats.mean import cluster_wilson_interval
from stats.proportions import newcombe_interval
from stats.unpaired import unpaired_difference

SIDE = st.lists(st.tuples(st.integers(-80, 80).map(lambda steps: steps / 8), st.sampled_from("abc")), max_size=20)


def test_it_is_welchs_t_of_statsmodels() -> None:
    from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

    rng = np.random.default_rng(50)
    for n, m in rng.integers(2, 60, (50, 2)).tolist():
        ours, theirs = rng.normal(0.3, 2, n), rng.normal(0, 1, m)
        found = unpaired_difference(ours, theirs, method="t")
        compared = CompareMeans(DescrStatsW(ours), DescrStatsW(theirs))
        assert (found.low, found.high) == pytest.approx(compared.tconfint_diff(usevar="unequal"), abs=1e-9)
        assert found.p_value == pytest.approx(compared.ttest_ind(usevar="unequal")[1], abs=1e-9)
        assert found.standard_error == pytest.approx(compared.std_meandiff_separatevar, abs=1e-9)
        assert (found.method, found.n_candidate, found.n_baseline) == ("welch t", n, m)


def test_by_itself_a_tail_on_one_side_is_allowed_for() -> None:
    rng = np.random.default_rng(54)
    tail, even = rng.lognormal(size=30), np.linspace(0, 2, 25)
    for sides in ((tail, even), (even, tail), (tail, tail[:20])):
        found, plain = (unpaired_difference(*sides, method=one) for one in ("auto", "t"))  # type: ignore[arg-type]
        assert found.low is not None and found.high is not None and plain.low is not None and plain.high is not None
        assert found.low <= plain.low and plain.high <= found.high and found.p_value >= plain.p_value  # type: ignore[operator]
        assert (found.method, plain.method) == ("skew-corrected welch t", "welch t")
    found, plain = (unpaired_difference(tail, even, method=one) for one in ("auto", "t"))  # type: ignore[arg-type]
    assert found.low == plain.low and found.high > plain.high + 0.05  # type: ignore[operator]
    found, plain = (unpaired_difference(tail, 1 + tail, method=one) for one in ("auto", "t"))  # type: ignore[arg-type]
    assert (found.low, found.p_value) == pytest.approx((plain.low, plain.p_value))  # two tails alike cancel


def test_shares_are_newcombes_with_fisher() -> None:
    found = unpaired_difference([1] * 56 + [0] * 14, [1] * 48 + [0] * 32, binary=True)
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)  # Newcombe 1998, example (a)
    assert found.low == newcombe_interval(56, 70, 48, 80, level=0.95)[0]
    tea = unpaired_difference([1, 1, 1, 0], [1, 0, 0, 0], binary=True)  # Fisher 1935
    assert (tea.p_value, tea.method) == (pytest.approx(34 / 70), "newcombe; exact fisher")


def test_clusters_of_each_side_are_joined_as_welch_does(
    t_bisected: Callable[[Any, Any], Any], sandwich_error: Callable[[Any, Any], float]
) -> None:
    rng = np.random.default_rng(51)
    for _ in range(10):
        clusters = [np.repeat(np.arange(g), rng.integers(1, 5, g)) + 100 * side for side, g in enumerate((9, 14))]
        values = [rng.normal(size=one.size) + rng.normal(size=200)[one] for one in clusters]
        errors = [sandwich_error(side, one.tolist()) for side, one in zip(values, clusters, strict=True)]
        df = [
            degrees_of_freedom(side, clustering_of(one.tolist(), one.size))
            for side, one in zip(values, clusters, strict=True)
        ]
        error = (errors[0] ** 2 + errors[1] ** 2) ** 0.5
        joined = error**4 / (errors[0] ** 4 / df[0] + errors[1] ** 4 / df[1])
        found = unpaired_difference(*values, clusters[0].tolist(), clusters[1].tolist(), method="t")
        difference, half = values[0].mean() - values[1].mean(), float(t_bisected(0.95, joined)) * error
        assert (found.low, found.high) == pytest.approx((difference - half, difference + half), abs=1e-8)
        assert (found.n_candidate_clusters, found.n_baseline_clusters) == (9, 14)
        assert found.warning == "candidate: 9 clusters: intervals from fewer than 10 may cover less than they say"


def test_shares_with_clusters_join_two_wilsons() -> None:
    ours, theirs = np.array([1.0] * 20), np.array([0.0, 1.0, 0.0, 0.0] * 5)
    clusters = [f"a{k // 2}" for k in range(20)], [f"b{k // 2}" for k in range(20)]
    found = unpaired_difference(ours, theirs, *clusters, binary=True)
    ends = [
        cluster_wilson_interval(side, clustering_of(one, 20), level=0.95)
        for side, one in zip((ours, theirs), clusters, strict=True)
    ]
    assert found.difference == 0.75
    assert found.low == pytest.approx(0.75 - ((1 - ends[0][0]) ** 2 + (ends[1][1] - 0.25) ** 2) ** 0.5)
    assert found.p_value is not None and found.p_value < 0.001 and found.high is not None and found.high <= 1


def test_clusters_on_both_sides_have_neither_interval_nor_p() -> None:
    found = unpaired_difference([1, 2, 3], [2, 4, 5], ["a", "b", None], ["b", "c", None])
    assert (found.low, found.p_value) == (None, None)
    assert found.reason == "1 clusters are on both sides: these are not independent"


def test_mann_whitney_is_by_rank_and_says_of_what() -> None:
    rng = np.random.default_rng(52)
    ours, theirs = rng.normal(1.5, 1, 20), rng.normal(0, 1, 25)
    found = unpaired_difference(ours, theirs, method="mann-whitney")
    assert found.low is not None and found.high is not None and found.shift is not None
    assert 0 < found.low < found.shift < found.high and found.p_value is not None and found.p_value < 0.05
    assert found.method == "hodges-lehmann, of the shift; exact mann-whitney"
    far = unpaired_difference([*range(30), 10_000], [*range(30)], method="mann-whitney")
    assert far.warning is not None and "outside" in far.warning
    none = unpaired_difference(ours - ours.mean(), theirs - theirs.mean(), method="mann-whitney")
    assert none.low is not None and none.high is not None and none.low < 0 < none.high
    few = unpaired_difference([1, 2], [3, 4], method="mann-whitney")
    assert (few.low, few.p_value) == (None, pytest.approx(1 / 3)) and few.reason is not None


def test_it_finds_a_difference_and_does_not_where_there_is_none() -> None:
    rng = np.random.default_rng(53)
    ours, theirs = rng.normal(0, 1, 40), rng.normal(0, 2, 50)
    ours, theirs = ours - ours.mean(), theirs - theirs.mean()
    there, none = unpaired_difference(ours + 1, theirs), unpaired_difference(ours + 0.1, theirs)
    assert there.low is not None and there.low > 0 and there.p_value is not None and there.p_value < 0.05
    assert none.low is not None and none.low < 0 and none.p_value is not None and none.p_value > 0.05


def test_sides_without_spread_have_the_p_of_dealing_anew() -> None:
    found, even = unpaired_difference([1.0] * 4, [0.0] * 3), unpaired_difference([1.0] * 3, [0.0] * 3)
    assert (found.low, found.p_value, even.p_value) == (None, pytest.approx(1 / 35), pytest.approx(2 / 20))
    assert unpaired_difference([1.0] * 3, [1.0] * 3).p_value == 1.0
    assert found.reason == "neither side has any spread: none to reckon an interval from"
    one_side = unpaired_difference([1.0] * 4, [0.0, 0.1, 0.2])
    assert one_side.low is not None and one_side.reason is None


@pytest.mark.parametrize("binary", [False, True])
def test_too_few_say_of_which_side(binary: bool) -> None:
    found = unpaired_difference([1, 0], [1], binary=binary)
    assert (found.low, found.p_value, found.difference) == (None, None, -0.5)
    assert found.reason == "baseline: 1 value: an interval needs at least 2"
    assert unpaired_difference([], [1, 0], binary=binary).difference is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": "wilcoxon"}, "method: got 'wilcoxon'"),
        ({"method": "mann-whitney", "candidate_clusters": "aab"}, "method: got 'mann-whitney' and clusters"),
        ({"candidate_clusters": "a"}, "clusters: got 1"),
        ({"binary": True}, r"baseline\[0\]: got 0.5"),
        ({"level": 2}, "level"),
    ],
)
def test_bad_input_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        unpaired_difference([1, 0, 1], [0.5, 1, 1, 0], **settings)


@settings(deadline=None, max_examples=80)
@given(SIDE, SIDE, st.booleans(), st.sampled_from(["auto", "mann-whitney"]), st.randoms(use_true_random=False))
def test_swapping_flips_order_does_not_matter_and_numbers_are_plain(
    assert_plain: Callable[[Any], None], ours: list[Any], theirs: list[Any], clustered: bool, method: Any, random: Any
) -> None:
    def done(*sides: list[Any]) -> Any:
        values = [[value for value, _ in side] for side in sides]
        keys = [[(key, side is ours_like) for _, key in side] for side in sides]
        return unpaired_difference(*values, *(keys if clustered and method == "auto" else (None, None)), method=method)

    ours_like = ours
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, swapped = done(ours, theirs), done(theirs, ours)
        ours_like = random.sample(ours, len(ours))
        shuffled = done(ours_like, theirs)
    assert_plain(one)
    assert (one.low, one.high, one.p_value) == pytest.approx((shuffled.low, shuffled.high, shuffled.p_value), abs=1e-8)
    flipped = [None if end is None else -end for end in (swapped.high, swapped.low)]
    assert [one.low, one.high] == pytest.approx(flipped, abs=1e-8)
    assert (one.p_value, one.method) == (pytest.approx(swapped.p_value), swapped.method)
