"""The best of many: against a t-test for two variants, and the usual interval for a winner far ahead."""

import numpy as np
import pytest
from scipy import stats

from evalflows.stats.selection import LEAST, select_best

N = 80


def test_of_two_variants_the_set_is_that_of_a_one_sided_paired_t_test() -> None:
    rng = np.random.default_rng(1)
    decided = 0
    for _ in range(60):
        values = rng.standard_normal((N, 2)) + rng.standard_normal((N, 1)) + [0.0, 0.25]
        p = stats.ttest_rel(values[:, 1], values[:, 0], alternative="greater").pvalue
        p = min(p, 1 - p)
        if abs(p - 0.05) > 0.005:  # more than the error of the draws
            assert len(select_best(values).contenders) == (1 if p < 0.05 else 2)
            decided += p < 0.05
    assert 10 < decided < 50
    for ahead, behind in ((4, 0), (6, 0), (8, 2), (12, 2)):  # yes/no: McNemar's exact test
        leads = np.array([[0, 1]] * ahead + [[1, 0]] * behind + [[1, 1]] * (36 - ahead - behind), dtype=float)
        p = stats.binomtest(ahead, ahead + behind, alternative="greater").pvalue
        assert len(select_best(leads).contenders) == (1 if p < 0.05 else 2), (ahead, behind, p)


def test_a_winner_far_ahead_keeps_its_figures_and_one_that_just_won_does_not() -> None:
    rng = np.random.default_rng(2)
    values = rng.standard_normal((N, 20))
    ahead = select_best(values + 5.0 * (np.arange(20) == 3), baseline=0)
    assert (ahead.winner, ahead.contenders) == (3, (3,))
    error = values[:, 3].std(ddof=1) / np.sqrt(N)
    assert ahead.mean.corrected == pytest.approx(ahead.mean.naive, abs=1e-6)
    for end, sign in ((ahead.mean.low, -1), (ahead.mean.high, 1)):
        assert end == pytest.approx(ahead.mean.naive + sign * error * stats.norm.ppf(1 - 0.0455 / 2), abs=0.02 * error)
    lucky = select_best(values, baseline=int(np.argmin(values.mean(axis=0))))
    assert lucky.gain and lucky.gain.corrected is not None and lucky.mean.corrected is not None
    assert lucky.gain.corrected < lucky.gain.naive and lucky.mean.corrected < lucky.mean.naive
    assert lucky.mean.low is not None and lucky.mean.high is not None
    assert lucky.mean.low < lucky.mean.corrected < lucky.mean.high
    order = rng.permutation(20)
    again = select_best(values[:, order] + 7.0)
    assert order[again.winner] == lucky.winner
    assert again.mean.corrected == pytest.approx(lucky.mean.corrected + 7.0, abs=0.05 * error), "but for the draws"
    assert {int(order[one]) for one in again.contenders} == {*lucky.contenders}


def test_ties_equal_answers_and_too_few() -> None:
    answers = np.tile([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], (20, 1))
    same = select_best(answers, baseline=1)
    assert (same.winner, same.contenders) == (0, (0, 1)), "the first of equals, and both may be the best"
    assert same.mean.corrected == pytest.approx(2 / 3, abs=0.02), "no other answer would have won"
    assert same.gain and (same.gain.naive, same.gain.corrected) == (0.0, None), "it cannot vary"
    constant = select_best(np.tile([1.0, 0.0], (30, 1)))
    assert constant.contenders == (0,) and constant.mean.low and constant.gain is None
    few = select_best(answers[: LEAST - 1], baseline=2)
    assert few.contenders == () and few.reason and few.mean.corrected is None and few.gain is not None
    clustered = select_best(answers, clusters=[place // 10 for place in range(60)])
    assert clustered.reason == f"6 clusters: the best cannot be told from fewer than {LEAST}"
    for wrong in ([[1.0]], [[1.0, np.nan]], []):
        with pytest.raises(ValueError, match="values: got shape"):
            select_best(wrong)


def test_near_the_ceiling_the_mean_has_an_interval_that_holds() -> None:
    right = np.ones((100, 5))
    right[:7, 1:] = 0.0
    low = 100 / (100 + stats.norm.ppf(1 - 0.05 / 5 / 2) ** 2)
    found = select_best(right, baseline=1).mean
    assert (found.naive, found.low, found.high) == (1.0, pytest.approx(low), 1.0), "Wilson's, adjusted for 5 variants"
    assert found.corrected == pytest.approx((1 - 0.5 ** (1 / 5)) ** (1 / 100))
    assert select_best(right * 100 - 100).mean.low == pytest.approx(100 * low - 100), "of any two values"
    covers = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        answers = (rng.random((100, 20)) < rng.beta(7.6, 0.4, (100, 1))).astype(float)
        mean = select_best(answers, seed=seed).mean
        covers.append(mean.low is not None and mean.high is not None and mean.low <= 0.95 <= mean.high)
    assert np.mean(covers) >= 0.93, "of the normal approximation alone, 65 %"


def test_clusters_widen_what_is_known() -> None:
    rng = np.random.default_rng(3)
    values = np.repeat(rng.standard_normal((40, 3)), 5, axis=0)
    alone, together = select_best(values), select_best(values, clusters=[place // 5 for place in range(200)])
    once = select_best(values[::5])
    assert together.mean.corrected == pytest.approx(once.mean.corrected, abs=1e-6), "copies add nothing"
    assert alone.mean.low is not None and together.mean.low is not None and alone.mean.low > together.mean.low
