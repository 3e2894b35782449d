"""Judgements of pairs for tests of ratings: random ones, and ratings of them by maximising an explicit likelihood."""

import math
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize  # type: ignore[import-untyped, unused-ignore]

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
    judged: Sequence[Any],
    entries: int,
    weights: Any = None,
    *,
    order: Any = None,
    guarded: Sequence[int] = (),
    order_guarded: bool = False,
) -> list[float]:
    """Return the ratings with mean 0, then the order effect, by maximising the likelihood term by term.

    `order` is 1 where it is known, 0 elsewhere; without it there is no order effect. Half a win and half a loss are
    added to the `guarded` entries, against the mean of the others, or of all if there are no others.
    """
    rows = list(zip(*(np.asarray(each).tolist() for each in judged), strict=True))
    counts = [1.0] * len(rows) if weights is None else weights
    shown = [0.0] * len(rows) if order is None else np.asarray(order, dtype=float).tolist()
    others = [entry for entry in range(entries) if entry not in guarded] or [*range(entries)]

    def log_p(x: Any) -> float:
        return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))

    def loss(at: Any) -> Any:
        ratings, effect = at[:entries], at[entries] if order is not None else 0.0
        total = 0.0
        for (i, j, points), weight, known in zip(rows, counts, shown, strict=True):
            x = ratings[i] - ratings[j] + effect * known
            total += weight * (points * log_p(x) + (1 - points) * log_p(-x))
        ahead = [ratings[entry] - ratings[others].mean() for entry in guarded] + [effect] * order_guarded
        total += sum(log_p(x) / 2 + log_p(-x) / 2 for x in ahead)
        return -total + sum(ratings) ** 2  # 0 at the maximum, where the ratings have mean 0

    solution = minimize(loss, np.zeros(entries + (order is not None)), method="BFGS", options={"gtol": 1e-7}).x
    return [*(solution[:entries] - solution[:entries].mean()), *solution[entries:]]


def separated(judged: Sequence[Any], entries: int, order: Any = None) -> bool:
    """Return whether a direction of ratings contradicts no result and explains some (Albert 1984)."""
    first, second, points = (np.asarray(each) for each in judged)
    rows = np.eye(entries)[first] - np.eye(entries)[second]
    rows = rows if order is None else np.column_stack([rows, order])
    explained = np.vstack([rows[points > 0], -rows[points < 1]])
    found = linprog(-explained.sum(axis=0), A_ub=-explained, b_ub=np.zeros(len(explained)), bounds=(-1, 1))
    return bool(-found.fun > 1e-6)


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
