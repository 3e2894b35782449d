"""Intervals and tests of proportions, against numerical solutions, enumeration and published values."""

from fractions import Fraction
from itertools import product
from math import comb, sqrt
from statistics import NormalDist

import numpy as np
import pytest

from evalflows.stats.proportions import (
    bonett_price_interval,
    clopper_pearson_interval,
    constant_interval,
    exact_mcnemar_p,
    largest_missed_share,
    newcombe_interval,
    paired_share_interval,
    tango_interval,
    wilson_interval,
)

RNG = np.random.default_rng(6)
SHARES = [(int(RNG.integers(0, n + 1)), n) for n in RNG.integers(1, 200, 50).tolist()]


def z_of(confidence_level: float) -> float:
    return NormalDist().inv_cdf((1 + confidence_level) / 2)


def solved_score(yes: int, n: int, confidence_level: float) -> tuple[float, float]:
    """Return the two shares p with (yes/n - p)^2 n = z^2 p (1 - p), by bisection."""

    def solve(inside: float, outside: float) -> float:
        for _ in range(100):
            middle = (inside + outside) / 2
            fits = (yes / n - middle) ** 2 * n <= z_of(confidence_level) ** 2 * middle * (1 - middle)
            inside, outside = (middle, outside) if fits else (inside, middle)
        return inside

    return solve(yes / n, 0.0), solve(yes / n, 1.0)


@pytest.mark.parametrize("confidence_level", [0.8, 0.95, 0.99])
def test_wilson_solves_the_score_equation(confidence_level: float) -> None:
    for yes, n in SHARES:
        assert wilson_interval(yes, n, confidence_level=confidence_level) == pytest.approx(
            solved_score(yes, n, confidence_level), abs=1e-9
        )


@pytest.mark.parametrize(
    ("yes", "n", "published"),
    [(81, 263, (0.2553, 0.3662)), (15, 148, (0.0624, 0.1605)), (0, 20, (0.0, 0.1611)), (1, 29, (0.0061, 0.1718))],
)
def test_wilson_is_as_published(yes: int, n: int, published: tuple[float, float]) -> None:
    # Newcombe 1998, Two-sided confidence intervals for the single proportion, table I, method 3
    assert wilson_interval(yes, n, confidence_level=0.95) == pytest.approx(published, abs=5e-5)


def test_bonett_price_is_the_published_formula() -> None:
    for gained, lost, rest in RNG.integers(0, 60, (50, 3)).tolist():
        n, z = gained + lost + rest + 1, z_of(0.9)
        p12, p21 = Fraction(gained + 1, n + 2), Fraction(lost + 1, n + 2)
        variance = (p12 + p21 - (p12 - p21) ** 2) / (n + 2)
        ends = float(p12 - p21) - z * sqrt(variance), float(p12 - p21) + z * sqrt(variance)
        expected = max(-1.0, ends[0]), min(1.0, ends[1])
        assert bonett_price_interval(gained, lost, n, confidence_level=0.9) == pytest.approx(expected, abs=1e-9)


def likeliest_loss(gained: int, lost: int, n: int, difference: float) -> float:
    """Return the maximum-likelihood probability of a loss given the difference, by bisection."""
    low, high = max(0.0, -difference), (1 - difference) / 2

    def slope(share: float) -> float:
        none = 1 - 2 * share - difference
        return gained / (share + difference) + lost / share - 2 * (n - gained - lost) / none

    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return low


@pytest.mark.parametrize("confidence_level", [0.8, 0.95])
def test_tango_ends_where_the_score_test_starts_to_reject(confidence_level: float) -> None:
    for gained, lost, rest in RNG.integers(1, 40, (30, 3)).tolist():
        n = gained + lost + rest
        for end in tango_interval(gained, lost, n, confidence_level=confidence_level):
            share = likeliest_loss(gained, lost, n, end)
            variance = n * (2 * share + end - end**2)
            assert abs(gained - lost - n * end) / sqrt(variance) == pytest.approx(z_of(confidence_level), abs=1e-5)


def test_tango_is_as_published() -> None:
    # Bentur et al. 2009: 1 and 7 of 21 pairs differ; Fagerland, Lydersen & Laake 2014, asymptotic score
    assert tango_interval(1, 7, 21, confidence_level=0.95) == pytest.approx((-0.517, -0.026), abs=5.1e-4)


