"""Bradley-Terry ratings of the experiments of a comparison, and each one's win rate over all others."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from evalflows.analysis.pairwise.judge_biases import JudgeBias
from evalflows.analysis.pairwise.preferences import Preferences
from evalflows.analysis.pairwise.sampling_units import Units
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.gate import Adjustment
from evalflows.stats import Ratings, bradley_terry, cycles, linearised, mean_estimate
from evalflows.stats.preferences.ranks import rank_ranges
from evalflows.store.reasons import ReasonCode
from evalflows.store.records import RatingRow, derived_id, to_json

ELO, AVERAGE = 400 / math.log(10), 1000.0
"""Rating points per log-odds, and the mean rating: the Elo scale, on which 400 points are odds of 10 to 1."""


def ratings_of(
    comparison_id: str, preferences: Preferences, spec: ComparisonSpec, name: str | None = None
) -> list[RatingRow]:
    """The rating of each experiment by one metric; `name` is the slice's name, None for all examples."""
    fit = _fit(preferences, spec)
    ranks, ranges = _ranks(fit), _rank_ranges(fit, spec.adjustment)
    return [
        RatingRow(
            rating_id=derived_id(comparison_id, preferences.metric, experiment, "bradley-terry", name),
            comparison_id=comparison_id,
            metric=preferences.metric,
            experiment_id=experiment,
            method="bradley-terry",
            slice=name,
            rating=_elo(fit.ratings, entry),
            standard_error=ELO * fit.standard_errors[entry] if fit.standard_errors else None,
            ci_low=_elo(fit.lows, entry),
            ci_high=_elo(fit.highs, entry),
            confidence_level=fit.confidence_level,
            rank=ranks[entry] if ranks else None,
            rank_low=ranges[entry][0] if ranges else None,
            rank_high=ranges[entry][1] if ranges else None,
            n_clusters=fit.n_clusters,
            settings=_settings(fit, entry),
            reason=_reason(fit, spec.experiments),
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
    left_first = (rows.shown_first != "right").to_numpy()
    left, right = (rows[side].map(index).to_numpy(dtype=int) for side in ("left", "right"))
    points = rows.points.to_numpy(dtype=float)
    return bradley_terry(
        np.where(left_first, left, right),
        np.where(left_first, right, left),
        np.where(left_first, points, 1 - points),
        list(rows.cluster_id),
        entries=len(index),
        weights=rows.weight.to_numpy(dtype=float) / rows.orders.to_numpy(dtype=float),
        guard=spec.ratings.guard,
        order_term=spec.ratings.order_term,
        order_known=rows.order_status.eq("known").to_numpy(dtype=bool),
        confidence_level=spec.confidence_level,
    )


def _reason(fit: Ratings, experiments: Sequence[str]) -> str | None:
    if fit.apart is None or not fit.n:
        return fit.reason
    first, second = (experiments[entry] for entry in fit.apart)
    return f"{first} and {second} are not connected by comparisons: no common scale"


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


def _rank_ranges(fit: Ratings, adjustment: Adjustment) -> list[tuple[int, int]] | None:
    if fit.ratings is None or fit.covariance is None or fit.df is None:
        return None
    level = fit.confidence_level
    return rank_ranges(fit.ratings, fit.covariance, df=fit.df, confidence_level=level, adjustment=adjustment)


def _elo(ratings: Sequence[float] | None, entry: int) -> float | None:
    return None if ratings is None else AVERAGE + ELO * ratings[entry]


def _settings(fit: Ratings, entry: int) -> str:
    order = ("order_effect", "order_standard_error", "order_low", "order_high", "order_reason")
    names = (*order, "guard", "guard_reason", "method")
    own = {"guarded": entry in fit.guarded, "judgements": fit.n}
    return to_json({name: getattr(fit, name) for name in names} | own)


def _win_counts(preferences: Preferences, experiment: str, confidence_level: float) -> dict[str, Any]:
    """Wins, losses and ties over all others, and the win rate with examples (or clusters) as sampling units."""
    rows = preferences.outcomes[(preferences.outcomes.left == experiment) | (preferences.outcomes.right == experiment)]
    scored = rows[rows.points.notna()]
    points, discrete = (side.where(scored.left == experiment, 1 - side) for side in (scored.points, scored.discrete))
    units = Units.of(scored.assign(points=points, discrete=discrete), of_votes=preferences.of_votes)
    values = linearised(units.points, units.weights)
    rate = mean_estimate(values, units.clusters, confidence_level=confidence_level)
    return {
        "win_rate": rate.mean,
        "win_rate_standard_error": rate.standard_error,
        "win_rate_low": None if rate.low is None else max(rate.low, 0.0),
        "win_rate_high": None if rate.high is None else min(rate.high, 1.0),
        "wins": int((discrete > 0.5).sum()),
        "losses": int((discrete < 0.5).sum()),
        "ties": int((discrete == 0.5).sum()),
        "missing": int((rows.status == "missing").sum()),
    }
