"""Judgements of pairs for tests of ratings: random ones, and ratings of them by maximising an explicit likelihood."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import minimize  # type: ignore[import-untyped, unused-ignore]

JUDGEMENT = st.tuples(
    st.sampled_from([*permutations(range(4), 2)]), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from("abcdef")
)


def random_judgements(
    rng: np.random.Generator, entries: int, n: int, order: float = 0.0, ties: float = 0.2
) -> tuple[Any, ...]:
    """Return n judgements of random pairs in random order: first, second, points."""
    strengths = rng.normal(0, 1, entries)
    first, second = np.array([rng.choice(entries, 2, replace=False) for _ in range(n)]).T
    won = rng.random(n) < 1 / (1 + np.exp(-(strengths[first] - strengths[second] + order)))
    return first, second, np.where(rng.random(n) < ties, 0.5, won)


def maximised_ratings(
    judged: Sequence[Any], entries: int, weights: Any = None, *, order_term: bool = False
) -> list[float]:
    """Return the ratings with mean 0, then the order effect, by maximising the likelihood term by term."""
    rows = list(zip(*(np.asarray(each).tolist() for each in judged), strict=True))
    counts: Counter[tuple[int, int, float]] = Counter()
    for row, weight in zip(rows, [1.0] * len(rows) if weights is None else weights, strict=True):
        counts[row] += weight
    compared = {(min(i, j), max(i, j)) for i, j, _ in rows}

    def log_p(x: Any) -> float:
        return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))

    def loss(at: Any) -> Any:
        ratings, order = at[:entries], at[entries] if order_term else 0.0
        total = 0.0
        for (i, j, points), weight in counts.items():
            x = ratings[i] - ratings[j] + order
            total += weight * (points * log_p(x) + (1 - points) * log_p(-x))
        total += sum(log_p(ratings[i] - ratings[j]) / 2 + log_p(ratings[j] - ratings[i]) / 2 for i, j in compared)
        total += log_p(order) / 2 + log_p(-order) / 2
        return -total + sum(ratings) ** 2  # 0 at the maximum, where the ratings have mean 0

    solution = minimize(loss, np.zeros(entries + order_term), method="BFGS", options={"gtol": 1e-7}).x
    return [*(solution[:entries] - solution[:entries].mean()), *solution[entries:]]


def clustered_judgements(
    strengths: Sequence[float], items: int, order: float, rng: np.random.Generator
) -> tuple[Any, ...]:
    """Return all pairs in both orders on each item: first, second, points, clusters.

    The probabilities of wins are those of the model, but half of the variance is shared by the judgements of an item.
    """
    pairs = np.array(list(permutations(range(len(strengths)), 2)))
    first, second = np.tile(pairs.T, items)
    item = np.repeat(np.arange(items), len(pairs))
    answers = rng.normal(size=(items, len(strengths)))
    noise = (answers[item, first] - answers[item, second]) / 2 + rng.normal(0, 0.5**0.5, len(first))
    above = np.vectorize(math.erfc)(-noise / 2**0.5) / 2
    r = np.asarray(strengths)
    won = above < 1 / (1 + np.exp(-(r[first] - r[second] + order)))
    return first, second, won.astype(float), item.tolist()
