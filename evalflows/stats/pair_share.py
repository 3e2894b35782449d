"""Shares of pairs that one of two systems wins."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import checked_confidence_level, finite_vector
from evalflows.stats.proportions import IntervalEstimate, normal_quantile, score_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PairShare(IntervalEstimate):
    """A share of pairs and its interval, 0 to 1."""

    share: float | None  # None without pairs
    n_yes: int
    n_pairs: int


def pair_share(
    yes: ArrayLike, pairs: Sequence[tuple[Hashable, Hashable]], *, confidence_level: float = 0.95
) -> PairShare:
    """Return the share of 1 in `yes`, shape (n,), one 0 or 1 for each of n pairs of members, with a two-sided interval.

    Pairs with a common member are dependent, but only so far: a member contributes at most half of the variance
    between pairs (Hoeffding 1948, section 5: 2 zeta_1 <= zeta_2). So n pairs in which the members occur d_1, d_2, …
    times are worth at least 2 n^2 / sum(d^2) independent pairs; all pairs of k members are worth k / 2. The interval is
    the score interval (Wilson 1927) of that many.

    Raise ValueError for a value other than 0 and 1, another number of pairs, a pair of a member with itself, and a
    level not between 0 and 1.
    """
    confidence_level, values = checked_confidence_level(confidence_level), finite_vector("yes", yes, binary=True)
    if len(pairs) != values.size:
        raise ValueError(f"pairs: got {len(pairs)}, wanted one for each of {values.size} values")
    for index, (first, second) in enumerate(pairs):
        if first == second:
            raise ValueError(f"pairs[{index}]: got {first!r} with itself, wanted two members")
    degrees = np.array([*Counter(member for pair in pairs for member in pair).values()], dtype=float)
    effective = 2 * values.size**2 / float(degrees @ degrees) if values.size else 0.0
    share = float(values.mean()) if values.size else None
    ends = None if share is None else score_interval(share, effective, normal_quantile(confidence_level))
    return PairShare(
        share=share,
        low=ends[0] if ends else None,
        high=ends[1] if ends else None,
        confidence_level=confidence_level,
        method="wilson, of pairs without a common member",
        n_yes=int(values.sum()),
        n_pairs=values.size,
        reason=None if values.size else "no pairs",
    )
