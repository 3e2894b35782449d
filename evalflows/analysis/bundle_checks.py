"""Whether judges that share a call judge as they do alone: their scores together, and in two tries alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple, Protocol

from evalflows.specs.frozen import dataclass
from evalflows.store.records import CheckRow, derived_id, to_json
from evalflows.store.store import Store

MOST_EXCESS = 0.05
"""By how much, as a share of a metric's range, scores together may differ more from those alone than these do among
themselves."""


_UNCHECKED = "bundle_unchecked: true"

_EARLIER = """
select batch_id, check_id from source.checks
where subject_kind = 'judge' and name = 'bundle' and passed is not null and expected ->> 'version' = ?
order by recorded_at desc limit 1
"""


class Scored(Protocol):
    """A result or a stored judgement."""

    @property
    def metric(self) -> str: ...
    @property
    def turn(self) -> int | None: ...
    @property
    def status(self) -> str: ...
    @property
    def value(self) -> float | None: ...
    @property
    def label(self) -> str | None: ...


class Given(NamedTuple):
    """What a judge has said of an answer by one metric."""

    status: str
    value: float | None
    label: str | None


Scores = Mapping[tuple[str, int | None], Given]
"""What a judge has said of one answer, by metric and turn."""


def scores_in(results: Sequence[Scored]) -> Scores:
    return {(one.metric, one.turn): Given(one.status, one.value, one.label) for one in results}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One judge's scores of one answer: together with the other judges, and twice alone."""

    together: Scores
    alone: tuple[Scores, Scores]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What a bundle asks for on the answers that were tried, together and alone: once each."""

    calls: int
    calls_alone: int
    usd: float | None
    usd_alone: float | None  # None if the price or the tokens are not known

    @property
    def text(self) -> str:
        calls = f"{self.calls} calls instead of {self.calls_alone}"
        if self.usd is None or not self.usd_alone:
            return calls
        return f"{calls}, at {self.usd / self.usd_alone:.0%} of the price"


class _Departure(NamedTuple):
    """How far scores of one answer lie apart, as shares of the range: together from alone, and alone in two tries."""

    together: float
    alone: float


def check_of_bundle(
    batch: str,
    judge: str,
    version: str,
    tried: Sequence[Tried],
    ranges: Mapping[str, float],
    *,
    others: Sequence[str],
    saving: Saving,
    error: str | None,
) -> CheckRow:
    """Check a judge of a bundle. It passes unless its scores together depart from those alone by more than a try alone
    does from another: by more than MOST_EXCESS on average, and by more than the standard error of that.

    `ranges` are the widths of declared ranges by metric; others get that of the scores seen. `error` is why there is
    nothing to compare, if so.
    """
    departures = _departures(tried, ranges)
    n, with_others = len(departures), " and ".join(others)
    observed: dict[str, float | int | None] = {
        "calls": saving.calls,
        "calls_alone": saving.calls_alone,
        "usd": saving.usd,
        "usd_alone": saving.usd_alone,
    }
    passed, message = None, f"it is unknown whether sharing a call with {with_others} changes its scores: "
    if n < 2:
        message += error or f"{n} answers were judged both ways"
    else:
        excess = [one.together - one.alone for one in departures]
        mean, error_of_mean = fmean(excess), stdev(excess) / sqrt(n)
        together, alone = (fmean(values) for values in zip(*departures, strict=True))
        apart = f"differ by {together:.0%} from those alone (two tries alone: {alone:.0%})"
        passed = not (mean > MOST_EXCESS and mean > error_of_mean)
        observed |= {"together": together, "alone": alone, "excess": mean, "standard_error": error_of_mean}
        message = f"its scores in one call with {with_others} {apart}, on {n} answers judged both ways"
    return replace(
        _row(batch, judge, message),
        passed=passed,
        n_checked=n,
        observed=to_json(observed),
        expected=to_json({"version": version, "most_excess": MOST_EXCESS}),
        reason_code={True: None, None: "bundle_not_checked", False: "bundle_disagrees"}[passed],
    )


def unchecked_bundle(batch: str, judge: str, others: Sequence[str]) -> CheckRow:
    """Return the row that says that a judge was not tried alone, since its spec asks for that: it counts."""
    tried = f"whether sharing a call with {' and '.join(others)} changes its scores was not tested ({_UNCHECKED})"
    return _row(batch, judge, tried)


def _row(batch: str, judge: str, message: str) -> CheckRow:
    return CheckRow(
        check_id=derived_id(batch, judge),
        batch_id=batch,
        subject_kind="judge",
        subject_id=judge,
        name="bundle",
        message=message,
    )


def counted_all_the_same(check: CheckRow) -> CheckRow:
    """Return the check of a judge that counts whatever it says, since its spec asks for that."""
    return replace(check, passed=None, reason_code=None, message=f"{check.message}; it counts anyway ({_UNCHECKED})")


def earlier_check(store: Store, version: str) -> CheckRow | None:
    """Return the newest check of this version of a judge of a bundle that came to a conclusion."""
    for batch, identity in store.query(_EARLIER, [version]):
        checks: list[CheckRow] = store.read("checks", batch)
        return next((check for check in checks if check.check_id == identity), None)
    return None


def _departures(tried: Sequence[Tried], ranges: Mapping[str, float]) -> list[_Departure]:
    """Return the departures of each answer that was judged alone twice."""
    whole = [each for each in tried if not any(_has_failed(scores) for scores in each.alone)]
    widths = _widths(whole) | dict(ranges)
    found = []
    for each in whole:
        first, second = each.alone
        from_alone = fmean(_distance(each.together, one, widths) for one in each.alone)
        found.append(_Departure(from_alone, _distance(first, second, widths)))
    return found


def _has_failed(scores: Scores) -> bool:
    return any(given.status in ("failed", "not_attempted") for given in scores.values())


def _widths(tried: Sequence[Tried]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for each in tried:
        for scores in (each.together, *each.alone):
            for (metric, _), given in scores.items():
                if given.value is not None:
                    values.setdefault(metric, []).append(given.value)
    return {metric: max(seen) - min(seen) for metric, seen in values.items()}


def _distance(one: Scores, other: Scores, widths: Mapping[str, float]) -> float:
    """Return the mean distance by metric, each from 0 to 1."""
    distances = []
    for key in sorted(one.keys() | other.keys(), key=str):
        left, right = one.get(key), other.get(key)
        if left is None or right is None or left.status != right.status or left.label != right.label:
            distances.append(1.0)
        elif left.value is None or right.value is None:
            distances.append(float(left.value is not right.value))
        else:
            width = widths.get(key[0]) or 1.0
            distances.append(min(1.0, abs(left.value - right.value) / width))
    return fmean(distances) if distances else 0.0
