"""What a test asserts of experiments. Nothing of evalflows is imported before the first assertion is made."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_plugin.ran import ACTIVE

if TYPE_CHECKING:
    from flows import ExperimentResult
    from store.records import DecisionRow

    Compared = str | ExperimentResult

APPROVED = "approved:"


class EvidenceWarning(UserWarning):
    """There was not enough evidence to say whether an assertion holds, and the test allows that."""


def assert_no_regression(
    candidate: Compared,
    baseline: Compared,
    metric: str,
    margin: float = 0.05,
    *,
    confidence: float = 0.95,
    fewest: int = 20,
    allow_open: bool = False,
) -> DecisionRow:
    """The candidate is surely not worse than the baseline by more than the margin. Returns the decision.

    Args:
        candidate: What `evaluate` gave back, or an experiment's name or id.
        baseline: The same, or `"approved:NAME"` for what is approved as the baseline of that name.
        metric: What must not fall (or rise, where less is better).
        margin: By how much it may, in the metric's own unit; more than 0.
        confidence: How often the interval of the difference covers the truth.
        fewest: Of fewer examples (or clusters) nothing is said.
        allow_open: Only warn (EvidenceWarning) where there is not enough evidence to say either.

    Raises AssertionError where it is worse, and where there is not enough evidence; InputError for an experiment or a
    metric that there is not.
    """
    __tracebackhide__ = True
    claim = _Claim(metric=metric, rules={"guards": {metric: margin}}, fewest=fewest, allow_open=allow_open)
    return _hold(claim, candidate, baseline, confidence)


def assert_at_least(
    metric: str,
    value: float,
    confidence: float = 0.95,
    *,
    experiment: Compared | None = None,
    sure: bool = True,
    fewest: int = 20,
    allow_open: bool = False,
) -> DecisionRow:
    """Even the lower end of the interval of a metric's mean reaches the value. Returns the decision.

    Args:
        metric: One of which more is better.
        value: What it must reach.
        confidence: How often the interval covers the true mean.
        experiment: What `evaluate` gave back, or an experiment's name or id. Where left out: the last that this test
            ran itself, by the fixtures `evaluate` and `evalflows_run`; else the one that the test's own fixtures ran.
        sure: Hold the interval's lower end against the value; if not, the mean of what is there.
        fewest: As in `assert_no_regression`.
        allow_open: As in `assert_no_regression`.

    Raises AssertionError and InputError as `assert_no_regression`; InputError too where no experiment, or more than
    one, can be meant.
    """
    __tracebackhide__ = True
    rules = {"sure_floors" if sure else "floors": {metric: value}}
    claim = _Claim(metric=metric, rules=rules, fewest=fewest, allow_open=allow_open, more_is_better=True)
    return _hold(claim, experiment, None, confidence)


def assert_at_most(
    metric: str,
    value: float,
    confidence: float = 0.95,
    *,
    experiment: Compared | None = None,
    sure: bool = True,
    fewest: int = 20,
    allow_open: bool = False,
) -> DecisionRow:
    """Even the upper end of the interval of a metric's mean does not exceed the value, of a metric such as latency, of
    which less is better. All else is as in `assert_at_least`.
    """
    __tracebackhide__ = True
    rules = {"sure_floors" if sure else "floors": {metric: value}}
    claim = _Claim(metric=metric, rules=rules, fewest=fewest, allow_open=allow_open, more_is_better=False)
    return _hold(claim, experiment, None, confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """What is asserted: one rule of a gate."""

    metric: str
    rules: Mapping[str, Mapping[str, float]]
    fewest: int
    allow_open: bool
    more_is_better: bool | None = None  # which way the metric must go; None: either


def _hold(claim: _Claim, candidate: Compared | None, baseline: Compared | None, level: float) -> DecisionRow:
    """The decision; raises where it is not that the claim holds."""
    __tracebackhide__ = True
    from specs.errors import InputError

    try:
        decision = _decide(claim, candidate, baseline, level)
        text = _told(claim, decision)
    except InputError as error:  # a line of the test, and not of what lies below
        raise InputError(str(error)) from None
    if decision.conclusion == "NOT ENOUGH EVIDENCE" and claim.allow_open:
        warnings.warn(EvidenceWarning(text), stacklevel=3)
    elif decision.conclusion != "PASS":
        raise AssertionError(text)
    return decision


def _decide(claim: _Claim, candidate: Compared | None, baseline: Compared | None, level: float) -> DecisionRow:
    from pydantic import ValidationError

    from flows import decide_on
    from specs.errors import InputError, first_problem
    from specs.gate import GateSpec

    if not 0 < level < 1:
        raise InputError(f"confidence: got {level}, wanted a share between 0 and 1, such as 0.95")
    try:
        gate = GateSpec.model_validate({"name": "pytest", "fewest": claim.fewest, **claim.rules})
    except ValidationError as error:
        raise InputError(first_problem(error, claim.metric)) from None
    chosen = _meant(claim.metric) if candidate is None else candidate
    decision = decide_on(chosen, _approved(baseline), gate, level)
    _check(claim, decision)
    return decision


def _meant(metric: str) -> str:
    """The experiment of an assertion that names none."""
    from specs.errors import InputError

    found = ACTIVE[-1].meant() if ACTIVE else []
    if len(found) != 1:
        got = f"{len(found)} that this test's fixtures ran" if found else "none that this test or its fixtures ran"
        raise InputError(f"{metric}: which experiment? Got {got}, wanted experiment=…")
    return found[0]


def _approved(baseline: Compared | None) -> Compared | None:
    """An approved baseline by its experiment's id; another one as it is."""
    from specs.errors import InputError
    from store import Store
    from store.baselines import approved

    if not isinstance(baseline, str) or not baseline.startswith(APPROVED):
        return baseline
    name = baseline.removeprefix(APPROVED)
    if (found := approved(Store(), name)) is None:
        how = f"`evalflows baseline approve EXPERIMENT --name {name}` does that"
        raise InputError(f"baseline {name!r}: nothing is approved under that name; {how}")
    return found.experiment_id


def _check(claim: _Claim, decision: DecisionRow) -> None:
    """Raises InputError for a metric that there is not, or that goes the other way."""
    from specs.errors import InputError
    from store import Store
    from store.results import results_of
    from store.worst_items import is_higher_better

    store, experiment = Store(), decision.candidate_experiment_id
    if decision.conclusion == "NOT ENOUGH EVIDENCE":
        known = sorted({one.metric for one in results_of(store, [experiment]) if one.says_something})
        if claim.metric not in known:
            raise InputError(f"metric {claim.metric!r}: wanted one of {', '.join(known) or 'none at all'}")
    if claim.more_is_better not in (None, is_higher_better(store, experiment, claim.metric)):
        way, instead = ("less", "assert_at_most") if claim.more_is_better else ("more", "assert_at_least")
        raise InputError(f"{claim.metric}: {way} of it is better, wanted {instead}")


def _told(claim: _Claim, decision: DecisionRow) -> str:
    from pytest_plugin.message import message

    return "" if decision.conclusion == "PASS" else message(claim.metric, decision)
