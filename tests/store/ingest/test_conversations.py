"""Conversations as examples: by turn, and whole."""

import json
from itertools import product
from typing import Any

import pytest

from evalflows.evaluators.views import offer_fields
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError
from evalflows.store.ingest import load_dataset
from evalflows.store.records import ExampleRow
from evalflows.store.store import Store

Row = dict[str, Any]


def talk(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


SYSTEM = {"role": "system", "content": "Be brief."}
TALK = [SYSTEM, *talk("u1", "a1", "u2", "a2", "u3", "a3")]
ROW: Row = {"id": "conv-01", "inputs": {"messages": TALK}, "metadata": {"topic": "x"}, "split": "test"}


def load(store: Store, turns: str, *rows: Row, **spec: Any) -> list[ExampleRow]:
    return load_dataset(store, DatasetSpec.model_validate({"rows": list(rows), "turns": turns} | spec)).selected


def problem(store: Store, turns: str, *rows: Row, **spec: Any) -> str:
    """Return the one-line error for a dataset."""
    with pytest.raises(InputError) as caught:
        load(store, turns, *rows, **spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def inputs(example: ExampleRow) -> Any:
    return json.loads(example.inputs)["messages"]


def reference(example: ExampleRow) -> Any:
    return None if example.reference_outputs is None else json.loads(example.reference_outputs)


def test_each_turn_of_the_assistants_is_an_example_with_what_came_before_it(store: Store) -> None:
    found = load(store, "next", ROW, ROW | {"id": 7})
    assert [inputs(example) for example in found[:3]] == [TALK[:2], TALK[:4], TALK[:6]]
    assert [reference(example) for example in found[:3]] == [{"output": f"a{n}"} for n in (1, 2, 3)]
    assert [example.example_id for example in found] == [f"{name}#{n}" for name in ("conv-01", "7") for n in (1, 2, 3)]
    assert [example.cluster for example in found] == ["conv-01"] * 3 + ["7"] * 3
    assert {(example.metadata, example.split) for example in found} == {('{"topic":"x"}', "test")}


def test_without_ids_the_turns_of_a_conversation_stay_together_and_apart_from_others(store: Store) -> None:
    rows = [{"inputs": {"messages": TALK}}, {"inputs": {"messages": talk("u1", "b1", "u2", "b2")}}]
    found = load(store, "next", *rows)
    assert len({example.example_id for example in found}) == 5
    clusters = [example.cluster for example in found]
    assert len({*clusters[:3]}) == len({*clusters[3:]}) == 1
    assert clusters[0] != clusters[3]
    assert [example.example_id for example in load(store, "next", *rows[::-1])[2:]] == [
        example.example_id for example in found[:3]
    ]


def test_a_conversation_that_ends_with_the_user_asks_for_one_turn_more(store: Store) -> None:
    row = ROW | {"inputs": {"messages": TALK[:6]}}
    for given, wanted in ((None, None), ({"answer": "KX"}, {"answer": "KX"})):
        *_, last = load(store, "next", row | {"reference_outputs": given})
        assert (last.example_id, inputs(last), reference(last)) == ("conv-01#3", TALK[:6], wanted)


def test_a_greeting_answers_nobody_but_counts_as_a_turn_and_a_whole_conversation_is_what_followed_its_opening(
    store: Store,
) -> None:
    messages = [{"role": "assistant", "content": "Hello!"}, *talk("u1", "a1")]
    (only,) = load(store, "next", ROW | {"inputs": {"messages": messages}})
    assert (only.example_id, inputs(only), reference(only)) == ("conv-01#2", messages[:2], {"output": "a1"})
    (only,) = load(store, "whole", ROW)
    assert (only.example_id, inputs(only), reference(only)) == ("conv-01", TALK[:2], {"messages": TALK[2:]})
    assert only.cluster is None


def test_a_turn_with_tools_is_its_messages(store: Store) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    turn = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sent"},
        {"role": "assistant", "content": "It was sent."},
    ]
    first, second = load(store, "next", ROW | {"inputs": {"messages": [*talk("u1"), *turn, *talk("u2", "a2")]}})
    assert reference(first) == {"messages": turn}
    assert (inputs(second), reference(second)) == ([*talk("u1"), *turn, *talk("u2")], {"output": "a2"})


def test_a_history_with_the_next_input_is_one_example_and_its_input_is_a_list_of_messages(store: Store) -> None:
    asked: Row = {"history": talk("u1", "a1"), "next_user_input": "u2"}
    wanted = {"expected_output": "a2"}
    bare, nested = load(store, "next", asked | wanted, {"input": asked | {"plan": "pro"}} | wanted)
    for example, others in ((bare, {}), (nested, {"plan": "pro"})):
        assert json.loads(example.inputs) == {"messages": talk("u1", "a1", "u2")} | others
        assert reference(example) == {"output": "a2"}
    given = offer_fields({"inputs": json.loads(bare.inputs)})["input"]
    assert [message.content for message in given] == ["u1", "a1", "u2"]
    assert given["messages"] == given.messages == given == talk("u1", "a1", "u2")
    assert "turns: next_user_input: got int, wanted a text" in problem(store, "next", {**asked, "next_user_input": 2})


def test_a_row_that_holds_no_conversation_is_told_with_its_number(store: Store) -> None:
    cases: list[tuple[Row, str]] = [
        ({"inputs": {"question": "Why?"}}, "turns: got question, wanted 'messages' in the inputs"),
        ({"question": "Why?"}, "turns: got question, wanted 'messages' in the inputs"),
        ({"inputs": "Why?"}, "turns: messages: got str, wanted a list of {role, content}"),
        ({"inputs": {"messages": [{"role": "human"}]}}, "turns: messages: 1: got the role 'human', wanted one of"),
        ({"inputs": {"messages": []}}, "turns: messages: got no"),
        ({"inputs": {"messages": [SYSTEM]}}, "turns: messages: got no"),
        ({"inputs": {"messages": TALK}, "outputs": "x"}, "turns: got a reference and a conversation"),
        ({"inputs": {"messages": TALK}, "input": TALK}, "got both 'inputs' and 'input', wanted one of them"),
    ]
    for turns, (row, says) in product(("next", "whole"), cases):
        assert problem(store, turns, ROW, row).startswith(f"dataset row:2: {says}")