def test_the_union_interval_of_pairs_has_its_nominal_error_on_each_side() -> None:
    """By enumeration, with 8 % of 100 pairs discordant and a loss of 0.05. One interval alone errs in 3 %."""
    n, differ, loss = 100, 0.08, 0.05
    gain, above = (differ - loss) / 2, {"joined": 0.0, "bonett-price": 0.0}
    for total in range(40):
        for gained in range(total + 1):
            chance = comb(n, total) * differ**total * (1 - differ) ** (n - total)
            chance *= comb(total, gained) * (gain / differ) ** gained * (1 - gain / differ) ** (total - gained)
            counts = gained, total - gained, n
            above["joined"] += chance * (paired_share_interval(*counts, confidence_level=0.95)[0] > -loss)
            above["bonett-price"] += chance * (bonett_price_interval(*counts, confidence_level=0.95)[0] > -loss)
    assert above["joined"] <= 0.0252 < 0.028 < above["bonett-price"]


@pytest.mark.parametrize("n", [30, 100])
def test_clopper_pearson_has_at_most_its_nominal_error_on_each_side(n: int) -> None:
    """By enumeration for many shares; for some, Wilson's interval errs twice as often on one side."""
    shares = np.linspace(0.02, 0.98, 193)
    chances = np.array([comb(n, k) * shares**k * (1 - shares) ** (n - k) for k in range(n + 1)])
    worst = {}
    for interval in (clopper_pearson_interval, wilson_interval):
        low, high = np.array([interval(k, n, confidence_level=0.95) for k in range(n + 1)]).T
        above, below = (chances * (low[:, None] > shares)).sum(axis=0), (chances * (high[:, None] < shares)).sum(axis=0)
        worst[interval] = max(above.max(), below.max())
    assert worst[clopper_pearson_interval] <= 0.025 + 1e-9 < 0.05 < worst[wilson_interval]


def test_clopper_pearson_is_as_published() -> None:
    # Newcombe 1998, table I, method 5
    for (yes, n), published in {(81, 263): (0.2527, 0.3676), (15, 148): (0.0578, 0.1617), (0, 20): (0, 0.1684)}.items():
        assert clopper_pearson_interval(yes, n, confidence_level=0.95) == pytest.approx(published, abs=5.1e-5)
    assert clopper_pearson_interval(20, 20, confidence_level=0.95)[1] == 1.0


def test_mcnemar_matches_enumeration() -> None:
    for gained, lost in product(range(13), range(13)):
        n = gained + lost
        ways = [comb(n, k) for k in range(n + 1)]
        counted = Fraction(sum(way for way in ways if way <= comb(n, gained)), 2**n)
        assert exact_mcnemar_p(gained, lost) == pytest.approx(float(counted), abs=1e-12)


@pytest.mark.parametrize(
    ("counts", "published"),
    [
        ((56, 70, 48, 80), (0.0524, 0.3339)),
        ((9, 10, 3, 10), (0.1705, 0.8090)),
        ((5, 56, 0, 29), (-0.0381, 0.1926)),
        ((0, 10, 0, 20), (-0.1611, 0.2775)),
        ((10, 10, 0, 20), (0.6791, 1.0)),
    ],
)
def test_newcombe_is_as_published(counts: tuple[int, int, int, int], published: tuple[float, float]) -> None:
    # Newcombe 1998, Interval estimation for the difference between independent proportions, table II, method 10
    assert newcombe_interval(*counts, confidence_level=0.95) == pytest.approx(published, abs=5.1e-5)


def test_a_constant_with_bounds_has_the_worst_case_interval() -> None:
    most = largest_missed_share(10, confidence_level=0.9)
    assert constant_interval(0.2, 10, (-1.0, 1.0), confidence_level=0.9) == pytest.approx(
        (0.2 - 1.2 * most, 0.2 + 0.8 * most)
    )
    assert constant_interval(1.0, 10, (0.0, 1.0), confidence_level=0.9) == pytest.approx((1 - most, 1.0))
    assert constant_interval(0.2, 10, None, confidence_level=0.9) is None
    assert constant_interval(0.2, 10, (0.0, float("inf")), confidence_level=0.9) is None
