"""Cells for watch rules: false alarms of quiet streams, and how soon planted falls are found."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np

from benchmarks.simulation.cells import Cell, Figure, difference_text
from evalflows.analysis.monitoring import LENGTH, Stream, follow
from evalflows.specs.metrics import MetricSpec
from evalflows.specs.watch import WatchSpec, WindowSize
from evalflows.stats.arrays import FloatArray
from evalflows.store.queries.windows import Window

A_DAY = 3300
"""Traces a day."""
YES = 0.8
"""The share of yes before a fall."""
BEFORE, WATCHED = 14, 30
"""Days of which rules learn, and days that are watched."""
PER_DAY: dict[WindowSize, int] = {"hour": 24, "day": 1}
START = datetime(2026, 1, 1, tzinfo=UTC)
Z, Z_DAYS = 1.96, 7
"""A rolling z-test alarms if a window is below the mean of so many days before by so many standard errors."""

FALSE_ALARMS = Figure(name="false alarms in 30 days", at_most=1.0, is_share=False)
RARELY = Figure(name="false alarms in 30 days", at_most=0.1, is_share=False)
UNBOUNDED = Figure(name="false alarms in 30 days", is_share=False)
ANY = Figure(name="streams with a false alarm")
FIRST = Figure(name="found in the first full window")
MOSTLY = Figure(name="found in the first full window", at_least=0.9)
TWO_DAYS = Figure(name="found within two days")
SOON = Figure(name="found within two days", at_least=0.95)
DELAY = Figure(name="mean delay in hours", is_share=False)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Yes/no values in windows, in sessions of one size, with a weekly rhythm if there is one."""

    name: str
    session: int = 1
    correlation: float = 0.0  # within a session
    rhythm: float = 0.0  # how far weekdays are from the mean, at most
    yes: float = YES
    a_day: int = A_DAY
    rough: float = 0.0  # standard deviation of the days' true shares


PLAIN = Traffic("yes/no, 80% yes")
SESSIONS = Traffic("yes/no, sessions of 5 with correlation 0.3", session=5, correlation=0.3)
RARE = Traffic("yes/no, 97% yes", yes=0.97)
SAFE = [Traffic(f"yes/no, {100 * yes:g}% yes", yes=yes, a_day=1000) for yes in (0.5, 0.95, 0.98, 0.99, 0.995, 0.999)]
"""Metrics that are watched near their ceiling."""
ROUGH = Traffic("yes/no, 80% yes, days differ by 3 points", rough=0.03, a_day=1000)
WEEKLY = Traffic("yes/no, weekdays differ by 2 points", rhythm=0.01)


def monitoring_cells() -> Iterator[Cell]:
    for size in PER_DAY:
        for traffic in (PLAIN, SESSIONS, RARE):
            yield _cell("change", _rule("change", size), traffic, size)
    yield _cell("change", _rule("change", "day"), WEEKLY, "day")
    for traffic in SAFE:
        yield _cell("change", _rule("change", "day"), traffic, "day")
    yield _cell("change", _rule("change", "day"), SAFE[3], "day", 0.03)
    for kind, loss in product(("fall", "change"), (0.0, 0.08, 0.15)):
        yield _cell(kind, _rule(kind, "day"), ROUGH, "day", loss)
    for size in PER_DAY:
        yield _cell("fall", _rule("fall", size), PLAIN, size)
        yield _cell("threshold, the true mean", _rule("threshold", size, minimum=YES), PLAIN, size)
        yield _cell("failure share, the true share", _rule("failure_share", size, maximum=1 - YES), PLAIN, size)
        yield _cell("rolling z-test", None, PLAIN, size)
    for loss in (0.03, 0.05, 0.08):
        for size in PER_DAY:
            yield _cell("change", _rule("change", size), PLAIN, size, loss)
        yield _cell("fall", _rule("fall", "day"), PLAIN, "day", loss)
        yield _cell("rolling z-test", None, PLAIN, "hour", loss)


def _rule(kind: str, size: WindowSize, **fields: Any) -> WatchSpec:
    return WatchSpec.model_validate({"kind": kind, "metric": "accuracy", "window": size, **fields})


