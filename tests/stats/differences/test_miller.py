"""The formulas of "Adding Error Bars to Evals" (Miller 2024), step by step on small numbers."""

import math

import numpy as np
import pytest

from evalflows.stats.clusters import clustering_of, standard_error
from evalflows.stats.paired import Components
from evalflows.stats.power import needed_examples, plan_sizes

SCORES = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
PASSAGES = ["a", "a", "a", "b", "b", "c"]
Z = 1.959963985 + 0.841621234  # of 95 % and 80 %


def error_of(values: list[float], clusters: list[str] | None = None) -> float:
    return standard_error(np.array(values), clustering_of(clusters, len(values)), scale=1.0)


def test_the_standard_error_of_a_mean_follows_the_central_limit_theorem() -> None:
    mean = sum(SCORES) / 6
    assert mean == 4 / 6
    squares = sum((score - mean) ** 2 for score in SCORES)  # 4 x (1/3)^2 + 2 x (2/3)^2
    assert squares == pytest.approx(4 / 9 + 8 / 9)
    assert error_of(SCORES) == pytest.approx(math.sqrt(squares / 5 / 6))
    # For binary values this is p (1 - p) / n with n - 1 instead of n.
    assert error_of(SCORES) ** 2 == pytest.approx(mean * (1 - mean) / 5)


def test_the_clustered_standard_error_adds_the_products_within_clusters() -> None:
    # Three times, so that no passage has a quarter of the questions: then the error is another.
    scores, passages = [*SCORES] * 3, [f"{passage}{copy}" for copy in range(3) for passage in PASSAGES]
    mean, n = sum(scores) / 18, 18
    alone = sum((score - mean) ** 2 for score in scores) / n**2
    together = 0.0
    for i in range(n):
        for j in range(n):
            if i != j and passages[i] == passages[j]:
                together += (scores[i] - mean) * (scores[j] - mean) / n**2
    # a: 1/3, -2/3, 1/3, in pairs 2 x (-2/9 + 1/9 - 2/9); b: 1/3, -2/3, 2 x -2/9; c: no other member.
    assert together == pytest.approx(3 * (-6 / 9 - 4 / 9) / 18**2)
    # The first test's variance uses n - 1 instead of n. The correction for G clusters is undone here.
    paper = alone * n / (n - 1) + together
    undone = error_of(scores, passages) ** 2 * (9 - 1) / 9
    assert undone == pytest.approx(alone + together)
    assert undone == pytest.approx(paper - alone / (n - 1))


@pytest.mark.parametrize(("repetitions", "left"), [(1, 1), (2, 2 / 3), (4, 1 / 2), (10**9, 1 / 3)])
def test_two_repetitions_save_a_third_of_the_variance_and_four_half(repetitions: int, left: float) -> None:
    # Binary with a probability x of yes uniform over 0 to 1: its variance is 1/12, that of an answer x (1 - x), on
    # average 1/2 - 1/3 = 1/6.
    between, within = 1 / 12, 1 / 6
    assert (between + within / repetitions) / (between + within) == pytest.approx(left)
    ours = Components(between=between, within=within, observed=None, n=9, method="anova", reason=None)
    planned = plan_sizes(0.01, ours, repetitions=[1, repetitions])
    assert planned[1].examples / planned[0].examples == pytest.approx(left, rel=1e-3)


def test_the_sample_size_is_the_published_formula_plus_two_for_students_t() -> None:
    # A difference of 3 points with only a variance of 1/9 between examples: 969 in the paper.
    assert math.ceil(Z**2 * (1 / 9) / 0.03**2) == 969
    assert needed_examples(0.03, sd=1 / 3) == 969 + 2
    omega, sigma_a, sigma_b = 1 / 9, 1 / 6, 0.2
    parts = Components(between=omega, within=sigma_a + sigma_b, observed=None, n=9, method="anova", reason=None)
    for repetitions, examples in plan_sizes(0.05, parts, repetitions=[1, 2, 5, 20]):
        formula = Z**2 * (omega + sigma_a / repetitions + sigma_b / repetitions) / 0.05**2
        assert formula < examples <= formula + 3
