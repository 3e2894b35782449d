"""Power and sample sizes against statsmodels, simulation and closed forms; variance components."""

import math
from typing import Any

import numpy as np
import pytest
from statsmodels.stats.power import NormalIndPower, TTestPower

from evalflows.stats.power import (
    Plan,
    cautious_sd,
    detectable_effect,
    difference_components,
    needed_examples,
    plan_sizes,
    power_at,
)

LEVELS = [(0.95, 0.8), (0.9, 0.9), (0.99, 0.5), (0.95, 0.99)]


@pytest.mark.parametrize(("confidence_level", "power"), LEVELS)
@pytest.mark.parametrize("d", [0.15, 0.4, 0.8, 2.0])
def test_needed_examples_match_statsmodels(d: float, confidence_level: float, power: float) -> None:
    # One-sided at half of alpha, because results with the wrong sign do not count.
    theirs = TTestPower().solve_power(d, alpha=(1 - confidence_level) / 2, power=power, alternative="larger")
    assert needed_examples(3 * d, sd=3.0, confidence_level=confidence_level, power=power) == max(2, math.ceil(theirs))
    assert needed_examples(-3 * d, sd=3.0, confidence_level=confidence_level, power=power) == max(2, math.ceil(theirs))


@pytest.mark.parametrize("n", [2, 3, 10, 60, 1000])
def test_power_by_t_matches_statsmodels(n: int) -> None:
    for d in (0.0, 0.05, 0.3, 1.0, 4.0):
        ours = power_at(d * math.sqrt(n), n - 1, 0.95)
        assert ours == pytest.approx(TTestPower().power(d, n, 0.025, alternative="larger"), abs=1e-7)


def test_power_by_the_normal_distribution_matches_statsmodels() -> None:
    for ratio in (0.0, 0.5, 1.96, 2.8, 6.0):
        ours = power_at(ratio, None, 0.95)
        theirs = NormalIndPower(ddof=0).power(ratio, 1, 0.025, ratio=0, alternative="larger")
        assert ours == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("df", [None, 1, 2, 5.5, 30, 400, 1e6])
@pytest.mark.parametrize(("confidence_level", "power"), LEVELS)
def test_the_detectable_effect_has_the_power(df: float | None, confidence_level: float, power: float) -> None:
    effect = detectable_effect(0.3, df=df, confidence_level=confidence_level, power=power)
    assert power_at(effect / 0.3, df, confidence_level) == pytest.approx(power, abs=1e-9)
    assert power_at(0.99 * effect / 0.3, df, confidence_level) < power


def test_components_of_a_table_by_hand() -> None:
    # Means 1, 2, 3 and 1, 1, 1: differences 0, 1, 2. Noise of either: 2 x 1 / 1 in one row, 0 in two.
    candidate = [[0.0, 2.0], [2.0, 2.0], [3.0, 3.0]]
    baseline = [[1.0, 1.0], [0.0, 2.0], [1.0, 1.0]]
    result = difference_components(candidate, baseline)
    assert (result.observed, result.within) == pytest.approx((1.0, 2 / 3 + 2 / 3))
    assert result.between == pytest.approx(1.0 - (2 / 3) / 2 - (2 / 3) / 2)
    assert (result.n, result.method, result.reason) == (3, "anova", None)


def noisy(rng: np.random.Generator, n: int = 80, *, between: float = 0.3) -> tuple[Any, Any]:
    """Return four repetitions with sd 0.5 and three with sd 0.2, for true differences with sd `between`."""
    base = rng.normal(size=(n, 1))
    candidate = base + rng.normal(0.1, between, (n, 1)) + rng.normal(0, 0.5, (n, 4))
    return candidate, base + rng.normal(0, 0.2, (n, 3))


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_components_are_unbiased_also_with_missing_values(missing: float) -> None:
    rng, result = np.random.default_rng(52), []
    for _ in range(400):
        candidate, baseline = noisy(rng)
        candidate[rng.random(candidate.shape) < missing] = np.nan
        result.append(difference_components(candidate, baseline))
    assert np.mean([components.between for components in result]) == pytest.approx(0.09, abs=0.006)
    assert np.mean([components.within for components in result]) == pytest.approx(0.29, abs=0.006)


def test_rows_missing_on_one_side_and_nan_columns_are_ignored() -> None:
    candidate, baseline = noisy(np.random.default_rng(54), 20)
    plain = difference_components(candidate, baseline)
    gap = np.full((1, 5), np.nan)
    padded = np.vstack([np.hstack([candidate, np.full((20, 1), np.nan)]), gap, gap + np.arange(5)])
    with_gaps = np.vstack([baseline, [[1.0, 2.0, 3.0]], np.full((1, 3), np.nan)])
    result = difference_components(padded, with_gaps)
    assert (result.between, result.within, result.n) == pytest.approx((plain.between, plain.within, 20))


@pytest.mark.parametrize(
    ("candidate", "baseline", "observed", "reason"),
    [
        ([[1.0], [2.0]], [[1.0], [1.0]], 0.5, "no example with 2 repetitions of the candidate: its noise is unknown"),
        ([[1.0, 1.0], [2.0, 3.0]], [[1.0], [1.0]], 1.125, "no example with 2 repetitions of the baseline"),
        ([[1.0, 1.0]], [[1.0, 2.0]], None, "1 example: a variance needs at least 2"),
        (np.empty((0, 2)), np.empty((0, 2)), None, "no examples: a variance needs at least 2"),
    ],
)
def test_too_few_examples_have_no_components_and_a_reason(
    candidate: Any, baseline: Any, observed: Any, reason: str
) -> None:
    result = difference_components(candidate, baseline)
    assert (result.between, result.within, result.observed) == (None, None, observed)
    assert result.reason is not None and result.reason.startswith(reason)


def test_more_repetitions_save_examples_down_to_the_variance_between_examples() -> None:
    components = difference_components(*noisy(np.random.default_rng(55), 4000))
    plans = plan_sizes(0.05, components, repetitions=[1, 2, 8, 1000])
    assert [plan.repetitions for plan in plans] == [1, 2, 8, 1000]
    for k, examples in plans:
        assert examples == needed_examples(0.05, sd=math.sqrt((components.between or 0) + (components.within or 0) / k))
    assert plans[0].examples > 2 * plans[2].examples > 2 * plans[3].examples
    limit = needed_examples(0.05, sd=math.sqrt(components.between or 0))
    assert limit <= plans[3].examples <= 1.01 * limit


def test_the_cautious_sd_is_that_of_independent_runs() -> None:
    rng = np.random.default_rng(56)
    drawn = (rng.random(200_000) < 0.7).astype(float) - (rng.random(200_000) < 0.4)
    assert cautious_sd(0.7, 0.4) == pytest.approx(float(drawn.std()), abs=0.005)
    assert cautious_sd(1.0, 0.0) == 0.0
    assert cautious_sd(0.5, 0.5) == pytest.approx(math.sqrt(0.5))
    same = rng.random(200_000)  # runs that share hard examples have a smaller sd
    assert ((same < 0.7).astype(float) - (same < 0.4)).std() < cautious_sd(0.7, 0.4)


def test_with_an_sd_repetitions_save_nothing() -> None:
    n = needed_examples(0.1, sd=0.5)
    assert plan_sizes(0.1, 0.5, repetitions=[1, 4]) == [Plan(1, n), Plan(4, n)]
    assert plan_sizes(0.1, 0.5, repetitions=[]) == []
