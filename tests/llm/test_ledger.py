"""The ledger of finished calls, which other processes add to."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from evalflows.llm import loop
from evalflows.llm.ledger import Ledger, key_of_text
from evalflows.store.store import Store

Make = Callable[..., Any]


def paid(make: Make, question: str, **fields: Any) -> Any:
    fields = {"call_id": question, "experiment_id": "exp-1", "response": question} | fields
    return make("calls", status="ok", reusable=True, call_key=key_of_text("mock", question, 0), **fields)


def found(ledger: Ledger, question: str) -> str | None:
    row = loop.run(ledger.find(key_of_text("mock", question, 0)))
    return row.response if row else None


def test_calls_that_another_process_has_recorded_are_known_after_a_refresh(store: Store, make: Make) -> None:
    store.append("calls", "exp-1", "one", [paid(make, "first")])
    ledger = Ledger(store, "exp-1")
    assert found(ledger, "first") == "first"
    store.append("calls", "exp-1", "two", [paid(make, "second")])
    assert found(ledger, "second") is None
    ledger.refresh()
    ledger.add(replace(paid(make, "third"), reusable=False))
    assert [found(ledger, question) for question in ("first", "second", "third")] == ["first", "second", None]


def test_of_several_answers_to_a_request_the_newest_counts_unless_one_is_the_experiments_own(
    store: Store, make: Make
) -> None:
    """Whatever is asked first: else one run would mix answers of several states of a judge."""
    for experiment, hours in {"exp-1": {"a": 1, "b": 6, "c": 2}, "exp-2": {"a": 3, "b": 4, "c": 5}}.items():
        for part, later in (("late", 0.5), ("early", 0)):
            calls = [
                paid(
                    make,
                    question,
                    call_id=f"{experiment}-{question}-{part}",
                    experiment_id=experiment,
                    response=f"{experiment}, {part}",
                    recorded_at=datetime(2026, 1, 1, hour, int(60 * later), tzinfo=UTC),
                )
                for question, hour in hours.items()
            ]
            store.append("calls", experiment, part, calls)
    newest = {"a": "exp-2, late", "b": "exp-1, late", "c": "exp-2, late"}
    for order in ("abc", "bca", "cab"):
        ledger = Ledger(store, "exp-3")
        assert {question: found(ledger, question) for question in order} == newest
    for ledger in (Ledger(store, "exp-1"), Ledger(store, "exp-1", fresh=True)):
        assert {found(ledger, question) for question in "abc"} == {"exp-1, late"}
