"""paired_differences: each replicate against paired_difference."""

from typing import Any

import numpy as np
import pytest

from evalflows.stats import linearised, paired_difference
from evalflows.stats.paired_many import paired_differences

R, N = 30, 40
LEVELS = (0.5, 0.95, 0.999)
EVEN = [f"c{place // 4}" for place in range(N)]
UNEVEN: list[str | None] = [None if place < 6 else f"c{int(place**0.5)}" for place in range(N)]


def rows(kind: str, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    ours, theirs = rng.normal(0.6, 0.2, (2, R, N)).clip(0, 1)
    if kind == "numbers":
        return ours, theirs
    if kind == "yes and no":
        return (ours > 0.5).astype(float), (theirs > 0.6).astype(float)
    if kind == "rare yes and no":  # none, one or two differ; all are lost; or clusters gain as much as they lose
        ours, theirs = np.ones((R, N)), np.ones((R, N))
        ours[5:15, 3], ours[10:20, 30], ours[20:25], theirs[25:, 1::2], ours[25:, ::2] = 0.0, 0.0, 0.0, 0.0, 0.0
        return ours, theirs
    ours[: R // 2] = theirs[: R // 2] + 0.1 * (np.arange(R // 2)[:, None] % 3)  # without spread
    return ours, theirs


@pytest.mark.parametrize("clusters", [None, EVEN, UNEVEN], ids=["alone", "even", "uneven"])
@pytest.mark.parametrize("kind", ["numbers", "yes and no", "rare yes and no", "without spread"])
@pytest.mark.parametrize("bounds", [None, (-1.0, 2.0)], ids=["unbounded", "bounded"])
def test_each_replicate_equals_its_paired_difference(kind: str, clusters: Any, bounds: Any) -> None:
    ours, theirs = rows(kind)
    binary = kind.endswith("yes and no")
    result = paired_differences(ours, theirs, clusters, binary=binary, bounds=bounds)
    alone = [
        [
            paired_difference(a, b, clusters, confidence_level=confidence_level, binary=binary, bounds=bounds)
            for confidence_level in LEVELS
        ]
        for a, b in zip(ours, theirs, strict=True)
    ]
    first = [each[0] for each in alone]
    np.testing.assert_allclose(result.difference, np.array([estimate.difference for estimate in first]), atol=1e-12)
    np.testing.assert_allclose(result.p_value, np.array([estimate.p_value for estimate in first]), atol=1e-12)
    assert result.has_interval.tolist() == [estimate.low is not None for estimate in first]
    assert (result.n_pairs, result.n_clusters) == (first[0].n_pairs, first[0].n_clusters)
    for place, confidence_level in enumerate(LEVELS):
        low, high = result.interval_at(confidence_level)
        wanted = [each[place] for each in alone]
        np.testing.assert_allclose(
            low, [-np.inf if estimate.low is None else estimate.low for estimate in wanted], atol=1e-9
        )
        np.testing.assert_allclose(
            high, [np.inf if estimate.high is None else estimate.high for estimate in wanted], atol=1e-9
        )


def test_weights_linearise_the_rows() -> None:
    ours, theirs = rows("numbers")
    weights = np.where(np.arange(N) % 2, 1.0, 5.0)
    result = paired_differences(ours, theirs, EVEN, weights=weights)
    low, high = result.interval_at(0.95)
    for place in range(R):
        alone = paired_difference(linearised(ours[place], weights), linearised(theirs[place], weights), EVEN)
        wanted = (alone.difference, alone.low, alone.high)
        assert (result.difference[place], low[place], high[place]) == pytest.approx(wanted, abs=1e-9)
    same = paired_differences(ours, theirs, weights=np.full(N, 3.0))
    np.testing.assert_array_equal(same.difference, paired_differences(ours, theirs).difference)


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_have_no_interval_and_no_nan(n: int) -> None:
    result = paired_differences(np.ones((3, n)), np.zeros((3, n)))
    assert not result.has_interval.any()
    assert np.isfinite(result.difference).all() and (result.p_value == 1).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"candidate": np.zeros(3)}, "candidate: got shape"),
        ({"baseline": np.full((2, 3), np.nan)}, "baseline.*finite"),
        ({"binary": True, "candidate": np.full((2, 3), 0.5)}, "0 or 1"),
        ({"bounds": (0.0, 1.0), "baseline": np.full((2, 3), 2.0)}, "its bounds"),
        ({"candidate": np.zeros((2, 4))}, "candidate: got shape"),
        ({"weights": [1.0, 1.0]}, "weights: got shape"),
        ({"bounds": (1.0, 0.0)}, "bounds: got"),
        ({"weights": [1.0, 0.0, 1.0]}, "more than 0"),
        ({"clusters": ["a"]}, "clusters: got 1"),
    ],
    ids=lambda one: one if isinstance(one, str) else "-".join(one),
)
def test_bad_pairs_are_refused(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"candidate": np.zeros((2, 3)), "baseline": np.zeros((2, 3))} | change
    with pytest.raises(ValueError, match=said):
        paired_differences(given.pop("candidate"), given.pop("baseline"), **given)


@pytest.mark.parametrize("clusters", [None, EVEN], ids=["alone", "even"])
def test_rescaled_replicates_are_rescaled_pairs(clusters: Any) -> None:
    ours, theirs = rows("yes and no")
    result = paired_differences(ours, theirs, clusters, binary=True).rescaled(8.0)
    lows, highs = result.interval_at(0.9)
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        alone = paired_difference(a, b, clusters, binary=True, confidence_level=0.9).rescaled(-3.0, 5.0)
        found = (result.difference[place], lows[place], highs[place], result.p_value[place])
        assert found == pytest.approx((alone.difference, alone.low, alone.high, alone.p_value))
