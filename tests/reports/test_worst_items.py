"""Which examples are shown of a figure: the worst, by the metric's direction, and what is missing."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from evalflows.reports.worst import WorstItem, is_higher_better, plain_text, worst_items
from evalflows.store.records import derived_id, to_json
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.store import Store

Keep = Callable[..., str]
FAILED, NEVER = "failed", "not_attempted"

SPEC = {
    "name": "x",
    "dataset": {"rows": [{"inputs": {"question": "?"}}]},
    "targets": [{"kind": "python", "function": "judges:upper"}],
    "metrics": {"errors": {"higher_is_better": False}},
}


@pytest.fixture
def keep(store: Store, make: Callable[..., Any]) -> Keep:
    """`keep(name, values)`: an experiment with these values of its metric by example; a list is one a repetition."""

    def made(
        name: str, values: Mapping[str, Any], metric: str = "right", *, asked: Sequence[str] = (), again: str = "?"
    ) -> str:
        rows = [{"id": one, "inputs": {"question": f"{one}{again}"}} for one in (asked or values)]
        snapshot = freeze(store, to_examples(enumerate(rows), "rows"), name=None, source="rows")
        runs = [
            (example, repetition, value)
            for example, given in values.items()
            for repetition, value in enumerate(given if isinstance(given, list) else [given])
        ]
        experiment = make(
            "experiments",
            experiment_id=name,
            name=name,
            snapshot_id=snapshot,
            n_examples=len(rows),
            repetitions=1 + max(repetition for _, repetition, _ in runs),
            spec=json.dumps(SPEC),
        )
        store.publish("experiments", name, [experiment])
        store.publish("outputs", name, [_output(make, name, *run) for run in runs])
        store.publish("judgements", name, [_score(make, name, metric, *run) for run in runs])
        return name

    return made


def _output(make: Callable[..., Any], owner: str, example: str, repetition: int, value: object) -> Any:
    answer = to_json({"answer": f"{owner} {example} {repetition}"})
    run = derived_id(owner, example, repetition)
    given = {"run_id": run, "experiment_id": owner, "example_id": example, "repetition": repetition}
    return make("outputs", **given, status="ok", outputs=answer, length=len(str(value)))


def _score(make: Callable[..., Any], owner: str, metric: str, example: str, repetition: int, value: object) -> Any:
    run = derived_id(owner, example, repetition)
    became = {"status": "scored", "value": value, "comment": f"is {value}", "error": None}
    if value in (FAILED, NEVER):
        became = {"status": value, "value": None, "error": f"{value} at {example}"}
    if value is None:
        became = {"status": "not_applicable", "value": None}
    return make(
        "judgements",
        judgement_id=f"{run} {metric}",
        subject_kind="run",
        subject_id=run,
        run_id=run,
        experiment_id=owner,
        example_id=example,
        repetition=repetition,
        metric=metric,
        turn=None,
        **became,
    )


def ids(items: Sequence[WorstItem]) -> list[str]:
    return [item.example_id for item in items]


def test_those_that_fell_the_most_come_first_and_what_rose_is_not_there(store: Store, keep: Keep) -> None:
    keep("old", {"a": 1.0, "b": 1.0, "c": 0.2, "d": 0.5, "e": 0.9})
    keep("new", {"a": 0.7, "b": 0.1, "c": 0.9, "d": 0.5, "e": 0.4})
    found = worst_items(store, "new", "old", "right", 5)
    assert ids(found) == ["b", "e", "a"]
    assert found[0] == WorstItem(
        example_id="b",
        inputs='{"question":"b?"}',
        value=0.1,
        missing=0,
        outputs='{"answer":"new b 0"}',
        comment="is 0.1",
        error=None,
        baseline_value=1.0,
        baseline_missing=0,
        baseline_outputs='{"answer":"old b 0"}',
        baseline_error=None,
    )
    assert worst_items(store, "new", "old", "right", 2) == found[:2]
    assert worst_items(store, "new", "new", "right", 5) == [], "the same values have no worst item"
    keep("shorter", dict.fromkeys("abcde", 1.0) | {"a": 0.125})  # as wide as it is written
    (one,) = worst_items(store, "shorter", "old", "answer_length", 5)
    assert (one.example_id, one.value, one.baseline_value, one.comment) == ("a", 5.0, 3.0, None)


def test_the_other_way_round_those_that_rose_are_worse(store: Store, keep: Keep) -> None:
    values: list[dict[str, Any]] = [{"a": 1, "b": 3, "c": 2}, {"a": 5, "b": 1, "c": 3}]
    for name, each in zip(("old", "new"), values, strict=True):
        keep(name, each, "errors")
    assert ids(worst_items(store, "new", "old", "errors", 5)) == ["a", "c"]
    assert ids(worst_items(store, "old", "new", "errors", 5)) == ["b"]
    assert ids(worst_items(store, "new", None, "errors", 5)) == ["a", "c", "b"]
    assert is_higher_better(store, "new", "right")
    assert not is_higher_better(store, "new", "errors")
    assert not is_higher_better(store, "new", "answer_length")


def test_without_a_baseline_the_lowest_come_first_in_the_order_of_the_dataset(store: Store, keep: Keep) -> None:
    keep("new", {"a": 0.5, "b": 0.0, "c": None, "d": 1.0, "e": 0.0})
    found = worst_items(store, "new", None, "right", 3)
    assert ids(found) == ["b", "e", "a"]
    assert {(item.baseline_value, item.baseline_missing, item.baseline_outputs) for item in found} == {(None, 0, None)}


def test_what_is_missing_on_either_side_is_first_where_asked_for_and_else_last(store: Store, keep: Keep) -> None:
    keep("old", {"a": 1.0, "b": 1.0, "c": FAILED, "d": None, "e": 1.0})
    keep("new", {"a": 0.0, "b": FAILED, "c": 1.0, "d": 1.0}, asked="abcde")
    first = worst_items(store, "new", "old", "right", 9, missing_first=True)
    assert ids(first) == ["b", "c", "e", "a"]
    assert [(item.missing, item.baseline_missing) for item in first] == [(1, 0), (0, 1), (1, 0), (0, 0)]
    assert [(item.error, item.baseline_error) for item in first[:2]] == [("failed at b", None), (None, "failed at c")]
    assert ids(worst_items(store, "new", "old", "right", 9)) == ["a", "b", "c", "e"]


def test_values_are_over_repetitions_and_the_answers_those_that_differ_most(store: Store, keep: Keep) -> None:
    keep("old", {"a": [0.5, 1.0], "b": [1.0, 1.0]})
    keep("new", {"a": [0.5, 0.0], "b": [0.5, FAILED]})
    one, other = worst_items(store, "new", "old", "right", 5)
    assert (one.value, one.baseline_value, one.comment) == (0.25, 0.75, "is 0.0")
    assert (one.outputs, one.baseline_outputs) == ('{"answer":"new a 1"}', '{"answer":"old a 1"}')
    assert (other.value, other.missing, other.error) == (0.5, 1, "failed at b")
    assert ids(worst_items(store, "new", "old", "right pass@2", 5)) == ["a", "b"]


def test_an_example_that_asks_something_else_is_not_compared(store: Store, keep: Keep) -> None:
    keep("old", {"a": 1.0, "b": 1.0})
    keep("new", {"a": 0.0, "b": 0.0}, again="!")
    assert worst_items(store, "new", "old", "right", 5) == []
    assert ids(worst_items(store, "new", None, "right", 5)) == ["a", "b"]


def test_a_conversation_is_shown_by_its_goal_and_as_a_chat() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "refund", "arguments": '{"order":"A1"}'}}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "done"},
    ]
    chat = 'user: Hi / refund({"order":"A1"}) / tool: done'
    assert plain_text(to_json({"messages": messages, "ended": "user", "state": {}})) == chat
    assert plain_text(to_json({"facts": ["order A1"], "goal": "a refund", "state": {}})) == "a refund"
    assert plain_text(to_json({"goal": "x", "question": "y"})) == '{"goal": "x", "question": "y"}'
