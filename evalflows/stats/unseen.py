"""How much is unseen: the chance that the next item is of a new kind, and how many kinds more items would show."""

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist

from evalflows.specs.frozen import dataclass

MOST_TIMES = 3
"""How many times as many items as were seen an extrapolation may be about (Chao et al. 2014: two to three times)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """What has not been seen, after n items."""

    n: int
    chance: float | None  # that the next item is of a new kind, 0 to 1; None without items
    low: float | None
    high: float | None
    confidence_level: float
    n_more: int
    new_kinds: float | None  # expected in n_more further items; None without items, and if n_more is above 3 n
    new_low: float | None = None
    new_high: float | None = None
    method: str = "Good-Turing"


def unseen(counts: Sequence[int], *, n_more: int = 100, confidence_level: float = 0.95) -> Unseen:
    """Return the chance that the next item is of no kind yet, from how often each kind was seen.

    The estimate is N1 / n, where N1 kinds were seen once (Good 1953, "The population frequencies of species and the
    estimation of population parameters"). Its variance is (N1 + 2 N2) / n^2 (Esty 1983, "A normal limit law for a
    nonparametric estimator of the coverage of a random sample", without the term -N1^2 / n, which makes it smaller).
    The interval has one single more in its centre and two in its variance, without which it is empty where every kind
    was seen often. New kinds in m further items: f0 (1 - (1 - N1 / (n f0 + N1))^m) with f0 = N1^2 / (2 N2), or
    N1 (N1 - 1) / 2 if N2 = 0 (Chao et al. 2014, "Rarefaction and extrapolation with Hill numbers"). If the chance is C,
    they are at least 1 - (1 - C)^m, where all that is unseen is one kind, and at most m C, where no two are the same:
    the interval has these at its ends. Beyond three times n nothing is extrapolated.

    Raise ValueError for a count below 1.
    """
    if any(count < 1 for count in counts):
        raise ValueError(f"counts: got {min(counts)}, wanted at least 1")
    n, of_size = sum(counts), Counter(counts)
    once, twice = of_size[1], of_size[2]
    if n == 0:
        return Unseen(n=0, chance=None, low=None, high=None, confidence_level=confidence_level,
                      n_more=n_more, new_kinds=None)  # fmt: skip
    half = NormalDist().inv_cdf((1 + confidence_level) / 2) * sqrt(once + 2 * twice + 2)
    hidden = once**2 / (2 * twice) if twice else once * (once - 1) / 2
    new = hidden * (1 - (1 - once / (n * hidden + once)) ** n_more) if hidden else n_more * once / (n + n_more)
    low, high, is_near = max(0.0, (once + 1 - half) / n), min(1.0, (once + 1 + half) / n), n_more <= MOST_TIMES * n
    return Unseen(
        n=n,
        chance=once / n,
        low=low,
        high=high,
        confidence_level=confidence_level,
        n_more=n_more,
        new_kinds=new if is_near else None,
        new_low=1 - (1 - low) ** n_more if is_near else None,
        new_high=n_more * high if is_near else None,
    )
