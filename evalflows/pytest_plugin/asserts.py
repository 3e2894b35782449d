"""Assertions about experiments, and which test ran which.

The rest of evalflows is imported with the first assertion.
"""

# It follows pytest through hooks: an experiment run during a fixture's setup belongs to the fixture, any other to the
# test.

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from evalflows.specs.frozen import dataclass

if TYPE_CHECKING:
    from evalflows import ExperimentResult
    from evalflows.store.records import DecisionRow


ACTIVE: list[Ran] = []
"""The last belongs to the test that is running: a test may run pytest itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    experiment: str
    node: str  # id of the node that it belongs to: a test, a class, a module, …
    fixture: str | None  # None: run by the test itself


class Ran:
    """The experiments run in one pytest session."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self.all: list[str] = []
        self._setting_up: list[tuple[str, str]] = []
        self._item: pytest.Item | None = None

    def add(self, experiment: str) -> None:
        """Record an experiment that has just been run."""
        fixture, node = self._setting_up[-1] if self._setting_up else (None, self._item.nodeid if self._item else "")
        self._entries.append(_Entry(experiment=experiment, node=node, fixture=fixture))
        self.all.append(experiment)

    def default_experiments(self) -> list[str]:
        """Return the last experiment that the current test ran itself, else all that its fixtures ran."""
        if self._item is None:
            return []
        nodeid = self._item.nodeid
        own = [entry.experiment for entry in self._entries if entry.fixture is None and entry.node == nodeid]
        return own[-1:] or list(self._of_fixtures(self._item))

    def _of_fixtures(self, item: pytest.Item) -> Generator[str]:
        nodes, fixtures = {node.nodeid for node in item.listchain()}, {*getattr(item, "fixturenames", ())}
        for entry in self._entries:
            if entry.fixture in fixtures and entry.node in nodes:
                yield entry.experiment

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        self._item = item
        ACTIVE.append(self)
        try:
            return (yield)
        finally:
            ACTIVE.pop()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        fixture = (fixturedef.argname, request.node.nodeid)
        # If it is set up again with another parameter, its earlier experiments no longer count.
        self._entries = [entry for entry in self._entries if (entry.fixture, entry.node) != fixture]
        self._setting_up.append(fixture)
        try:
            return (yield)
        finally:
            self._setting_up.pop()


if TYPE_CHECKING:
    Compared = str | ExperimentResult


APPROVED = "approved:"


class EvidenceWarning(UserWarning):
    """There was not enough evidence to decide an assertion, and the test allows that."""


def assert_no_regression(
    candidate: Compared,
    baseline: Compared,
    metric: str,
    margin: float = 0.05,
    *,
    confidence: float = 0.95,
    min_examples: int = 20,
    only_shared: bool = False,
    allow_open: bool = False,
) -> DecisionRow:
    """Assert that the candidate is not worse than the baseline by more than the margin. Return the decision.

    Args:
        candidate: The result of `evaluate`, or an experiment's name or id.
        baseline: Likewise, or `"approved:NAME"` for the baseline approved under that name.
        metric: The metric that must not get worse.
        margin: The non-inferiority margin in the metric's own unit, greater than 0.
        confidence: The confidence level of the difference's interval.
        min_examples: The minimum number of examples (or clusters) for a conclusion.
        only_shared: Leave out the baseline's examples that the candidate lacks. By default they count as missing.
        allow_open: Only warn (EvidenceWarning) if there is not enough evidence.

    Raise AssertionError if the candidate is worse or there is not enough evidence; InputError for an unknown
    experiment or metric.
    """
    __tracebackhide__ = True
    claim = _Claim(
        name=f"assert_no_regression {metric} {margin:g}",
        metric=metric,
        rules={"non_inferiority": {metric: margin}},
        min_examples=min_examples,
        only_shared=only_shared,
        allow_open=allow_open,
    )
    return _hold(claim, candidate, baseline, confidence)


def assert_at_least(
    metric: str,
    value: float,
    confidence: float = 0.95,
    *,
    experiment: Compared | None = None,
    sure: bool = True,
    min_examples: int = 20,
    allow_open: bool = False,
) -> DecisionRow:
    """Assert that the lower confidence bound of a metric's mean is at least the value. Return the decision.

    Args:
        metric: A metric for which higher is better.
        value: The threshold.
        confidence: The confidence level of the mean's interval.
        experiment: The result of `evaluate`, or an experiment's name or id. By default the last experiment that this
            test ran itself, with the fixtures `evaluate` and `evalflows_run`; else the one that its fixtures ran.
        sure: Compare the interval's lower bound with the value; if false, the mean of the scored examples.
        min_examples: As in `assert_no_regression`.
        allow_open: As in `assert_no_regression`.

    Raise AssertionError and InputError as `assert_no_regression` does; also InputError if `experiment` is omitted and
    none, or more than one, was run.
    """
    __tracebackhide__ = True
    rules = {"confident_thresholds" if sure else "thresholds": {metric: value}}
    claim = _Claim(
        name=f"assert_at_least {metric} {value:g}",
        metric=metric,
        rules=rules,
        min_examples=min_examples,
        allow_open=allow_open,
        more_is_better=True,
    )
    return _hold(claim, experiment, None, confidence)


