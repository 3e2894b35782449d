"""The command to run next fits the outcome."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from evalflows.reports.decisions import Decision
from evalflows.reports.next_step import after_experiments
from evalflows.reports.results import Result
from evalflows.store.parquet import Store
from evalflows.store.records import to_json


def decision(conclusion: str, *open_codes: str) -> Decision:
    fields: dict[str, Any] = dict.fromkeys(Decision.__slots__)
    rules = [{"outcome": "open", "reason_code": code, "metric": "right", "text": ""} for code in open_codes]
    fields |= {"decision_id": "dec-1", "conclusion": conclusion, "candidate_experiment_id": "exp-new"}
    return Decision(**fields | {"reasons": to_json(rules), "decided_at": datetime(2026, 1, 1, tzinfo=UTC)})


def result(identity: str) -> Result:
    return Result(**dict.fromkeys(Result.__slots__) | {"experiment_id": identity, "metric": "right"})


@pytest.fixture
def new(store: Store, make: Callable[..., Any]) -> list[Result]:
    store.publish("experiments", "exp-new", [make("experiments", experiment_id="exp-new", state="completed")])
    return [result("exp-new")]


@pytest.mark.parametrize(
    ("decisions", "command"),
    [
        ([decision("FAIL")], "evalflows explain dec-1"),
        ([decision("PASS"), decision("FAIL")], "evalflows explain dec-1"),
        ([decision("PASS")], "evalflows baseline approve exp-new"),
        ([], "evalflows baseline approve exp-new"),
        (
            [decision("NOT ENOUGH EVIDENCE", "below_min_examples")],
            "evalflows plan a.yaml  # how many examples would decide",
        ),
        ([decision("NOT ENOUGH EVIDENCE", "missing_could_flip", "too_few")], "evalflows resume exp-new"),
        ([decision("NOT ENOUGH EVIDENCE", "judge_failed_validation")], "evalflows explain dec-1"),
        (
            [decision("NOT ENOUGH EVIDENCE", "no_baseline")],
            "evalflows baseline approve EXPERIMENT  # the one to compare with",
        ),
    ],
)
def test_it_fits_the_outcome(store: Store, new: list[Result], decisions: list[Decision], command: str) -> None:
    assert after_experiments(store, new, decisions, spec="a.yaml") == command


def test_after_an_explanation_come_the_results(store: Store, new: list[Result]) -> None:
    assert after_experiments(store, new, [decision("FAIL")], explained=True) == "evalflows show exp-new --wide"


def test_an_incomplete_experiment_is_resumed(store: Store, make: Callable[..., Any]) -> None:
    store.publish("experiments", "exp-1", [make("experiments", experiment_id="exp-1", state="incomplete")])
    assert after_experiments(store, [result("exp-1")], []) == "evalflows resume exp-1"


def test_several_experiments_are_compared(store: Store, new: list[Result], make: Callable[..., Any]) -> None:
    store.publish("experiments", "exp-old", [make("experiments", experiment_id="exp-old", state="completed")])
    assert after_experiments(store, [result("exp-old"), *new], []) == "evalflows compare exp-old exp-new"