def _cell(method: str, rule: WatchSpec | None, traffic: Traffic, size: WindowSize, loss: float = 0.0) -> Cell:
    def rows(rng: np.random.Generator, runs: int) -> Iterator[Sequence[float]]:
        first = BEFORE * PER_DAY[size]
        for _ in range(runs):
            windows = list(_windows(rng, traffic, size, loss, is_failure=rule is not None and rule.maximum is not None))
            alarms = np.array(_rolling_z(windows, size) if rule is None else _alarms(rule, windows))
            if not loss:
                yield float(np.sum(alarms >= first)), float(np.any(alarms >= first))
                continue
            after = alarms[alarms >= first]
            delay = (after[0] - first + 1) * 24 / PER_DAY[size] if after.size else math.nan
            yield float(after.size > 0 and after[0] == first), float(delay <= 48), delay

    alarms = UNBOUNDED if rule is None else RARELY if rule.kind in ("fall", "change") else FALSE_ALARMS
    is_large = loss == 0.08 and rule is not None and traffic is not ROUGH
    first, two_days = MOSTLY if traffic in SAFE else FIRST, SOON if is_large else TWO_DAYS
    return Cell(
        kind="monitoring",
        method=f"{method}, {'hourly' if size == 'hour' else 'daily'} windows",
        world=traffic.name,
        n=f"{traffic.a_day:,} a day",
        difference=difference_text(-loss),
        figures=(first, two_days, DELAY) if loss else (alarms, ANY),
        rows=rows,
        thinning=200 if size == "hour" else 20,
    )


def _windows(
    rng: np.random.Generator, traffic: Traffic, size: WindowSize, loss: float, *, is_failure: bool
) -> Iterator[Window]:
    days = BEFORE + WATCHED
    sessions = traffic.a_day // PER_DAY[size] // traffic.session
    for place in range(days * PER_DAY[size]):
        day = place // PER_DAY[size]
        rough = traffic.rough * rng.standard_normal() if traffic.rough else 0.0
        share = (
            traffic.yes + rough + traffic.rhythm * math.sin(2 * math.pi * day / 7) - (loss if day >= BEFORE else 0.0)
        )
        shares: FloatArray | float = share
        if traffic.correlation:
            rest = 1 / traffic.correlation - 1
            shares = rng.beta(share * rest, (1 - share) * rest, sessions)
        passed = rng.binomial(traffic.session, shares, sessions).astype(np.float64)
        yield _window(size, place, traffic.session - passed if is_failure else passed, traffic.session, is_failure)


def _window(size: WindowSize, place: int, sums: FloatArray, session: int, is_failure: bool) -> Window:
    n = sums.size * session
    return Window(
        start=START + place * LENGTH[size],
        slice="all",
        metric="accuracy",
        evaluator_version="v1",
        of="failure" if is_failure else "value",
        n=n,
        missing=0,
        clusters=sums.size,
        weight=float(n),
        total=float(sums.sum()),
        total_squares=float(sums @ sums),
        products=float(sums.sum() * session),
        weight_squares=float(sums.size * session**2),
        lowest=0.0,
        highest=1.0,
        is_binary=True,
    )


def _alarms(rule: WatchSpec, windows: Sequence[Window]) -> list[int]:
    """Return the places of the windows at which a rule alarms: once an incident, as in production."""
    stream = Stream(
        evaluation_id="eval",
        rule=rule,
        metric=MetricSpec(higher_is_better=True, range=(0.0, 1.0)),
        slice="all",
        evaluator_version="v1",
        looks=[],
        ended=[],
        upcoming=windows,
    )
    alarms = []
    for place, window in enumerate(windows):
        stream.look(window, 1)
        event = follow("simulated", stream, 1)
        if event is not None and event.event == "alarm":
            alarms.append(place)
    return alarms


def _rolling_z(windows: Sequence[Window], size: WindowSize) -> list[int]:
    """Return the places of the windows that a rolling z-test finds low, without counting an incident twice in a row."""
    passed = np.array([window.total for window in windows])
    n, span = windows[0].n, Z_DAYS * PER_DAY[size]
    below = []
    for place in range(span, len(windows)):
        before = passed[place - span : place].sum() / (n * span)
        error = math.sqrt(before * (1 - before) * (1 / n + 1 / (n * span)))
        if passed[place] / n - before < -Z * error:
            below.append(place)
    return [place for place in below if place - 1 not in below]