def assert_at_most(
    metric: str,
    value: float,
    confidence: float = 0.95,
    *,
    experiment: Compared | None = None,
    sure: bool = True,
    min_examples: int = 20,
    allow_open: bool = False,
) -> DecisionRow:
    """Assert that the upper confidence bound of a metric's mean is at most the value. Return the decision.

    For a metric such as latency, for which lower is better. Otherwise like `assert_at_least`.
    """
    __tracebackhide__ = True
    rules = {"confident_thresholds" if sure else "thresholds": {metric: value}}
    claim = _Claim(
        name=f"assert_at_most {metric} {value:g}",
        metric=metric,
        rules=rules,
        min_examples=min_examples,
        allow_open=allow_open,
        more_is_better=False,
    )
    return _hold(claim, experiment, None, confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """An assertion: one rule of a gate."""

    name: str
    """The name under which the decision is stored."""
    metric: str
    rules: Mapping[str, Mapping[str, float]]
    min_examples: int
    allow_open: bool
    only_shared: bool = False
    more_is_better: bool | None = None  # the direction that the metric must have; None: either


def _hold(claim: _Claim, candidate: Compared | None, baseline: Compared | None, confidence_level: float) -> DecisionRow:
    """Return the decision if the claim holds; raise otherwise."""
    __tracebackhide__ = True
    from evalflows.pytest_plugin.message import message
    from evalflows.specs.errors import InputError
    from evalflows.specs.escaping import one_line

    try:
        decision = _decide(claim, candidate, baseline, confidence_level)
        text = "" if decision.conclusion == "PASS" else message(claim.metric, decision)
    except InputError as error:  # report the test's line, without the traceback below it
        raise InputError(one_line(str(error))) from None
    if decision.conclusion == "NOT ENOUGH EVIDENCE" and claim.allow_open:
        warnings.warn(EvidenceWarning(text), stacklevel=3)
    elif decision.conclusion != "PASS":
        raise AssertionError(text)
    return decision


def _decide(
    claim: _Claim, candidate: Compared | None, baseline: Compared | None, confidence_level: float
) -> DecisionRow:
    from pydantic import ValidationError

    from evalflows import decide_on
    from evalflows.specs.errors import InputError, first_problem
    from evalflows.specs.gate import GateSpec

    if not 0 < confidence_level < 1:
        raise InputError(f"confidence: got {confidence_level}, wanted a number between 0 and 1, such as 0.95")
    try:
        settings = {"name": claim.name, "min_examples": claim.min_examples, "only_shared": claim.only_shared}
        gate = GateSpec.model_validate({**settings, **claim.rules})
    except ValidationError as error:
        raise InputError(first_problem(error, claim.metric, GateSpec)) from None
    chosen = _identity(_default_experiment(claim.metric) if candidate is None else candidate)
    _check(claim, chosen)
    return decide_on(chosen, _resolve_baseline(baseline), gate, confidence_level)


def _identity(experiment: Compared) -> str:
    from evalflows.store import Store
    from evalflows.store.queries.lookup import find_experiments

    if not isinstance(experiment, str):
        return experiment.experiment_id
    (identity,) = find_experiments(Store(), experiment, just_one=True)
    return identity


def _default_experiment(metric: str) -> str:
    from evalflows.specs.errors import InputError

    experiments = ACTIVE[-1].default_experiments() if ACTIVE else []
    if len(experiments) != 1:
        got = (
            f"{len(experiments)} run by this test's fixtures"
            if experiments
            else "none run by this test or its fixtures"
        )
        raise InputError(f"{metric}: experiment: got {got}, wanted experiment=…")
    return experiments[0]


def _resolve_baseline(baseline: Compared | None) -> Compared | None:
    """Return an approved baseline's experiment id; any other baseline unchanged."""
    from evalflows.specs import hints
    from evalflows.specs.errors import InputError
    from evalflows.store import Store
    from evalflows.store.queries.conclusions import approved

    if not isinstance(baseline, str) or not baseline.startswith(APPROVED):
        return baseline
    name = baseline.removeprefix(APPROVED)
    if (approval := approved(Store(), name)) is None:
        raise InputError(f"baseline {name!r}: not approved, wanted a name approved with {hints.approve_as(name).code}")
    return approval.experiment_id


def _check(claim: _Claim, experiment: str) -> None:
    """Raise InputError for an unknown metric, or one with the opposite direction, before a decision is stored."""
    from evalflows.reports.results import results_of
    from evalflows.reports.worst import is_higher_better
    from evalflows.specs.errors import InputError
    from evalflows.specs.metric_names import metric_of
    from evalflows.store import Store

    store = Store()
    known = sorted({result.metric for result in results_of(store, [experiment]) if result.has_rows})
    metric = metric_of(claim.metric)
    if metric not in known:
        wanted = f"one of {', '.join(known)}" if known else "an experiment with metrics"
        raise InputError(f"metric: got {claim.metric!r}, wanted {wanted}")
    if claim.more_is_better not in (None, is_higher_better(store, experiment, metric)):
        better, instead = ("lower", "assert_at_most") if claim.more_is_better else ("higher", "assert_at_least")
        raise InputError(f"{claim.metric}: {better} is better, wanted {instead}")
