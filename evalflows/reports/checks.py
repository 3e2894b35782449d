"""Checks in words: of data, of a gate by a backtest, and of how robust composites are to their weights."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from evalflows.reports.formats import code, escaped
from evalflows.store.records import CheckRow, DecisionConclusion, derived_id, from_json
from evalflows.store.sql import ask
from evalflows.store.store import Store

Relation = Literal["baseline", "earlier", "halves"]
"""What a candidate is compared with: the gate's baseline at that time, another earlier experiment, or the other half of
its own repetitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of pairs or replicates, with its interval."""

    count: int
    n: int
    share: float | None
    low: float | None
    high: float | None
    method: str

    @property
    def short_text(self) -> str:
        """The share without its interval, such as `12 %`."""
        return "-" if self.share is None else percent(self.share)

    @property
    def text(self) -> str:
        """The share with its interval, if there is one."""
        span = "" if self.low is None or self.high is None else f" ({percent(self.low)} to {percent(self.high)})"
        return f"{self.short_text}{span}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDecision:
    """The gate's decision on one past pair."""

    candidate_experiment_id: str
    candidate: str
    baseline_experiment_id: str
    baseline: str
    started_at: datetime  # of the candidate
    relation: Relation
    is_same_target: bool
    has_identical_values: bool  # whether candidate and baseline have identical values
    conclusion: DecisionConclusion
    is_refused: bool  # left open because a metric is not comparable
    violates_non_inferiority: bool
    broken: Sequence[str]  # the violated rules, such as `non_inferiority exact_match`
    because: str  # the rules that decided, in words
    n_shared: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Decisions on a group of pairs, counted. Shares exclude pairs that are not comparable or have identical values."""

    n: int
    failed: int
    passed: int
    open: int
    refused: int
    identical: int
    failed_non_inferiority: int  # FAIL by a non-inferiority rule
    experiments: int
    fail: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFall:
    """Decisions on replicates in which the candidate was made worse in one metric."""

    metric: str
    times: int  # the injected fall, as a multiple of the margin
    fall: float
    reached: float  # the mean fall achieved, as far as the values allow
    caught: Share
    passed: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Decisions on sign-flip null replicates: candidate and baseline are swapped at random, thresholds ignored."""

    pairs: int
    replicates: int  # of each pair
    seed: int
    failed: Share
    passed: Share
    open: Share
    falls: Sequence[PlantedFall]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """The backtest of one gate."""

    gate: str
    policy: dict[str, Any]
    experiments: int  # complete ones that have the gate's metrics
    decisions: Sequence[PastDecision]  # newest first
    left_out: int  # older pairs beyond the limit
    past: Counted  # different targets
    same_target: Counted
    halves: Counted
    simulated: Simulated | None
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the backtest as a dict for JSON, with its sentences."""
        return {**asdict(self), "sentences": self.sentences}

    @property
    def sentences(self) -> list[str]:
        """The backtest in sentences."""
        return [
            *_past(self),
            *_same_target(self),
            *(_simulated(self.simulated) if self.simulated else ()),
            *self.notes,
        ]


def percent(share: float) -> str:
    """Format a share as whole percent, with one decimal below 10 and above 90 %."""
    per_cent = 100 * share
    digits = 0 if 10 <= per_cent <= 90 else 1
    return f"{per_cent:.{digits}f}".removesuffix(".0") + " %"


def _past(backtest: Backtest) -> list[str]:
    past = backtest.past
    if not past.n:
        return [
            f"no past pairs of different targets: {backtest.experiments} complete experiments have the gate's metrics"
        ]
    refused = f"; {past.refused} could not be compared (not counted as blocked)" if past.refused else ""
    left_out = f"; {backtest.left_out} older pairs were left out" if backtest.left_out else ""
    return [
        f"of {_pairs(past.n, 'past pair')} of different targets, the gate would have blocked {past.failed} (FAIL), "
        f"passed {past.passed} (PASS) and left {past.open} open (NOT ENOUGH EVIDENCE){refused}{left_out}"
    ]


def _same_target(backtest: Backtest) -> list[str]:
    groups = (("of the same target", backtest.same_target), ("of two halves of repetitions", backtest.halves))
    sentences = [sentence for what, counted in groups for sentence in _without_difference(what, counted)]
    return sentences or [
        "no two experiments have the same target, and none has repetitions: the false-alarm rate is unknown"
    ]


def _without_difference(what: str, counted: Counted) -> Iterator[str]:
    """Yield sentences about pairs without a true difference."""
    if counted.fail.n:
        only_false_alarms = counted.failed_non_inferiority == counted.failed
        false_alarms = (
            ""
            if only_false_alarms
            else f", {counted.failed_non_inferiority} of them by a non-inferiority rule (a false alarm)"
        )
        yield (
            f"on {_pairs(counted.fail.n, 'pair')} {what} (from {counted.experiments} experiments), the gate decided "
            f"FAIL {counted.failed} times, {counted.fail.text}{false_alarms}; "
            f"NOT ENOUGH EVIDENCE {counted.open} times, PASS {counted.passed} times"
        )
    if counted.identical:
        yield f"{_pairs(counted.identical, 'more pair')} {what} had identical values: not counted"


def _simulated(simulated: Simulated) -> list[str]:
    return [
        f"on {simulated.replicates} replicates without a difference of each of {_pairs(simulated.pairs, 'pair')}, the "
        f"gate decided FAIL in {simulated.failed.short_text}, NOT ENOUGH EVIDENCE in {simulated.open.short_text}, "
        f"PASS in {simulated.passed.short_text}",
        *map(_planted, simulated.falls),
    ]


def _planted(fall: PlantedFall) -> str:
    times = {1: "its margin", 2: "twice its margin", 3: "3 times its margin"}[fall.times]
    limited = "" if fall.reached > 0.95 * fall.fall else f"; its values allow {fall.reached:.3g}"
    return (
        f"{fall.metric} worse by {times} ({fall.fall:.3g}{limited}): caught in {fall.caught.short_text}, "
        f"passed in {fall.passed.short_text}"
    )


def _pairs(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


MARKS = {True: "ok", False: "**failed**", None: "**not checked**"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedExperiment:
    """An experiment with the checks of its results."""

    experiment_id: str
    name: str
    checks: Sequence[CheckRow]

    @property
    def findings(self) -> list[CheckRow]:
        """The checks that do not hold, or could not be made."""
        return [check for check in self.checks if not check.passed]

    @property
    def errors(self) -> list[CheckRow]:
        """Those of them on which figures depend."""
        return failed(self.checks)

    @property
    def summary(self) -> str:
        """How many of the expectations hold."""
        held = len(self.checks) - len(self.findings)
        return f"{self.name} ({self.experiment_id}): {held} of {len(self.checks)} expectations hold"

    def lines(self) -> list[str]:
        """A line for each finding."""
        return [f"{check.severity}: {check.message}" for check in self.findings]

    def document(self) -> dict[str, Any]:
        """All checks as values of JSON."""
        return {
            "experiment_id": self.experiment_id,
            "name": self.name,
            "n_expectations": len(self.checks),
            "n_findings": len(self.findings),
            "checks": [_document(check) for check in self.checks],
        }


def failed(checks: Sequence[CheckRow]) -> list[CheckRow]:
    """Return the checks of severity error that did not pass."""
    return [check for check in checks if check.severity == "error" and not check.passed]


def first_of(messages: Sequence[str | None]) -> str:
    """Return the first message, and how many more there are."""
    more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
    return f"{messages[0]}{more}"


def checks_page(what: str, identity: str, checks: Sequence[CheckRow], said: Callable[[CheckRow], str]) -> str:
    """Return a table of checks in Markdown, each with what is `said` of it, below what they are of."""
    lines = [f"| {MARKS[row.passed]} | {row.severity} | {escaped(said(row))} |" for row in checks]
    return "\n".join([f"{what} {code(identity)}", "", "| | severity | check |", "|---|---|---|", *lines])


def _document(check: CheckRow) -> dict[str, Any]:
    fields = asdict(check)
    names = ("check_id", "name", "column_name", "passed", "severity", "n_checked", "n_unexpected", "message")
    values = {name: from_json(fields[name]) for name in ("observed", "expected")}
    return {name: fields[name] for name in names} | values


WEIGHTS, PARETO = "weights", "pareto"
"""Names of the checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsReport:
    """One composite: which system wins with the declared weights, with each weight changed, and over all weights."""

    composite: str
    passed: bool | None  # whether no small change of a single weight changes the winner
    observed: dict[str, Any]

    @property
    def sentences(self) -> list[str]:
        return list(self.observed["sentences"])

    @property
    def systems(self) -> list[tuple[str, str, str, str]]:
        """Each system, its mean composite, the share of weights under which it wins, and the share's standard error."""
        scores: dict[str, float | None] = self.observed["scores"] or {}
        shares, errors = self.observed["shares"] or {}, self.observed["standard_errors"] or {}
        return [
            (system, _figure(score), _share(shares.get(system)), _share(errors.get(system)))
            for system, score in scores.items()
        ]

    @property
    def changes(self) -> list[tuple[str, str, str, str]]:
        """Each changed weight: the metric, its old and new weight, and the leading systems."""
        weights = self.observed["weights"]
        return [
            (
                change["part"],
                _figure(weights[change["part"]]),
                _figure(change["weight"]),
                " and ".join(change["leaders"]),
            )
            for change in self.observed["changes"]
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoReport:
    """The Pareto front: systems that no other system dominates."""

    observed: dict[str, Any]

    @property
    def sentences(self) -> list[str]:
        return list(self.observed["sentences"])

    @property
    def metrics(self) -> list[str]:
        """Each metric with its better direction."""
        return [f"{metric} ({'higher' if up else 'lower'})" for metric, up in self.observed["higher_is_better"].items()]

    @property
    def systems(self) -> list[tuple[str, ...]]:
        """Each system, its means, whether it is on the front, in what share of resamples, and what dominates it."""
        return [
            (
                system["system"],
                *(_figure(mean) for mean in system["means"].values()),
                "yes" if system["on_front"] else "no",
                _share(system["share"]),
                system["dominated_by"] or "",
            )
            for system in self.observed["systems"]
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustnessReport:
    """Everything that is shown about the robustness of a run group's composites."""

    composites: Sequence[WeightsReport]
    pareto: ParetoReport | None


def robustness_batch(run_group: str) -> str:
    """Return the id of the batch of robustness checks of a run group."""
    return derived_id(run_group, "robustness")


def robustness_report(store: Store, run_group: str) -> RobustnessReport:
    """Return the latest robustness report of a run group; empty if it was never checked."""
    (rows,) = ask(store, (_CHECKS, [robustness_batch(run_group)]))
    weights = [
        WeightsReport(composite=subject, passed=passed, observed=from_json(observed))
        for name, subject, passed, observed in rows
        if name == WEIGHTS
    ]
    fronts = [ParetoReport(observed=from_json(observed)) for name, _, _, observed in rows if name == PARETO]
    return RobustnessReport(composites=weights, pareto=next(iter(fronts), None))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


_CHECKS = """
select name, subject_id, passed, observed::varchar from checks where batch_id = ? and subject_kind = 'experiment'
order by name, subject_id
"""
