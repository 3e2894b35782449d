"""The command to run next fits the outcome."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from evalflows.reports.decisions import Decision
from evalflows.reports.markdown_pages import after_experiments
from evalflows.reports.results import Result
from evalflows.store.records import to_json
from evalflows.store.store import Store

RULE = {"rule": "non_inferiority", "bound": 0.1}


def decision(conclusion: str, *open_codes: str) -> Decision:
    fields: dict[str, Any] = dict.fromkeys(Decision.__slots__)
    rules = [{"outcome": "open", "reason_code": code, "metric": "right", "text": "", **RULE} for code in open_codes]
    fields |= {"decision_id": "dec-1", "conclusion": conclusion, "candidate_experiment_id": "exp-new"}
    return Decision(**fields | {"reasons": to_json(rules), "decided_at": datetime(2026, 1, 1, tzinfo=UTC)})


def result(identity: str, **fields: Any) -> Result:
    known = {"experiment_id": identity, "metric": "right", "scored": 40, "missing": 0}
    return Result(**dict.fromkeys(Result.__slots__) | known | fields)


@pytest.fixture
def new(store: Store, make: Callable[..., Any]) -> list[Result]:
    row = make("experiments", experiment_id="exp-new", state="completed", n_examples=40, repetitions=1)
    store.publish("experiments", "exp-new", [row])
    return [result("exp-new")]


def test_it_fits_the_outcome(store: Store, new: list[Result]) -> None:
    approve, explain, no_evidence = "baseline approve exp-new", "explain dec-1", "NOT ENOUGH EVIDENCE"
    for decisions, command in (
        ([decision("PASS"), decision("FAIL")], explain),
        ([decision("PASS")], approve),
        ([], approve),
        ([decision(no_evidence, "below_min_examples")], "plan a.yaml  # how many examples are needed"),
        ([decision(no_evidence, "missing_could_flip", "too_few")], explain),  # sealed: resuming would change nothing
        ([decision(no_evidence, "judge_failed_validation")], explain),
        ([decision(no_evidence, "no_baseline")], approve),
    ):
        assert str(after_experiments(store, new, decisions, spec="a.yaml")) == f"evalflows {command}"
    assert str(after_experiments(store, new, [decision("FAIL")], explained=True)) == "evalflows show exp-new --all"
    fields: list[tuple[dict[str, Any], str]] = [
        ({"missing": 2, "scored": 38}, approve),
        ({"missing": 3, "scored": 37, "conclusion": "worse"}, "show exp-new --worst right"),  # none is stored
        ({"conclusion": "worse", "baseline_experiment_id": "old"}, "show exp-new --worst right --against old"),
        ({"conclusion": "not_enough_evidence"}, approve),
        ({"metric": "latency", "missing": 40, "scored": 0}, approve),
    ]
    for given, command in fields:
        assert str(after_experiments(store, [result("exp-new", **given)], [])).startswith(f"evalflows {command}")


def test_failed_answers_are_looked_at_first(store: Store, new: list[Result], make: Callable[..., Any]) -> None:
    failed = [make("outputs", run_id=f"r{n}", experiment_id="exp-new", status="failed", error="no") for n in range(3)]
    store.publish("outputs", "exp-new", failed[:2])
    assert str(after_experiments(store, new, [])) == "evalflows baseline approve exp-new"
    store.publish("outputs", "exp-new", failed)
    assert str(after_experiments(store, new, [])).startswith(
        'evalflows sql "select example_id, error from outputs where '
    )


def test_an_incomplete_experiment_is_resumed(store: Store, make: Callable[..., Any]) -> None:
    store.publish("experiments", "exp-1", [make("experiments", experiment_id="exp-1", state="incomplete")])
    assert str(after_experiments(store, [result("exp-1")], [])) == "evalflows resume exp-1"


def test_several_experiments_are_compared(store: Store, new: list[Result], make: Callable[..., Any]) -> None:
    store.publish("experiments", "exp-old", [make("experiments", experiment_id="exp-old", state="completed")])
    assert str(after_experiments(store, [result("exp-old"), *new], [])) == "evalflows diff exp-old exp-new"
