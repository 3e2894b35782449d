"""What the rules of a gate are held against: a difference or a mean, by level, turned so that more is better."""

from stats import MeanEstimate, PairedDifference
from tasks.rules import Interval, Measured, turned
from tasks.sides import Side, Sides


def measured_difference(sides: Sides) -> Measured:
    """How much better the candidate is than the baseline."""
    found, higher = sides.difference(sides.level), sides.scale.higher_is_better

    def interval_at(level: float) -> Interval | None:
        one = sides.difference(level)
        if one.low is None and _is_alike(one, level):
            return turned(one.difference, one.difference, higher_is_better=higher)
        return turned(one.low, one.high, higher_is_better=higher)

    def sure_at(level: float) -> Interval | None:
        if not sides.lost:
            return interval_at(level)
        ends = [sides.had_missing_made_it(how, level) for how in ("smallest", "largest")]
        return turned(*_ends(*ends), higher_is_better=higher)

    smallest, largest = (sides.had_missing_made_it(how, sides.level) for how in ("smallest", "largest"))
    return Measured(
        value=_sign(found.difference, higher),
        interval_at=interval_at,
        sure_at=sure_at,
        sure_value=turned(
            None if smallest is None else smallest.difference,
            None if largest is None else largest.difference,
            higher_is_better=higher,
        ),
        n=found.n_pairs if found.n_clusters is None else found.n_clusters,
        noun="pairs" if found.n_clusters is None else "clusters",
        lost=sides.lost,
        higher_is_better=higher,
        p_value=found.p_value,
        reason=found.reason,
    )


def _is_alike(found: PairedDifference, level: float) -> bool:
    """Whether all pairs, or clusters, differ by the same, and are so many that to flip the signs of what is beyond any
    threshold would tell (Fisher 1935): of an unbounded metric there is no other interval then."""
    units = found.n_pairs if found.n_clusters is None else found.n_clusters
    return found.p_value is not None and found.method.startswith("no interval") and 2.0 ** (1 - units) <= 1 - level


def measured_mean(side: Side, level: float) -> Measured:
    """How good the candidate is by itself. Of yes/no exactly: a gate that decides on one side must not err on it."""
    found, higher = side.mean(level, exact=True), side.scale.higher_is_better
    lost, bounds = int(side.values.missing.sum()), side.scale.bounds

    def interval_at(level: float) -> Interval | None:
        one = side.mean(level, exact=True)
        return turned(one.low, one.high, higher_is_better=higher)

    def had_missing_been(end: float, level: float) -> MeanEstimate | None:
        if not lost:
            return side.mean(level, exact=True)
        return side.mean_had_missing_been(end, level, exact=True) if side.scale.is_bounded else None

    def sure_at(level: float) -> Interval | None:
        return turned(*_ends(*(had_missing_been(end, level) for end in bounds)), higher_is_better=higher)

    lowest, highest = (had_missing_been(end, level) for end in bounds)

    return Measured(
        value=_sign(found.mean, higher),
        interval_at=interval_at,
        sure_at=sure_at,
        sure_value=turned(
            None if lowest is None else lowest.mean, None if highest is None else highest.mean, higher_is_better=higher
        ),
        n=found.n if found.n_clusters is None else found.n_clusters,
        noun="examples" if found.n_clusters is None else "clusters",
        lost=lost,
        higher_is_better=higher,
        reason=found.reason,
    )


def _ends(
    lowest: PairedDifference | MeanEstimate | None, highest: PairedDifference | MeanEstimate | None
) -> tuple[float | None, float | None]:
    return lowest.low if lowest else None, highest.high if highest else None


def _sign(value: float | None, higher_is_better: bool) -> float | None:
    return value if value is None or higher_is_better else -value
