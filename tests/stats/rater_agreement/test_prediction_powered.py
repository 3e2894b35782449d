"""prediction_powered_mean: against the published formula; coverage with biased judges."""

import math
from typing import Any

import numpy as np
import pytest

from evalflows.stats.judge_error import PredictionPowered, prediction_powered_mean
from evalflows.stats.means import linearised, mean_estimate
from evalflows.stats.proportions import t_interval


def judged(rng: np.random.Generator, n: int, right: float = 0.7, slip: float = 0.2) -> tuple[Any, Any]:
    """Return whether each of n answers is right, and a judge's labels: yes if it is, and for `slip` of the others."""
    truth = rng.random(n) < right
    return truth.astype(float), (truth | (rng.random(n) < slip)).astype(float)


def powered(truth: Any, scores: Any, n: int, **changes: Any) -> PredictionPowered:
    return prediction_powered_mean(truth[:n], scores[:n], scores[n:], **changes)


def published(labels: Any, judged_: Any, rest: Any) -> tuple[float, float, float]:
    """Estimate, standard error and lambda of PPI++ for a mean, term by term (Angelopoulos, Duchi & Zrnic 2023)."""
    n, more = len(labels), len(rest)
    covariance = np.cov(labels, judged_)[0, 1]
    tuned = covariance / ((1 + n / more) * np.var(np.concatenate([judged_, rest]), ddof=1))
    estimate = tuned * np.mean(rest) + np.mean(labels - tuned * judged_)
    variance = tuned**2 * np.var(rest, ddof=1) / more + np.var(labels - tuned * judged_, ddof=1) / n
    return float(estimate), math.sqrt(variance), float(tuned)


def test_the_unguarded_estimate_is_the_published_formula() -> None:
    rng = np.random.default_rng(1)
    labels = rng.normal(3, 1, 4000)
    scores = 0.5 * labels + rng.normal(1, 0.5, 4000)
    result = powered(labels, scores, 1000, guard=False)
    estimate, error, tuned = published(labels[:1000], scores[:1000], scores[1000:])
    assert (result.mean, result.weight) == pytest.approx((estimate, tuned), rel=5e-3)
    assert result.low is not None and result.high is not None
    assert (result.high - result.low) / 2 == pytest.approx(1.962 * error, rel=5e-3)  # t with 999 degrees of freedom
    assert (result.n_labels, result.n_judged, result.method) == (1000, 4000, "ppi++; t")


def test_labels_correct_a_biased_judge() -> None:
    """The judge accepts a fifth of wrong answers, so its mean over 2,000 is significantly too high, by 6 points."""
    for n, seed in ((50, 2),):
        rng = np.random.default_rng(seed)
        covered, bare, narrower = 0, 0, 0
        for _ in range(400):
            truth, scores = judged(rng, 2000)
            result, alone = powered(truth, scores, n, bounds=(0, 1)), mean_estimate(scores, binary=True)
            assert (
                result.low is not None and result.high is not None and alone.low is not None and alone.high is not None
            )
            covered += result.low <= 0.7 <= result.high
            bare += alone.low <= 0.7 <= alone.high
            narrower += result.high - result.low < 2 * 1.96 * math.sqrt(0.21 / n)
        assert covered / 400 >= 0.94
        assert bare / 400 <= 0.01
        assert narrower / 400 >= 0.98


def by_t(values: Any) -> tuple[float, float, float]:
    """The estimate is the mean with Student's t interval."""
    error = values.std(ddof=1) / values.size**0.5
    return values.mean(), *t_interval(values.mean(), error, df=values.size - 1, confidence_level=0.95)


def test_weights_without_unlabelled_items_give_the_weighted_mean() -> None:
    rng = np.random.default_rng(10)
    labels, weights = rng.normal(size=80), rng.uniform(1, 5, 80)
    result = prediction_powered_mean(labels, np.zeros(80), np.zeros(500), weights=weights, guard=False)
    assert (result.mean, result.low, result.high) == pytest.approx(by_t(linearised(labels, weights)))


def test_copies_within_clusters_do_not_narrow_the_interval() -> None:
    rng = np.random.default_rng(11)
    truth, scores = judged(rng, 400)
    alone = powered(truth, scores, 60, guard=False)
    repeated = [np.repeat(each, 4) for each in (truth[:60], scores[:60], scores[60:])]
    four = prediction_powered_mean(*repeated, np.repeat(range(400), 4).tolist(), guard=False)
    assert (four.mean, four.low, four.high) == pytest.approx((alone.mean, alone.low, alone.high))
    assert (four.n_labels, four.n_clusters, four.method) == (240, 400, "ppi++; cluster-robust t")


@pytest.mark.parametrize(
    ("labels", "scores", "rest", "clusters", "reason"),
    [
        ([], [], [1.0] * 50, None, "no labels: an interval needs at least 20"),
        ([1.0] * 19, [1.0] * 19, [1.0] * 50, None, "19 labels: an interval needs at least 20"),
        ([1.0, 0.0] * 20, [1.0] * 40, [1.0] * 5, [*range(10)] * 4 + [90] * 5, "40 labels in 10 of 11 clusters"),
        ([1.0] * 30, [1.0] * 30, [1.0] * 5, None, "neither labels nor judgements vary"),
    ],
)
def test_too_few_labels_give_no_interval(labels: Any, scores: Any, rest: Any, clusters: Any, reason: str) -> None:
    result = prediction_powered_mean(labels, scores, rest, clusters)
    assert (result.low, result.high, result.gain) == (None, None, None)
    assert (result.mean is None) == (not labels)
    assert result.reason is not None and result.reason.startswith(reason)
