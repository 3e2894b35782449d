"""The sampling units of a win rate, with their points and tests."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from evalflows.analysis.differences.verdicts import DifferenceTest
from evalflows.stats import PairedDifference, linearised, paired_difference
from evalflows.store.reasons import Reason

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Units:
    """The sampling units of a win rate: examples, their repetitions averaged, or votes; arrays of shape (n,)."""

    points: FloatArray  # of the candidate, 0 to 1, NaN if missing
    discrete: FloatArray  # the same by the winner alone
    weights: FloatArray
    clusters: list[str]

    @classmethod
    def of(cls, outcomes: pd.DataFrame, *, of_votes: bool) -> "Units":
        counts = np.array([status in ("scored", "missing") for status in outcomes.status.array], dtype=bool)
        rows = outcomes if counts.all() else outcomes[counts]
        if not of_votes:
            # a missing repetition makes its example missing
            of_examples = rows.groupby(["cluster_id", "example_id"])[["points", "discrete", "weight"]]
            rows = of_examples.mean(skipna=False).reset_index()
        points, discrete, weights = (rows[name].to_numpy(np.float64) for name in ("points", "discrete", "weight"))
        return cls(points, discrete, weights, list(rows.cluster_id))

    def difference(self, points: FloatArray, confidence_level: float) -> PairedDifference:
        """The candidate's points minus the baseline's, over the units where they are known."""
        known = ~np.isnan(points)
        numbers, weights = points[known], self.weights[known]
        is_weighted = bool(numbers.size and np.ptp(weights))
        values = linearised(numbers, weights) if is_weighted else numbers
        return paired_difference(
            values,
            1 - values,
            [cluster for cluster, is_known in zip(self.clusters, known, strict=True) if is_known],
            confidence_level=confidence_level,
            binary=not is_weighted and bool(np.isin(numbers, (0.0, 1.0)).all()),
            bounds=None if is_weighted else (0.0, 1.0),  # weighted values may lie outside
        )

    def test(self, confidence_level: float, exclusion: Reason | None) -> DifferenceTest:
        missing, estimate = np.isnan(self.points), self.difference(self.points, confidence_level)
        lowest = highest = estimate if self.points.size else None
        if missing.any():
            lowest, highest = (
                self.difference(np.where(missing, case, self.points), confidence_level) for case in (0.0, 1.0)
            )
        return DifferenceTest(
            estimate=estimate, lowest=lowest, highest=highest, n_missing=int(missing.sum()), exclusion=exclusion
        )


def counts_of(outcomes: pd.DataFrame) -> dict[str, Any]:
    """Numbers of pairs of runs by the winner; a pair that flipped, or half of it, counts by the comparison's rule."""
    points, asked = outcomes.discrete.to_numpy(), outcomes.asked.to_numpy(bool)
    outcome, status = Counter(outcomes.outcome.array), Counter(outcomes.status.array)
    return {
        "wins": int((points > 0.5).sum()),
        "losses": int((points < 0.5).sum()),
        "ties": int((points == 0.5).sum()),
        "half": outcome["half"],
        "flipped": outcome["flipped"],
        "missing": status["missing"],
        "decided_without_judge": int((~asked & ~np.isnan(points)).sum()),
        "left_out": status["left_out"] + status["not_applicable"],
    }


def discrete_rate(difference: PairedDifference) -> dict[str, Any]:
    """The win rate that counts graded verdicts as wins, losses and ties, as rates from 0 to 1."""
    ends = {"low": difference.low, "high": difference.high}
    rates = {name: None if end is None else (1 + min(max(end, -1.0), 1.0)) / 2 for name, end in ends.items()}
    error = difference.standard_error
    return {
        "discrete": difference.candidate_mean,
        **{f"discrete_{name}": rate for name, rate in rates.items()},
        "discrete_standard_error": None if error is None else error / 2,
    }
