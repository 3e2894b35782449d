"""Whether two raters agree: how often, and how much more often than by chance."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from stats.arrays import FloatArray, checked_level
from stats.clusters import is_rounding
from stats.distributions import clipped, normal_quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A share of agreement, 0 to 1, and kappa: 1 is full agreement, 0 as much as by chance, below 0 less."""

    share: float | None  # of items on which both agree; None without items
    kappa: float | None  # None with a reason, as are the three below
    standard_error: float | None  # of kappa
    low: float | None
    high: float | None
    level: float  # how often such intervals cover the true kappa, 0 to 1
    method: str  # of kappa and of its interval
    n: int  # items
    n_labels: int  # different labels that either gave
    reason: str | None  # why there is no kappa, or no interval for it; None if there are both


def agreement(ours: Sequence[Hashable], theirs: Sequence[Hashable], *, level: float = 0.95) -> Agreement:
    """How often two raters gave the same label, and Cohen's kappa with a two-sided interval.

    `ours` and `theirs` are n labels each, of any hashable kind, matched by position. kappa is (po - pe) / (1 - pe),
    with po the share of agreement and pe what it would be if each gave labels as often but without regard to the other
    (Cohen 1960). Its standard error is that of large samples, kappa not assumed to be 0 (Fleiss, Cohen & Everitt
    1969, eq. 13), its interval that of the normal distribution, no further than -1 to 1. kappa is not defined without
    items, and where both gave one label only, the same. There is no interval where the standard error is 0: in full
    agreement, and in disagreement without exception.

    Raises ValueError for sides of other lengths, a None or nan among the labels, and a level not between 0 and 1.
    """
    level, table = checked_level(level), _table(ours, theirs)
    share, kappa = _share_and_kappa(table)
    error = None if kappa is None else _standard_error(table, kappa)
    interval = None if kappa is None or error is None else _interval(kappa, error, level)
    return Agreement(
        share=share,
        kappa=kappa,
        standard_error=error,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        level=level,
        method="cohen; fleiss-cohen-everitt",
        n=len(ours),
        n_labels=len(table),
        reason=_reason(len(ours), kappa, error),
    )


def _table(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> FloatArray:
    """How often each label of ours met each of theirs, shape (n_labels, n_labels)."""
    if len(ours) != len(theirs):
        raise ValueError(f"ours: got {len(ours)} labels, wanted as many as theirs, {len(theirs)}")
    seen: dict[Hashable, int] = {}
    rows = [_number("ours", place, label, seen) for place, label in enumerate(ours)]
    columns = [_number("theirs", place, label, seen) for place, label in enumerate(theirs)]
    table = np.zeros((len(seen), len(seen)))
    np.add.at(table, (rows, columns), 1.0)
    return table


def _number(name: str, place: int, label: Hashable, seen: dict[Hashable, int]) -> int:
    """The number of a label, which is new or in `seen`."""
    if label is None or label != label:
        raise ValueError(f"{name}[{place}]: got {label!r}, wanted a label")
    return seen.setdefault(label, len(seen))


def _share_and_kappa(table: FloatArray) -> tuple[float | None, float | None]:
    n = table.sum()
    if not n:
        return None, None
    agreed, by_chance = np.trace(table), float(table.sum(axis=1) @ table.sum(axis=0))  # by chance: times n squared
    if by_chance == n * n:
        return float(agreed / n), None
    return float(agreed / n), float((agreed * n - by_chance) / (n * n - by_chance))


def _standard_error(table: FloatArray, kappa: float) -> float | None:
    """None where it is 0."""
    n, parts = table.sum(), table / table.sum()
    ours, theirs = parts.sum(axis=1), parts.sum(axis=0)
    by_chance = float(ours @ theirs)
    agreed = np.diag(parts) @ (1 - (ours + theirs) * (1 - kappa)) ** 2
    both = (theirs[:, None] + ours[None, :]) ** 2
    differed = (1 - kappa) ** 2 * float((parts * both).sum() - np.diag(parts) @ np.diag(both))
    variance = float(agreed + differed - (kappa - by_chance * (1 - kappa)) ** 2)
    if is_rounding(variance, 1.0):
        return None
    return math.sqrt(variance / n) / (1 - by_chance)


def _interval(kappa: float, error: float, level: float) -> tuple[float, float]:
    half = normal_quantile(level) * error
    return clipped((kappa - half, kappa + half), -1.0, 1.0)


def _reason(n: int, kappa: float | None, error: float | None) -> str | None:
    if not n:
        return "no items: kappa needs at least 1"
    if kappa is None:
        return f"both gave one and the same label to all {n} items: agreement by chance would be full too"
    if error is None:
        return f"the standard error of kappa over {n} items is 0: no spread to reckon an interval from"
    return None
