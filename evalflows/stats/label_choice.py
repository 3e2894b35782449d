"""Which items people should label next, for the smallest error."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import finite_vector

FAIR_SHARE = 0.5
"""The least share of the items to label that is drawn as a simple random sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One item to label next."""

    place: int  # index of the item, from 0
    fair: bool  # in the random sample; otherwise chosen because the judge is uncertain


def label_next(
    lots: ArrayLike, labelled: NDArray[np.bool_], errors: ArrayLike, n: int, *, fair_share: float = FAIR_SHARE
) -> list[Drawn]:
    """Return the next `n` unlabelled items, or all that are left: the random sample first, then the least certain.

    `lots`, shape (N,), are random numbers drawn once per item; `labelled`, shape (N,), marks the labelled items;
    `errors`, shape (N,), come from `expected_error`. The random part, `fair_share` of n rounded up, is the unlabelled
    items with the lowest lots. However many rounds are drawn, all items up to the highest lot taken for this part are a
    simple random sample of all items, including those that were labelled for another reason. So they need no weights,
    and agreement, bias and means can be estimated from them. Sampling by the expected error would be more efficient per
    label, but after several rounds, each depending on the one before, the sampling probabilities are unknown. The other
    items are those with the largest expected error: they show where the judge fails, and are not for estimating means.
    Ties go to the lower lot.

    Raise ValueError if the lengths differ, n is below 1, or the fair share is outside 0 to 1.
    """
    lots, expected = finite_vector("lots", lots), finite_vector("errors", errors)
    known = np.asarray(labelled, dtype=bool)
    if not lots.size == expected.size == known.size:
        raise ValueError(f"labelled: got {known.size} for {lots.size} lots and {expected.size} errors, wanted as many")
    if n < 1 or not 0 <= fair_share <= 1:
        raise ValueError(f"n, fair_share: got {n!r}, {fair_share!r}, wanted at least 1, and 0 to 1")
    unlabelled = np.flatnonzero(~known)
    by_lot = unlabelled[np.argsort(lots[unlabelled], kind="stable")]
    n_fair = int(np.ceil(n * fair_share))
    fair, rest = by_lot[:n_fair], by_lot[n_fair:]
    uncertain = rest[np.argsort(-expected[rest], kind="stable")][: n - n_fair]
    return [
        *(Drawn(place=int(index), fair=True) for index in fair),
        *(Drawn(place=int(index), fair=False) for index in uncertain),
    ]
