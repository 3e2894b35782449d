"""The difference of two independent means, against statsmodels, scipy and simulated truths."""

import math

import numpy as np
import pytest
from scipy import stats as reference
from statsmodels.stats.proportion import confint_proportions_2indep

from evalflows.stats.means import mean_estimate
from evalflows.stats.paired import unpaired_difference


@pytest.mark.parametrize(("ours", "theirs"), [((17, 20), (150, 200)), ((0, 12), (3, 400)), ((30, 30), (9, 10))])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_shares_have_newcombe_s_interval(ours: tuple[int, int], theirs: tuple[int, int], level: float) -> None:
    sides = [mean_estimate(np.arange(n) < k, binary=True, confidence_level=level) for k, n in (ours, theirs)]
    found = unpaired_difference(*sides)
    wanted = confint_proportions_2indep(*ours, *theirs, method="newcomb", compare="diff", alpha=1 - level)
    assert (found.low, found.high) == pytest.approx(wanted, abs=1e-9)
    assert found.difference == pytest.approx(ours[0] / ours[1] - theirs[0] / theirs[1])


def test_symmetric_values_have_welch_s_interval_in_large_samples() -> None:
    random = np.random.default_rng(7)
    ours, theirs = random.normal(3, 1, 900), random.normal(2.8, 2, 2500)
    found = unpaired_difference(mean_estimate(ours), mean_estimate(theirs))
    wanted = reference.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(wanted, abs=2e-3)
    assert found.standard_error == pytest.approx(
        math.hypot(*(side.std(ddof=1) / side.size**0.5 for side in (ours, theirs)))
    )


def test_clusters_widen_it_as_in_statsmodels() -> None:
    import statsmodels.api as sm

    random = np.random.default_rng(3)
    clusters = np.repeat(np.arange(300), 5)
    theirs = random.normal(0, 1, 300)[clusters] + random.normal(0, 1, 1500)
    ours = random.normal(0.1, 1, 400)
    found = unpaired_difference(mean_estimate(ours), mean_estimate(theirs, clusters.tolist()))
    design = sm.add_constant(np.r_[np.ones(400), np.zeros(1500)])
    groups = np.r_[np.arange(1000, 1400), clusters]
    fitted = sm.OLS(np.r_[ours, theirs], design).fit(cov_type="cluster", cov_kwds={"groups": groups})
    assert found.difference == pytest.approx(fitted.params[1])
    assert found.standard_error == pytest.approx(fitted.bse[1], rel=5e-3)
    assert found.high - found.low > 1.3 * np.subtract(
        *reference.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)[::-1]
    )


def test_a_side_that_does_not_vary_has_an_interval_if_it_is_bounded_and_levels_must_agree() -> None:
    varied, constant = mean_estimate([0.2, 0.4, 0.9, 0.3]), np.ones(40)
    found = unpaired_difference(varied, mean_estimate(constant, bounds=(0.0, 1.0)))
    assert found.low is not None and found.high is not None and found.low < found.difference < found.high
    without = unpaired_difference(varied, mean_estimate(constant))
    assert (without.low, without.high, without.reason_code) == (None, None, "no_spread")
    assert without.reason.startswith("baseline: all 40 values are equal")
    assert unpaired_difference(mean_estimate([]), varied).difference is None
    with pytest.raises(ValueError, match=r"confidence level: got 0\.9 and 0.95"):
        unpaired_difference(mean_estimate([1, 2, 3], confidence_level=0.9), mean_estimate([1, 2, 3]))
