"""Which items people should label next: a fair sample, and those of which the judge is least sure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stats.arrays import FloatArray, finite_vector, refuse_where

FAIR_SHARE = 0.5
"""Of what is to be labelled, the part that is a fair sample, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One item to be labelled next."""

    place: int  # among the items, from 0
    fair: bool  # part of the fair sample; else chosen since the judge is unsure of it


def expected_error(
    values: ArrayLike,
    low: float,
    high: float,
    *,
    spreads: ArrayLike | None = None,
    others: ArrayLike | None = None,
) -> FloatArray:
    """How large the square of a judge's error is likely to be, item by item, in parts of the range: shape (n,).

    `values`, shape (n,), are what the judge gave, `low` and `high` what it could give. Added up are what the judge
    itself leaves open, p (1 - p) for a value at the part p of the range: nothing at its ends, most half way; `spreads`,
    shape (n,), the standard deviation over its repeats, squared, nan where it was asked once; and how far `others`,
    shape (m, n), other judges of the same, are from it, squared, on average over those that are not nan. It orders
    items and claims no more.

    Raises ValueError for values outside of the range, shapes that do not fit, and a range not in order.
    """
    if not low < high:
        raise ValueError(f"range: got {low!r} to {high!r}, wanted the lower one first")
    given = finite_vector("values", values)
    refuse_where("values", given, (given < low) | (given > high), f"{low} to {high}")
    part = (given - low) / (high - low)
    spread = np.nan_to_num(_of_shape("spreads", spreads, (given.size,))) / (high - low)
    apart = (_of_shape("others", others, (-1, given.size)) - given) / (high - low)
    known = ~np.isnan(apart)
    squares = np.where(known, apart, 0.0) ** 2
    return np.asarray(part * (1 - part) + spread**2 + squares.sum(axis=0) / np.maximum(known.sum(axis=0), 1))


def label_next(
    lots: ArrayLike, labelled: NDArray[np.bool_], errors: ArrayLike, n: int, *, fair_share: float = FAIR_SHARE
) -> list[Drawn]:
    """The next `n` of the items without a label, or all that there are: first the fair sample, then the least sure.

    `lots`, shape (N,), are numbers drawn once for each item, whatever they are about; `labelled`, shape (N,), says
    which have a label; `errors`, shape (N,), are those of `expected_error`. The fair part, `fair_share` of n rounded
    up, is the unlabelled items with the lowest lots. However often it is asked, all items up to the highest lot that
    was taken for it are a simple random sample of all, those among them included that were labelled for another
    reason. So they need no weights, and agreement, bias and means can rest on them. A sample drawn with chances by the
    expected error would say more per label, but after several rounds, each of which depends on the last, nobody could
    tell the chance of an item any more. The rest are the items with the largest expected error: to learn where the
    judge fails, not for means. Of equal ones the lower lot goes first.

    Raises ValueError for other lengths, n below 1, and a fair share that is not from 0 to 1.
    """
    drawn, expected, known = (
        finite_vector("lots", lots),
        finite_vector("errors", errors),
        np.asarray(labelled, dtype=bool),
    )
    if not drawn.size == expected.size == known.size:
        raise ValueError(f"labelled: got {known.size} for {drawn.size} lots and {expected.size} errors, wanted as many")
    if n < 1 or not 0 <= fair_share <= 1:
        raise ValueError(f"n, fair_share: got {n!r}, {fair_share!r}, wanted at least 1, and 0 to 1")
    open_ = np.flatnonzero(~known)
    by_lot = open_[np.argsort(drawn[open_], kind="stable")]
    n_fair = int(np.ceil(n * fair_share))
    fair, rest = by_lot[:n_fair], by_lot[n_fair:]
    unsure = rest[np.argsort(-expected[rest], kind="stable")][: n - n_fair]
    return [
        Drawn(place=int(place), fair=is_fair) for some, is_fair in ((fair, True), (unsure, False)) for place in some
    ]


def _of_shape(name: str, values: ArrayLike | None, shape: tuple[int, ...]) -> FloatArray:
    """Numbers of that shape, nan where one is not known; without any, all are not known. -1 is any length."""
    if values is None:
        return np.full([max(length, 1) for length in shape[:-1]] + [shape[-1]], np.nan)
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != len(shape) or array.shape[-1] != shape[-1]:
        raise ValueError(f"{name}: got shape {array.shape}, wanted {shape}")
    return array
