"""agreement: kappa and its standard error against published figures and the full formula."""

import math
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from evalflows.stats.agreement import agreement


def of_table(table: list[list[int]]) -> tuple[list[int], list[int]]:
    """Return the labels of two raters with this table of counts."""
    cells = [(i, j) for i, row in enumerate(table) for j, count in enumerate(row) for _ in range(count)]
    return [i for i, _ in cells], [j for _, j in cells]


def in_full(ours: list[Any], theirs: list[Any]) -> tuple[float, float]:
    """kappa and its standard error, cell by cell (Fleiss, Cohen & Everitt 1969, eq. 1 and 13)."""
    n, labels = len(ours), sorted({*ours, *theirs})
    p = {
        (i, j): sum((a, b) == (i, j) for a, b in zip(ours, theirs, strict=True)) / n for i, j in product(labels, labels)
    }
    row, column = ({i: sum(side == i for side in sides) / n for i in labels} for sides in (ours, theirs))
    po, pe = sum(p[i, i] for i in labels), sum(row[i] * column[i] for i in labels)
    on = sum(p[i, i] * ((1 - pe) - (column[i] + row[i]) * (1 - po)) ** 2 for i in labels)
    off = sum(p[i, j] * (column[i] + row[j]) ** 2 for i, j in product(labels, labels) if i != j)
    variance = (on + (1 - po) ** 2 * off - (po * pe - 2 * pe + po) ** 2) / (n * (1 - pe) ** 4)
    return (po - pe) / (1 - pe), math.sqrt(max(variance, 0.0))


def test_the_diagnoses_of_fleiss() -> None:
    """Fleiss 1981, chapter 13: 100 diagnoses; kappa 0.68, error 0.087, interval 0.51 to 0.85, of rounded figures."""
    result = agreement(*of_table([[75, 1, 4], [5, 4, 1], [0, 0, 10]]))
    assert (result.share, result.kappa) == pytest.approx((0.89, 0.23 / 0.34), abs=1e-12)
    assert (result.kappa, result.low, result.high) == pytest.approx((0.68, 0.51, 0.85), abs=6e-3)
    assert result.standard_error == pytest.approx(0.087, abs=1e-3)
    assert (result.n, result.n_labels, result.reason) == (100, 3, None)


def test_the_standard_error_matches_the_full_formula() -> None:
    rng = np.random.default_rng(30)
    for _ in range(50):
        n, k = int(rng.integers(5, 80)), int(rng.integers(2, 6))
        ours = rng.integers(0, k, n)
        theirs = np.where(rng.random(n) < 0.6, ours, rng.integers(0, k, n))
        result, (kappa, error) = (
            agreement(ours.tolist(), theirs.tolist(), confidence_level=0.9),
            in_full([*ours], [*theirs]),
        )
        assert result.kappa == pytest.approx(kappa, abs=1e-12)
        if error > 1e-6:
            assert result.standard_error == pytest.approx(error, rel=1e-9)
            half = NormalDist().inv_cdf(0.95) * error
            ends = max(kappa - half, -1.0), min(kappa + half, 1.0)
            assert (result.low, result.high) == pytest.approx(ends, abs=1e-9)


@pytest.mark.parametrize(
    ("ours", "theirs", "clusters", "kappa", "said"),
    [
        ("aabb", "abab", "xxxx", 0.0, "all 4 items are in one cluster"),
        ("aabb" * 20, "aabb" * 20, [*range(40)] * 2, 1.0, "all resamples of 40 clusters give the same kappa"),
        ("a" * 60 + "bb", "a" * 60 + "bb", [*range(30)] * 2 + [30, 30], 1.0, "one label dominates"),
    ],
)
def test_clusters_without_variation_give_no_interval(
    ours: str, theirs: str, clusters: Any, kappa: float, said: str
) -> None:
    result = agreement(ours, theirs, list(clusters))
    assert result.kappa == pytest.approx(kappa)
    assert (result.standard_error, result.low, result.high, result.resamples) == (None, None, None, None)
    assert result.reason is not None and result.reason.startswith(said)


def test_clustered_intervals_cover_and_unclustered_ones_do_not() -> None:
    """Conversations of eight turns, whose turns raters judge all alike or independently: kappa is 0.5."""
    rng, covered, naive = np.random.default_rng(34), 0, 0
    for _ in range(120):
        turns = rng.integers(0, 2, (60, 8))
        same = rng.random((60, 1)) < np.where(rng.random((60, 1)) < 0.5, 1.0, 0.5)  # three quarters, by conversation
        other = np.where(same, turns, 1 - turns)
        sides = turns.ravel().tolist(), other.ravel().tolist()
        result = agreement(*sides, np.repeat(range(60), 8).tolist(), resamples=400)
        plain = agreement(*sides)
        assert result.low is not None and result.high is not None and plain.low is not None and plain.high is not None
        covered += result.low <= 0.5 <= result.high
        naive += plain.low <= 0.5 <= plain.high
    assert covered / 120 >= 0.88
    assert naive / 120 < 0.7


@pytest.mark.parametrize(
    ("ours", "theirs", "share", "kappa", "said"),
    [
        ([], [], None, None, "no items: kappa needs at least 1"),
        ("aaa", "aaa", 1.0, None, "both raters gave all 3 items the same label"),
        ("aab", "aab", 1.0, 1.0, "the standard error of kappa over 3 items is 0"),
        ("ab", "ba", 0.0, -1.0, "the standard error of kappa over 2 items is 0"),
    ],
)
def test_missing_estimates_have_a_reason(ours: Any, theirs: Any, share: Any, kappa: Any, said: str) -> None:
    result = agreement(ours, theirs)
    assert (result.share, result.standard_error, result.low, result.high) == (share, None, None, None)
    assert result.kappa == pytest.approx(kappa)
    assert result.reason is not None and result.reason.startswith(said)
