"""Paired yes/no values in clusters: the methods of Bonett & Price and of Tango, with counts over the design effect."""

import math
from typing import NamedTuple

import numpy as np

from evalflows.stats.arrays import FloatArray
from evalflows.stats.clusters import Clustering, degrees_of_freedom
from evalflows.stats.distributions import t_interval, t_p_value, t_quantile
from evalflows.stats.proportions import paired_score_interval
from evalflows.stats.rare_values import OF_DIFFERENCES, adjusted_means

ADDED = (-1.0, 1.0)
"""The differences that are added to those of yes/no pairs in clusters: one pair lost and one gained."""


class EffectiveCounts(NamedTuple):
    """Yes/no pairs in clusters: the adjusted difference with its error, and counts over the design effect."""

    centre: float  # with two added pairs, like Bonett & Price's closer to 0 than the difference
    error: float
    df: float  # of Student's t
    gained: float
    lost: float
    n: float

    def interval(self, confidence_level: float) -> tuple[float, float]:
        wald = t_interval(self.centre, self.error, df=self.df, confidence_level=confidence_level)
        score = paired_score_interval(self.gained, self.lost, self.n, t_quantile(confidence_level, self.df))
        return min(wald[0], score[0]), max(wald[1], score[1])

    def p_value(self) -> float:
        """1 minus the level at which the interval ends at 0."""
        wald = t_p_value(self.centre, self.error, df=self.df)
        differing = self.gained + self.lost
        score = t_p_value(self.gained - self.lost, math.sqrt(differing), df=self.df) if differing else 1.0
        return max(wald, score)


def effective_counts(differences: FloatArray, clustering: Clustering) -> EffectiveCounts:
    """Return the counts of yes/no `differences`, shape (n,), in at least 2 clusters."""
    gained, lost = float(np.sum(differences > 0)), float(np.sum(differences < 0))
    adjusted = adjusted_means(differences[None], clustering, np.array([gained + lost]), ADDED, OF_DIFFERENCES)
    centre, error, _, design_effect = (float(part[0]) for part in adjusted)
    counts = (gained / design_effect, lost / design_effect, differences.size / design_effect)
    return EffectiveCounts(centre, error, degrees_of_freedom(differences, clustering), *counts)
