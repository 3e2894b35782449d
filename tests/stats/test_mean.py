"""mean_estimate: methods against published values, coverage, and reasons for missing intervals."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalflows.stats import mean_estimate
from evalflows.stats.clusters import clustering_of, degrees_of_freedom
from evalflows.stats.proportions import clopper_pearson_interval
from evalflows.stats.skewness import CORRECTED

STEPS = st.integers(-800, 800).map(lambda steps: steps / 8)  # sums of them are exact
EXAMPLES = st.lists(st.tuples(STEPS, st.sampled_from(["a", "b", "c", None])), max_size=30)


def test_symmetric_values_without_clusters_have_the_t_interval(t_bisected: Callable[[Any, Any], Any]) -> None:
    rng = np.random.default_rng(7)
    halves = [rng.normal(0, rng.exponential() + 0.1, n) for n in rng.integers(2, 50, 50).tolist()]
    samples = [np.concatenate([0.3 + half, 0.3 - half]) for half in halves]  # without skew
    quantiles = t_bisected(0.9, [sample.size - 1 for sample in samples])
    for sample, quantile in zip(samples, quantiles, strict=True):
        result, half = mean_estimate(sample, confidence_level=0.9), quantile * sample.std(ddof=1) / sample.size**0.5
        assert (result.low, result.high) == pytest.approx((sample.mean() - half, sample.mean() + half), abs=1e-9)
        assert (result.mean, result.method, result.n_clusters) == (pytest.approx(sample.mean()), CORRECTED, None)


def test_clustered_intervals_match_the_sandwich_with_satterthwaite_df(
    t_bisected: Callable[[Any, Any], Any], sandwich_error: Callable[[Any, Sequence[int]], float]
) -> None:
    rng = np.random.default_rng(8)
    clusters = [[0, 0, 1, *rng.integers(0, n // 3, n - 3).tolist()] for n in rng.integers(6, 100, 50).tolist()]
    samples = [rng.normal(size=len(labels)) + rng.normal(size=len(labels))[labels] for labels in clusters]
    df = [
        degrees_of_freedom(sample, clustering_of(labels, len(labels)))
        for sample, labels in zip(samples, clusters, strict=True)
    ]
    quantiles = t_bisected(0.95, df)
    for labels, sample, quantile in zip(clusters, samples, quantiles, strict=True):
        result, error, mean = mean_estimate(sample, labels), sandwich_error(sample, labels), float(sample.mean())
        sums = np.bincount(labels, weights=sample - mean)
        g = np.unique(labels).size
        skewness = np.sum((sums / error / sample.size) ** 3) * g**2 / ((g - 1) * (g - 2)) if g > 2 else 0.0
        x = quantile + abs(skewness) / 6
        longer = x + abs(skewness) * x**2 / 3 + 5 * skewness**2 * x**3 / 27
        below, above = (quantile, longer) if skewness > 0 else (longer, quantile)
        assert (result.low, result.high) == pytest.approx((mean - below * error, mean + above * error), abs=1e-8)
        assert (result.method, result.n_clusters) == (f"cluster-robust {CORRECTED}", len(set(labels)))


def test_binary_values_have_the_wilson_interval() -> None:
    result = mean_estimate([True] * 81 + [False] * 182, binary=True)
    assert (result.low, result.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)  # Newcombe 1998
    assert (result.method, result.mean) == ("wilson", 81 / 263)


def test_exact_gives_clopper_pearson_for_binary_values_without_clusters_only() -> None:
    values = [1] * 24 + [0] * 6
    result, plain = mean_estimate(values, binary=True, exact=True), mean_estimate(values, binary=True)
    assert (result.low, result.high) == clopper_pearson_interval(24, 30, confidence_level=0.95)
    assert result.low is not None and plain.low is not None and result.low < plain.low
    assert (result.method, result.mean, result.reason) == ("clopper-pearson", 0.8, None)
    assert mean_estimate([1], binary=True, exact=True).reason == "1 value: an interval needs at least 2"
    clusters = [k // 3 for k in range(30)]
    for labels, binary in ((clusters, True), (None, False), (clusters, False)):
        assert mean_estimate(values, labels, binary=binary, exact=True) == mean_estimate(values, labels, binary=binary)


def test_intervals_are_longer_on_the_side_of_the_tail() -> None:
    values = np.array([0.1] * 12 + [0.2] * 10 + [0.4] * 5 + [3.0, 0.9, 0.6])
    result, mirrored = mean_estimate(values), mean_estimate(-values)
    half = 2.0452296 * values.std(ddof=1) / 30**0.5  # of 29 degrees of freedom, by tables
    assert result.low == pytest.approx(values.mean() - half, abs=1e-6)
    assert result.high is not None and result.high > values.mean() + 1.3 * half
    assert (mirrored.low, mirrored.high) == pytest.approx((-result.high, -result.low))  # type: ignore[operator]


def test_binary_values_have_an_interval_even_if_all_are_right() -> None:
    result = mean_estimate([1] * 20, binary=True)
    assert (result.low, result.high) == (pytest.approx(1 - 0.1611, abs=5e-5), 1.0)


def test_binary_values_with_clusters_have_wilson_of_the_effective_size(
    t_bisected: Callable[[Any, Any], Any],
    sandwich_error: Callable[[Any, Sequence[int]], float],
    two_added: Callable[..., Any],
) -> None:
    rng = np.random.default_rng(21)
    for _ in range(20):
        clusters = np.repeat(np.arange(12), 4).tolist()
        values = (rng.random(48) < rng.beta(1, 1, 12)[clusters]).astype(float)
        share, t = values.mean(), float(t_bisected(0.95, 11.0))
        more = two_added(values, clusters, (0.0, 1.0), 22.0, 1.0)
        among_more = more.mean * (1 - more.mean) / more.error**2 * 48 / (48 + 2 * more.weight)
        n = min(48.0, share * (1 - share) / sandwich_error(values, clusters) ** 2, among_more)
        result = mean_estimate(values, clusters, binary=True)
        for end in (result.low, result.high):  # where the score test is about to reject
            assert end is not None
            assert abs(share - end) == pytest.approx(t * (end * (1 - end) / n) ** 0.5, abs=1e-9)
        assert result.method == "cluster-robust wilson"


def test_binary_clusters_that_are_all_right_count_at_most_once_each() -> None:
    values, clusters = [1] * 60, [k // 3 for k in range(60)]
    result, alone = mean_estimate(values, clusters, binary=True), mean_estimate(values, binary=True)
    t = 2.0930240544082634  # of 19 degrees of freedom, by tables
    assert result.low is not None and (result.high, result.low < 20 / (20 + t * t)) == (1.0, True)
    # Nothing is known of the clusters' likeness, so that the 0 and the 1 weigh as much as a cluster of 3: 22 of them.
    # p (1 - p) = 21 / 22^2, variance 20 / 19 (21 / 22^3).
    worth = 21 / 22**2 / (20 / 19 * 21 / 22**3) * 20 / 22
    assert result.low == pytest.approx(worth / (worth + t * t), abs=1e-9)
    assert result.low is not None and alone.low is not None and result.low < alone.low


@pytest.mark.parametrize(("n", "clusters"), [(50, None), (100, [k // 2 for k in range(100)])])
def test_equal_values_with_bounds_have_an_interval_from_the_largest_missed_share(n: int, clusters: Any) -> None:
    result = mean_estimate([0.75] * n, clusters, bounds=(0, 1))
    others = 1 - 0.025 ** (1 / 50)
    assert result.low == pytest.approx(0.75 * (1 - others), abs=1e-12)
    assert result.high == pytest.approx(0.75 + 0.25 * others, abs=1e-12)
    assert result.method == ("clopper-pearson" if clusters is None else "clopper-pearson of clusters")
    assert mean_estimate([0.75] * n, clusters, bounds=(0, np.inf)).low is None


def test_bounds_clip_the_interval_and_reject_values_outside() -> None:
    result = mean_estimate([0.0, 0.1, 0.9], bounds=(0, 1))
    assert (result.low, result.high) == (0.0, 1.0)
    with pytest.raises(ValueError, match=r"values\[1\]: got 1.5, wanted 0.0 to 1.0"):
        mean_estimate([0.1, 1.5], bounds=(0, 1))
    with pytest.raises(ValueError, match=r"bounds: got 1\.0 to 0\.0"):
        mean_estimate([0.1, 0.5], bounds=(1, 0))


def test_student_sleep_data_as_published() -> None:
    # Student 1908, the second drug; R's t.test(sleep$extra[11:20])
    result = mean_estimate([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    assert (result.mean, result.low) == pytest.approx((2.33, 0.8976775), abs=5e-7)
    assert result.high is not None and 3.7623225 < result.high < 4.0  # published for t; longer on the side of the tail


@pytest.mark.parametrize(("values", "mean"), [([], None), ([0.25], 0.25)])
@pytest.mark.parametrize("binary", [False, True])
def test_fewer_than_two_have_no_interval(values: list[float], mean: float | None, binary: bool) -> None:
    result = mean_estimate([round(value) for value in values] if binary else values, binary=binary)
    assert result.mean == (mean if mean is None or not binary else 0.0)
    assert (result.low, result.high, result.n) == (None, None, len(values))
    assert result.reason == f"{len(values) or 'no'} value{'' if values else 's'}: an interval needs at least 2"


def test_one_cluster_has_no_interval() -> None:
    result = mean_estimate([0.1, 0.5, 0.6], "aaa")
    assert (result.mean, result.low, result.n_clusters) == (pytest.approx(0.4), None, 1)
    assert result.reason == "all 3 values are in one cluster: an interval needs at least 2 clusters"


def test_equal_values_have_no_interval() -> None:
    result = mean_estimate([0.1] * 12)
    assert (result.mean, result.low, result.high) == (0.1, None, None)
    assert (
        result.reason == "all 12 values are equal: no variation to compute an interval from, and no range is declared"
    )


def test_clusters_with_one_mean_have_no_interval() -> None:
    result = mean_estimate([0, 1, 1, 0], "aabb")
    assert (result.mean, result.low) == (0.5, None)
    assert result.reason == (
        "the mean value of all 2 clusters is the same: no variation to compute an interval from, and no range is"
        " declared"
    )


@pytest.mark.parametrize(("binary", "method"), [(False, CORRECTED), (True, "wilson")])
def test_singleton_clusters_are_counted_but_change_nothing(binary: bool, method: str) -> None:
    values = [0, 1, 1, 0, 1]
    alone, plain = mean_estimate(values, "abcde", binary=binary), mean_estimate(values, binary=binary)
    assert (alone.low, alone.high, alone.method) == (plain.low, plain.high, method)
    assert (alone.n_clusters, plain.n_clusters) == (5, None)
    assert mean_estimate(values, [None] * 5, binary=binary).n_clusters == 5


@pytest.mark.parametrize(
    ("values", "clusters", "settings", "said"),
    [
        ([0.1, float("nan")], None, {}, "values"),
        ([0.1, 0.5], None, {"binary": True}, "wanted 0 or 1"),
        ([[0.1, 0.5]], None, {}, "shape"),
        ([0.1, 0.5], ["a"], {}, "clusters"),
        ([0.1, 0.5], None, {"confidence_level": 95}, "confidence_level"),
    ],
)
def test_bad_input_is_refused(values: Any, clusters: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        mean_estimate(values, clusters, **settings)


def test_t_detects_a_mean_above_one_half_only_if_there_is_one() -> None:
    noise = np.random.default_rng(9).normal(0, 0.1, 30)
    above, level_with_it = mean_estimate(0.6 + noise - noise.mean()), mean_estimate(0.51 + noise - noise.mean())
    assert above.low is not None and above.low > 0.5
    assert level_with_it.low is not None and level_with_it.low < 0.5


def test_wilson_detects_a_share_above_one_half_only_if_there_is_one() -> None:
    above, level_with_it = (mean_estimate(np.arange(50) < yes, binary=True) for yes in (36, 28))
    assert above.low is not None and above.low > 0.5
    assert level_with_it.low is not None and level_with_it.low < 0.5


def test_copies_are_significant_only_without_their_clusters() -> None:
    copies, clusters = [0.4, 0.5, 0.55, 0.6, 0.6] * 10, [*range(5)] * 10
    naive, robust = mean_estimate(copies), mean_estimate(copies, clusters)
    assert naive.low is not None and naive.low > 0.5
    assert robust.low is not None and robust.low < 0.5
    once = mean_estimate(copies[:5])
    assert (robust.low, robust.high) == pytest.approx((once.low, once.high))


def test_clustered_intervals_detect_a_mean_above_one_half() -> None:
    result = mean_estimate([0.6, 0.62, 0.65, 0.7, 0.66, 0.61] * 2, [*range(6)] * 2)
    assert result.low is not None and result.low > 0.5


@settings(deadline=None)
@given(EXAMPLES, st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_examples_does_not_matter(examples: list[Any], clustered: bool, random: Any) -> None:
    shuffled = random.sample(examples, len(examples))
    original, other = (
        mean_estimate([value for value, _ in some], [key for _, key in some] if clustered else None)
        for some in (examples, shuffled)
    )
    assert (original.mean, original.low, original.high) == pytest.approx((other.mean, other.low, other.high), abs=1e-8)
    assert (original.method, original.reason, original.n_clusters) == (other.method, other.reason, other.n_clusters)


@settings(deadline=None)
@given(st.lists(st.floats(-1e200, 1e200), max_size=8), st.floats(0.001, 0.999), st.booleans())
def test_finite_input_gives_finite_floats_without_a_warning(
    assert_plain: Callable[[Any], None], values: list[float], confidence_level: float, clustered: bool
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = mean_estimate(
            values, [k // 2 for k in range(len(values))] if clustered else None, confidence_level=confidence_level
        )
    assert_plain(result)
    assert result.low is None or result.low <= result.mean <= result.high  # type: ignore[operator]


@settings(deadline=None)
@given(st.floats(-1e200, 1e200), st.integers(1, 12), st.booleans())
def test_constant_values_are_their_mean_without_an_interval(
    assert_plain: Callable[[Any], None], value: float, n: int, clustered: bool
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = mean_estimate([value] * n, [k // 2 for k in range(n)] if clustered else None)
    assert_plain(result)
    assert (result.mean, result.low) == (value, None)


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=30), st.booleans(), st.sampled_from([None, 2, 3]))
def test_intervals_widen_with_the_confidence_level(values: list[bool], binary: bool, per_cluster: int | None) -> None:
    clusters = None if per_cluster is None else [k // per_cluster for k in range(len(values))]
    wide, narrow = (
        mean_estimate(values, clusters, confidence_level=confidence_level, binary=binary)
        for confidence_level in (0.99, 0.9)
    )
    assert wide.reason == narrow.reason
    assert wide.low is None or wide.low <= narrow.low <= narrow.high <= wide.high  # type: ignore[operator]


def coverage(draw: Callable[[np.random.Generator], tuple[Any, Any, float]], runs: int, **settings: Any) -> float:
    """Return how often the interval contains the truth; `draw` returns values, clusters and the truth."""
    rng = np.random.default_rng(10)
    hits = 0
    for _ in range(runs):
        values, clusters, truth = draw(rng)
        result = mean_estimate(values, clusters, **settings)
        hits += result.low is not None and result.high is not None and result.low <= truth <= result.high
    return hits / runs


def test_intervals_cover_the_mean_of_a_long_tail() -> None:
    # Without the correction 90.7 %, by simulation.
    assert coverage(lambda rng: (rng.lognormal(size=30).clip(max=10), None, 1.6053), 1500) >= 0.93


@pytest.mark.parametrize("largest", [10, 19])
def test_intervals_cover_a_share_with_rare_failures_in_clusters(largest: int) -> None:
    def draw(rng: np.random.Generator) -> tuple[Any, Any, float]:
        clusters = np.repeat(np.arange(30), rng.integers(20 - largest, largest, 30, endpoint=True))
        alike = rng.random(clusters.size) < 0.3**0.5
        values = np.where(alike, (rng.random(30) < 0.95)[clusters], rng.random(clusters.size) < 0.95)
        return values, clusters.tolist(), 0.95

    assert coverage(draw, 1000, binary=True) >= 0.93  # 82 to 86 % without the two added values


@pytest.mark.parametrize(("n", "runs", "least"), [(30, 1500, 0.92), (100, 3000, 0.94)])
def test_t_covers_the_mean_of_scores(n: int, runs: int, least: float) -> None:
    assert coverage(lambda rng: (rng.beta(4, 2, n), None, 4 / 6), runs) >= least


@pytest.mark.parametrize(("g", "runs", "least"), [(30, 1500, 0.92), (100, 3000, 0.94)])
@pytest.mark.parametrize("binary", [False, True])
def test_intervals_cover_with_clusters_of_one_to_five(g: int, runs: int, least: float, binary: bool) -> None:
    def draw(rng: np.random.Generator) -> tuple[Any, Any, float]:
        clusters = np.repeat(np.arange(g), rng.integers(1, 6, g))
        share = rng.beta(4, 3, g)[clusters]
        values = rng.random(clusters.size) < share if binary else share + rng.normal(0, 0.1, clusters.size)
        return values, clusters.tolist(), 4 / 7

    assert coverage(draw, runs, binary=binary) >= least


@pytest.mark.parametrize("clusters", [None, [k // 3 for k in range(90)]])
def test_the_standard_error_is_that_of_the_interval(
    clusters: Any, sandwich_error: Callable[[Any, Sequence[int]], float]
) -> None:
    rng = np.random.default_rng(41)
    numbers, yes = rng.normal(size=90), rng.random(90) < 0.7
    of_numbers = mean_estimate(numbers, clusters)
    assert of_numbers.standard_error == pytest.approx(sandwich_error(numbers, clusters or range(90)))
    of_yes, wide = mean_estimate(yes, clusters, binary=True), mean_estimate(yes, clusters, binary=True, exact=True)
    assert of_yes.low is not None and of_yes.high is not None and of_yes.standard_error is not None
    assert 2 * 1.98 * of_yes.standard_error == pytest.approx(of_yes.high - of_yes.low, rel=0.05)
    assert (wide.standard_error is None) is (clusters is None), "Clopper and Pearson's interval has none"


def test_the_standard_error_is_missing_with_the_interval_and_above_0_for_equal_values() -> None:
    assert mean_estimate([1.0]).standard_error is None and mean_estimate([1.0, 1.0]).standard_error is None
    always = mean_estimate([1] * 50, binary=True)
    assert always.standard_error == pytest.approx((52 / 54 * 2 / 54 / 54) ** 0.5)
    assert mean_estimate([0.5] * 50, bounds=(0, 1)).standard_error is None, "the interval is exact"


def test_a_rescaled_mean_is_that_of_the_rescaled_values() -> None:
    share = mean_estimate([1, 0, 0, 1, 1, 0, 1], binary=True).rescaled(-1.0, 3.0)
    plain = mean_estimate([1, 0, 0, 1, 1, 0, 1], binary=True)
    assert plain.low is not None and plain.standard_error is not None
    assert (share.mean, share.low) == pytest.approx((-1 + 4 * 4 / 7, -1 + 4 * plain.low))
    assert share.standard_error == pytest.approx(4 * plain.standard_error)
    assert mean_estimate([], binary=True).rescaled(-1.0, 3.0) == mean_estimate([], binary=True)
