"""Bradley-Terry ratings of the experiments of a comparison, and each one's win rate over all others."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from evalflows.analysis.pairwise.judge_biases import JudgeBias
from evalflows.analysis.pairwise.preferences import Preferences
from evalflows.specs.comparison import ComparisonSpec
from evalflows.stats import Ratings, bradley_terry, cycles, mean_estimate
from evalflows.store.reasons import ReasonCode
from evalflows.store.records import RatingRow, derived_id, to_json

ELO, AVERAGE = 400 / math.log(10), 1000.0
"""Rating points per log-odds, and the mean rating: the Elo scale, on which 400 points are odds of 10 to 1."""


def ratings_of(
    comparison_id: str, preferences: Preferences, spec: ComparisonSpec, name: str | None = None
) -> list[RatingRow]:
    """The rating of each experiment by one metric; `name` is the slice's name, None for all examples."""
    fit = _fit(preferences, spec)
    ranks = _ranks(fit)
    return [
        RatingRow(
            rating_id=derived_id(comparison_id, preferences.metric, experiment, "bradley-terry", name),
            comparison_id=comparison_id,
            metric=preferences.metric,
            experiment_id=experiment,
            method="bradley-terry",
            slice=name,
            rating=_elo(fit.ratings, entry),
            ci_low=_elo(fit.lows, entry),
            ci_high=_elo(fit.highs, entry),
            confidence_level=fit.confidence_level,
            rank=ranks[entry] if ranks else None,
            n_clusters=fit.n_clusters,
            settings=_settings(fit, spec.experiments),
            reason=fit.reason,
            reason_code=_reason_code(fit),
            **_win_counts(preferences, experiment, spec.confidence_level),
        )
        for entry, experiment in enumerate(spec.experiments)
    ]


def intransitive_cycles(preferences: Preferences, spec: ComparisonSpec, names: Sequence[str]) -> JudgeBias:
    """Check for intransitive cycles, in which no ranking of the experiments is right."""
    index = {experiment: entry for entry, experiment in enumerate(spec.experiments)}
    net = np.zeros((len(index), len(index)))
    scored = preferences.outcomes[preferences.outcomes.points.notna()]
    entries = (scored.left.map(index).to_numpy(dtype=int), scored.right.map(index).to_numpy(dtype=int))
    np.add.at(net, entries, 2 * scored.points.to_numpy() - 1)
    net -= net.T
    cycle_texts = [" beats ".join(names[entry] for entry in (*cycle, cycle[0])) for cycle in cycles(net)]
    message = f"intransitive, possibly by chance: {'; '.join(cycle_texts)}" if cycle_texts else "no intransitive cycles"
    return JudgeBias(name="cycles", message=message, passed=None if cycle_texts else True, n=len(index))


def _fit(preferences: Preferences, spec: ComparisonSpec) -> Ratings:
    index = {experiment: entry for entry, experiment in enumerate(spec.experiments)}
    rows = preferences.judgements
    left_first = (rows.shown_first == "left").to_numpy()
    left, right = (rows[side].map(index).to_numpy(dtype=int) for side in ("left", "right"))
    points = rows.winner.map({"left": 1.0, "tie": 0.5, "right": 0.0}).to_numpy(dtype=float)
    return bradley_terry(
        np.where(left_first, left, right),
        np.where(left_first, right, left),
        np.where(left_first, points, 1 - points),
        list(rows.cluster_id),
        entries=len(index),
        weights=1 / rows.orders.to_numpy(dtype=float),
        confidence_level=spec.confidence_level,
    )


def _reason_code(fit: Ratings) -> ReasonCode | None:
    if fit.reason is None:
        return None
    return "not_identifiable" if fit.ratings is None else "no_interval"


def _ranks(fit: Ratings) -> list[int] | None:
    """The rank of each entry, 1 for the highest rating; equal ratings share a rank."""
    if fit.ratings is None:
        return None
    rounded = [round(rating, 9) for rating in fit.ratings]
    return [1 + sum(other > rating for other in rounded) for rating in rounded]


def _elo(ratings: Sequence[float] | None, entry: int) -> float | None:
    return None if ratings is None else AVERAGE + ELO * ratings[entry]


def _settings(fit: Ratings, experiments: Sequence[str]) -> str:
    names = ("order_effect", "order_low", "order_high", "order_reason", "guard", "guard_reason")
    guarded = [experiments[entry] for entry in fit.guarded]
    return to_json(
        {name: getattr(fit, name) for name in names} | {"guarded": guarded, "judgements": fit.n, "method": fit.method}
    )


def _win_counts(preferences: Preferences, experiment: str, confidence_level: float) -> dict[str, Any]:
    """Wins, losses and ties over all others, and the win rate with examples (or clusters) as sampling units."""
    rows = preferences.outcomes[(preferences.outcomes.left == experiment) | (preferences.outcomes.right == experiment)]
    scored = rows[rows.points.notna()]
    points = scored.points.where(scored.left == experiment, 1 - scored.points)
    by_example = points.groupby([scored.cluster_id, scored.example_id]).mean()
    rate = mean_estimate(
        by_example.to_numpy(), list(by_example.index.get_level_values(0)), confidence_level=confidence_level
    )
    return {
        "win_rate": rate.mean,
        "win_rate_low": None if rate.low is None else max(rate.low, 0.0),
        "win_rate_high": None if rate.high is None else min(rate.high, 1.0),
        "wins": int((points == 1).sum()),
        "losses": int((points == 0).sum()),
        "ties": int((points == 0.5).sum()),
        "missing": int((rows.status == "missing").sum()),
    }
