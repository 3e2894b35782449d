"""The ledger of finished calls, which other processes add to."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evalflows.llm import loop
from evalflows.llm.ledger import Ledger, key_of_text
from evalflows.store.store import Store

Make = Callable[..., Any]


def paid(make: Make, question: str) -> Any:
    fields = {"call_key": key_of_text("mock", question, 0), "call_id": question, "experiment_id": "exp-1"}
    return make("calls", status="ok", reusable=True, response=question, **fields)


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
