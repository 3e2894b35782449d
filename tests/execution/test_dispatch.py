"""The parts of a budget that chunks bring along to other processes."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.engine.budget_parts import Left, budget_of_part, left_of, with_dispatch
from evalflows.engine.chunks import Dispatch, ExampleChunk
from evalflows.llm.ledger import Calls
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import CallError
from evalflows.store.queries.spending import Paid, spent_on_part, was_over_budget
from evalflows.store.records import now
from evalflows.store.store import Store
from evalflows.tasks.take_up import _with_costs

Make = Callable[..., Any]
FIRST, SECOND = ExampleChunk("e1", 0, 0, 30), ExampleChunk("e1", 0, 30, 40)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(0, 1000), st.floats(0, 1000))
def test_the_parts_add_up_to_the_whole(sizes: list[int], calls: int, usd: float) -> None:
    left, total, before = Left(usd=usd, calls=calls, counts_unknown=True), sum(sizes), 0
    parts = []
    for size in sizes:
        parts.append(left.share(before, before + size, total))
        before += size
    assert sum(part.calls or 0 for part in parts) == calls
    assert sum(part.usd or 0.0 for part in parts) == pytest.approx(usd)
    assert all(abs((part.calls or 0) - calls * size / total) < 1 for part, size in zip(parts, sizes, strict=True))


def left(usd: float | None, calls: int | None, spent: Paid, *, counts_unknown: bool = True) -> Left:
    fields = {"budget_usd": usd, "max_calls": calls, "budget_counts_unknown": counts_unknown}
    return left_of(ComparisonSpec.model_validate({"experiments": ["e1", "e2"], "evaluators": ["x:y"]} | fields), spent)


def test_a_limit_that_is_overspent_leaves_nothing_and_neither_do_calls_of_unknown_cost() -> None:
    over, unknown = Paid(12, 1.5, 0.0, 0), Paid(2, 0.1, 0.0, 1)
    assert left(1.0, 10, over) == Left(usd=0.0, calls=0, counts_unknown=True)
    assert not left(None, None, over).is_limited and not left(None, None, over).is_spent
    assert left(None, 12, over).is_spent
    assert left(1.0, 10, unknown).is_spent
    assert left(1.0, 10, unknown, counts_unknown=False) == Left(usd=0.9, calls=8, counts_unknown=False)


def test_a_chunk_brings_along_its_part_and_what_it_has_spent(store: Store, make: Make) -> None:
    paid = [make("calls", call_id=f"c{n}", experiment_id="e1", cost_usd=0.5) for n in range(3)]
    store.append("calls", "e1", SECOND.part_name, paid)
    sent = with_dispatch(store, [FIRST, SECOND], now(), Left(usd=8.0, calls=8, counts_unknown=False), items=80)
    assert [(one.dispatch.usd, one.dispatch.calls) for one in sent if one.dispatch] == [(3.0, 3), (1.0 + 1.5, 1 + 3)]
    assert [chunk.part_name for chunk in sent] == [FIRST.part_name, SECOND.part_name]


def test_what_a_killed_process_has_spent_counts(store: Store, make: Make) -> None:
    """The process that takes up its chunk has only the rest."""
    store.append("calls", "e1", FIRST.part_name, [make("calls", call_id="c1", experiment_id="e1", cost_usd=0.5)])
    chunk = ExampleChunk("e1", 0, 0, 30, dispatch=Dispatch(attempt=now(), usd=1.0, calls=2))
    budget = budget_of_part(store, chunk)
    budget.reserve_now(is_priced=True)
    with pytest.raises(CallError, match="2 of 2 calls"):
        budget.reserve_now(is_priced=True)


def test_a_run_counts_what_dead_processes_have_paid_for_its_chunks_and_each_call_once(store: Store, make: Make) -> None:
    calls = [make("calls", call_id=name, experiment_id="e1", cost_usd=0.5) for name in ("before", "lost", "later")]
    store.append("calls", "e1", FIRST.part_name, calls[:1])
    (chunk,) = with_dispatch(store, [FIRST], now(), Left(usd=None, calls=None, counts_unknown=False), items=30)
    store.append("calls", "e1", FIRST.part_name, calls[1:2])  # recovered from the spool of a dead process
    answered = _with_costs(store, chunk)
    store.append("calls", "e1", FIRST.part_name, calls[2:])
    made = Calls()
    for done in (answered, _with_costs(store, chunk)):
        made.count_elsewhere("e1", done.dispatch.costs if done.dispatch else {})
    assert (made.made["e1"], made.cost(["e1"])) == (2, 1.0)


def test_of_a_part_each_call_and_each_answer_of_an_application_counts_until_it_is_resumed(
    store: Store, make: Make
) -> None:
    for _ in range(2):  # stored twice, as after a recovery
        store.append("calls", "e1", FIRST.part_name, [make("calls", call_id="c1", experiment_id="e1", cost_usd=0.5)])
    assert spent_on_part(store, "e1", FIRST.part_name) == (1, 0.5, 0.0, 0)
    store.append("experiments", "e1", "start", [make("experiments", experiment_id="e1", target_kind="http")])
    answers = [
        make("outputs", run_id="r1", experiment_id="e1", status="ok", cost_usd=0.25),
        make("outputs", run_id="r2", experiment_id="e1", status="failed", error="down", cost_usd=None),
    ]
    store.append("outputs", "e1", FIRST.part_name, answers)
    assert spent_on_part(store, "e1", FIRST.part_name) == (2, 0.75, 0.0, 0)
    store.seal("e1", ["calls", "outputs"])
    store.reopen("e1", ["calls", "outputs"])
    assert spent_on_part(store, "e1", FIRST.part_name) == (0, 0.0, 0.0, 0)
    row = make("judgements", experiment_id="e1", status="not_attempted", error_kind="over_budget", error="spent")
    store.append("judgements", "e1", SECOND.part_name, [row])
    assert [was_over_budget(store, "e1", chunk.part_name) for chunk in (FIRST, SECOND)] == [False, True]
