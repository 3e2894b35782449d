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

RESAMPLES = 1000


def ratings_of(
    comparison_id: str, found: Preferences, spec: ComparisonSpec, name: str | None = None
) -> list[RatingRow]:
    """Return the rating of each experiment by one metric; `name` is the slice's name."""
    rated = _rated(found, spec)
    ranks = _ranks(rated)
    return [
        RatingRow(
            rating_id=derived_id(comparison_id, found.metric, experiment, "bradley-terry", name),
            comparison_id=comparison_id,
            metric=found.metric,
            experiment_id=experiment,
            method="bradley-terry",
            slice=name,
            rating=_elo(rated.ratings, entry),
            ci_low=_elo(rated.lows, entry),
            ci_high=_elo(rated.highs, entry),
            confidence_level=rated.confidence_level,
            rank=ranks[entry] if ranks else None,
            n_clusters=rated.n_clusters,
            seed=rated.seed,
            resamples=rated.resamples,
            settings=_settings(rated),
            reason=rated.reason,
            reason_code=_reason_code(rated),
            **_won(found, experiment, spec.confidence_level),
        )
        for entry, experiment in enumerate(spec.experiments)
    ]


def intransitive_cycles(found: Preferences, spec: ComparisonSpec, names: Sequence[str]) -> JudgeBias:
    """Check for intransitive cycles, in which no ranking of the experiments is right."""
    number = {experiment: entry for entry, experiment in enumerate(spec.experiments)}
    net = np.zeros((len(number), len(number)))
    scored = found.outcomes[found.outcomes.points.notna()]
    entries = (scored.left.map(number).to_numpy(dtype=int), scored.right.map(number).to_numpy(dtype=int))
    np.add.at(net, entries, 2 * scored.points.to_numpy() - 1)
    net -= net.T
    rings = [" beats ".join(names[entry] for entry in (*ring, ring[0])) for ring in cycles(net)]
    message = f"intransitive, possibly by chance: {'; '.join(rings)}" if rings else "no intransitive cycles"
    return JudgeBias(name="cycles", message=message, passed=None if rings else True, n=len(number))


def _rated(found: Preferences, spec: ComparisonSpec) -> Ratings:
    number = {experiment: entry for entry, experiment in enumerate(spec.experiments)}
    rows = found.judgements
    left_first = (rows.shown_first == "left").to_numpy()
    left, right = (rows[side].map(number).to_numpy(dtype=int) for side in ("left", "right"))
    points = rows.winner.map({"left": 1.0, "tie": 0.5, "right": 0.0}).to_numpy(dtype=float)
    return bradley_terry(
        np.where(left_first, left, right),
        np.where(left_first, right, left),
        np.where(left_first, points, 1 - points),
        list(rows.cluster_id),
        entries=len(number),
        weights=1 / rows.orders.to_numpy(dtype=float),
        order_term=True,
        confidence_level=spec.confidence_level,
        resamples=RESAMPLES,
        seed=spec.seed,
    )


def _reason_code(rated: Ratings) -> ReasonCode | None:
    if rated.reason is None:
        return None
    return "not_identifiable" if rated.ratings is None else "no_interval"


def _ranks(rated: Ratings) -> list[int] | None:
    """Return 1 for the highest rating; equal ratings share a rank."""
    if rated.ratings is None:
        return None
    rounded = [round(rating, 9) for rating in rated.ratings]
    return [1 + sum(other > rating for other in rounded) for rating in rounded]


def _elo(ratings: Sequence[float] | None, entry: int) -> float | None:
    return None if ratings is None else AVERAGE + ELO * ratings[entry]


def _settings(rated: Ratings) -> str:
    order = {name: getattr(rated, name) for name in ("order_effect", "order_low", "order_high", "order_reason")}
    return to_json(order | {"judgements": rated.n, "method": rated.method})


def _won(found: Preferences, experiment: str, confidence_level: float) -> dict[str, Any]:
    """Wins, losses and ties over all others, and the win rate with examples (or clusters) as sampling units."""
    rows = found.outcomes[(found.outcomes.left == experiment) | (found.outcomes.right == experiment)]
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
