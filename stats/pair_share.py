"""How often something holds of pairs, where the same member may be in several of them."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import checked_level, finite_vector
from stats.distributions import normal_quantile
from stats.proportions import score_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PairShare:
    """A share of pairs and its interval, as parts of 1."""

    share: float | None  # None without pairs
    low: float | None  # None with a reason, as is `high`
    high: float | None
    level: float  # how often such intervals cover the true share, 0 to 1
    method: str
    n_yes: int
    n_pairs: int
    n_members: int
    n_effective: float  # pairs without a common member that would be as sure of the share, at least
    reason: str | None


def pair_share(yes: ArrayLike, pairs: Sequence[tuple[Hashable, Hashable]], *, level: float = 0.95) -> PairShare:
    """The share of 1 among `yes`, shape (n,), 0 or 1 each, of n pairs of members; and a two-sided interval.

    Two pairs with a common member hang together. How much, is bounded: what a member brings by itself is no more than
    half of what varies from pair to pair (Hoeffding 1948, section 5: 2 zeta_1 <= zeta_2), so that n pairs in which
    members are d_1, d_2, … times are as good as 2 n^2 / sum(d^2) without a common member, at least. For all pairs of k
    members these are k / 2. The interval is the score interval (Wilson 1927) of so many.

    Raises ValueError for a value other than 0 and 1, another number of pairs, a pair of one member with itself, and a
    level not between 0 and 1.
    """
    level, values = checked_level(level), finite_vector("yes", yes, binary=True)
    if len(pairs) != values.size:
        raise ValueError(f"pairs: got {len(pairs)}, wanted one for each of {values.size} values")
    for place, (one, other) in enumerate(pairs):
        if one == other:
            raise ValueError(f"pairs[{place}]: got {one!r} with itself, wanted two members")
    often = np.array([*Counter(member for pair in pairs for member in pair).values()], dtype=float)
    effective = 2 * values.size**2 / float(often @ often) if values.size else 0.0
    share = float(values.mean()) if values.size else None
    ends = None if share is None else score_interval(share, effective, normal_quantile(level))
    return PairShare(
        share=share,
        low=ends[0] if ends else None,
        high=ends[1] if ends else None,
        level=level,
        method="wilson, of pairs without a common member",
        n_yes=int(values.sum()),
        n_pairs=values.size,
        n_members=often.size,
        n_effective=effective,
        reason=None if values.size else "no pairs",
    )
