"""Intervals of win rates cover the true win rate of a judge with a position bias of 20 points."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from matchups import BASE, CANDIDATE, first_verdict
from numpy.typing import NDArray

from evalflows.analysis.judge_biases import biases_of, exclusion
from evalflows.analysis.preferences import Preferences

ACCURACY, SHARE_BETTER = 0.8, 0.6
"""The probability that the judge picks the better answer, without its position bias; the share of examples on which
the candidate's answer is better."""
TRUE_WIN_RATE = SHARE_BETTER * ACCURACY + (1 - SHARE_BETTER) * (1 - ACCURACY)
BIAS = 0.2
Order = Literal["both", "fixed", "drawn"]
Simulated = tuple[NDArray[np.bool_], NDArray[np.bool_]]


def simulated(order: Order, sims: int, seed: int) -> Iterator[Simulated]:
    """Yield comparisons of 100 to 200 pairs: whether the candidate was shown first, and whether it won, both of shape
    (pairs, orders)."""
    rng = np.random.default_rng(seed)
    for pairs in rng.integers(100, 201, sims):
        accuracy = np.where(rng.random((pairs, 1)) < SHARE_BETTER, ACCURACY, 1 - ACCURACY)
        candidate_first = {
            "both": np.tile([True, False], (pairs, 1)),
            "fixed": np.ones((pairs, 1), dtype=bool),
            "drawn": rng.random((pairs, 1)) < 0.5,
        }[order]
        first_is_better = np.where(candidate_first, accuracy, 1 - accuracy)
        says_first = rng.random(candidate_first.shape) < np.clip(first_is_better + BIAS, 0, 1)
        yield candidate_first, says_first == candidate_first


def as_preferences(candidate_first: NDArray[np.bool_], candidate_wins: NDArray[np.bool_]) -> Preferences:
    """These judgements, with the candidate on the right."""
    pairs, orders = candidate_wins.shape
    examples, won = np.array([f"q{i}" for i in range(pairs)]), candidate_wins.mean(axis=1)
    common = {"left": BASE, "right": CANDIDATE, "asked": True}
    outcomes = {
        "example_id": examples,
        "repetition": 0,
        "points": 1 - won,
        "discrete": 1 - won,
        "preference": np.nan,
        "weight": 1.0,
        "consistency": np.where(np.isin(won, (0, 1)), "consistent", "flipped") if orders == 2 else None,
        "order_status": "known",
        "status": "scored",
        "outcome": np.select([won == 1, won == 0], ["right", "left"], "flipped"),
        "longer": np.nan,
        "shown": 0.0 if orders == 2 else np.where(candidate_first[:, 0], -1.0, 1.0),
        "agreement": np.nan,
        "cluster_id": examples,
    }
    judgements = {
        "metric": "m",
        "example_id": examples.repeat(orders),
        "winner": np.where(candidate_wins.ravel(), "right", "left"),
        "points": 1.0 - candidate_wins.ravel(),
        "left_score": np.nan,
        "order_status": "known",
        "weight": 1.0,
        "shown_first": np.where(candidate_first.ravel(), "right", "left"),
        "orders": orders,
        "cluster_id": examples.repeat(orders),
    }
    frames = (pd.DataFrame(columns | common) for columns in (outcomes, judgements))
    return Preferences(metric="m", evaluator="m", **dict(zip(("outcomes", "judgements"), frames, strict=True)))


@pytest.mark.soak
@pytest.mark.parametrize("order", ["both", "fixed", "drawn"])
def test_verdicts_cover_the_true_win_rate(order: Order) -> None:
    """Each comparison takes a tenth of a second. With 2,000, 94.3 % (both) and 95.7 % (drawn) cover the truth."""
    verdicts, position_biases = [], []
    for candidate_first, wins in simulated(order, 200, 1):
        judged = as_preferences(candidate_first, wins)
        biases = biases_of(judged, 0.95)
        verdicts.append(first_verdict(judged, exclusion=exclusion(biases)))
        position_biases.append(biases[0])
    covered_rates = [(1 + v.ci_low) / 2 <= TRUE_WIN_RATE <= (1 + v.ci_high) / 2 for v in verdicts]  # type: ignore[operator]
    wrong = sum(v.conclusion == "worse" for v in verdicts)
    decided = sum(v.conclusion == "better" for v in verdicts)
    print(f"{order}: {np.mean(covered_rates):.4f} cover, {decided} better, {wrong} worse of {len(verdicts)}")
    assert wrong <= 0.025 * len(verdicts)
    if order == "fixed":
        assert np.mean(covered_rates) < 0.05 and decided == 0
        assert {str(v.reason).partition(":")[0] for v in verdicts} == {
            "one experiment's answers were always shown first"
        }
        return
    assert np.mean(covered_rates) >= 0.91
    covered_bias = [bias.low <= 0.5 + BIAS <= bias.high for bias in position_biases]  # type: ignore[operator]
    print(f"{order}: {np.mean(covered_bias):.4f} of the intervals of the position bias cover {0.5 + BIAS}")
    assert np.mean(covered_bias) >= 0.91
