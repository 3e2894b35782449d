"""Tool calls against published truth: the possible answers of the Berkeley Function Calling Leaderboard."""

import gzip
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from evalflows.evaluators.agents.agent import agent
from evalflows.evaluators.agents.tools import tool_arguments
from evalflows.evaluators.score import Score

ROOT = Path(__file__).parents[3]
PUBLISHED = Path(os.environ.get("EVALFLOWS_PUBLISHED_DATA", ROOT.parent / "shared" / "data")) / "bfcl" / "v4"
pytestmark = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="BFCL is not there (EVALFLOWS_PUBLISHED_DATA)")

SIZES = {"simple_python": 400, "multiple": 200, "parallel": 200}
LEFT_OUT = object()
Item = dict[str, Any]


@cache
def items(name: str) -> list[Item]:
    """Each item's truth, a list of {name: {argument: allowed values}}, and the documents of its functions by name."""
    places = (PUBLISHED / f"BFCL_v4_{name}.jsonl.gz", PUBLISHED / "possible_answer" / f"BFCL_v4_{name}.jsonl.gz")
    questions, truths = (map(json.loads, gzip.decompress(place.read_bytes()).splitlines()) for place in places)
    found = [
        {"truth": truth["ground_truth"], "documents": {one["name"]: one for one in question["function"]}}
        for question, truth in zip(questions, truths, strict=True)
    ]
    assert len(found) == SIZES[name]
    return found


def chosen(values: Any, place: int = 0) -> Any:
    """The allowed value at that place, "" not counted, with every mapping's own values chosen; or LEFT_OUT."""
    given = [value for value in values if value != ""]
    return filled(given[place]) if place < len(given) else LEFT_OUT


def filled(value: Any) -> Any:
    if isinstance(value, dict):
        fields = {name: chosen(values) for name, values in value.items()}
        return {name: one for name, one in fields.items() if one is not LEFT_OUT}
    return [filled(one) for one in value] if isinstance(value, list) else value


def answer(item: Item) -> list[dict[str, Any]]:
    """A call for each of the truth, as an OpenAI model would write it."""
    return [{"name": name, "arguments": filled(arguments_of(one))} for one in item["truth"] for name in one]


def arguments_of(truth: dict[str, Any]) -> dict[str, Any]:
    (arguments,) = truth.values()
    return dict(arguments)


def scores(item: Item, calls: list[dict[str, Any]]) -> tuple[float, float]:
    """By `tool_arguments`, and by `agent`."""
    outputs = {"tool_calls": [written(call) for call in calls]}
    reference = {"tool_calls": item["truth"]}
    alone = tool_arguments(None, outputs, reference, arguments="allowed")
    together = agent(None, outputs, reference, arguments="allowed")
    assert isinstance(alone, Score) and together is not None
    return float(alone.value), float(together[0].value)  # type: ignore[arg-type]


def written(call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}}


def test_possible_answers_score_1_as_they_are_published() -> None:
    for name in SIZES:
        for item in items(name)[::4]:
            assert scores(item, answer(item)) == (1.0, 1.0)


def every_choice(item: Item) -> Iterator[list[dict[str, Any]]]:
    """The answer with one argument at a time at each of its other allowed values, or left out where that is allowed."""
    base = answer(item)
    for place, truth in enumerate(item["truth"]):
        for argument, values in arguments_of(truth).items():
            options = [filled(value) for value in values if value != ""]
            for option in [*options, *([LEFT_OUT] if "" in values else [])]:
                arguments = base[place]["arguments"] | {argument: option}
                kept = {key: value for key, value in arguments.items() if value is not LEFT_OUT}
                yield [*base[:place], {"name": base[place]["name"], "arguments": kept}, *base[place + 1 :]]


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_every_allowed_value_scores_1(name: str) -> None:
    tried = [scores(item, calls) for item in items(name) for calls in every_choice(item)]
    assert {*tried} == {(1.0, 1.0)}
    assert len(tried) > 3 * SIZES[name]


def wrong_names(item: Item) -> Iterator[list[dict[str, Any]]]:
    base = answer(item)
    for place, call in enumerate(base):
        yield [*base[:place], call | {"name": f"{call['name']}_of"}, *base[place + 1 :]]


def dropped_arguments(item: Item) -> Iterator[list[dict[str, Any]]]:
    """Without one argument that the function's document requires, but for those that the truth lets be left out."""
    base = answer(item)
    for place, (call, truth) in enumerate(zip(base, item["truth"], strict=True)):
        document = item["documents"].get(call["name"], {"parameters": {"required": list(arguments_of(truth))}})
        for argument in document["parameters"].get("required", []):
            if "" not in arguments_of(truth)[argument]:
                kept = {key: value for key, value in call["arguments"].items() if key != argument}
                yield [*base[:place], call | {"arguments": kept}, *base[place + 1 :]]


def wrong_values(item: Item) -> Iterator[list[dict[str, Any]]]:
    """With one value that is not allowed, and of the type of the one that is."""
    base = answer(item)
    for place, (call, truth) in enumerate(zip(base, item["truth"], strict=True)):
        for argument, value in call["arguments"].items():
            other = other_than(value)
            if not (isinstance(value, bool) and other in arguments_of(truth)[argument]):
                arguments = call["arguments"] | {argument: other}
                yield [*base[:place], call | {"arguments": arguments}, *base[place + 1 :]]


def other_than(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 98765
        case str() | None:
            return f"{value} and zebras"
        case list():
            return [*value, other_than(value[0]) if value else "zebra"]
    return value | {"zebra": 1}


def missing_calls(item: Item) -> Iterator[list[dict[str, Any]]]:
    base = answer(item)
    for place in range(len(base)):
        yield base[:place] + base[place + 1 :]


DAMAGES = {
    "wrong name": wrong_names,
    "dropped required argument": dropped_arguments,
    "value outside the allowed": wrong_values,
    "missing call": missing_calls,
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", SIZES)
def test_damage_scores_below_1_in_every_item_that_it_is_planted_in(name: str, damage: str) -> None:
    planted = 0
    for item in items(name):
        damaged = [scores(item, calls) for calls in DAMAGES[damage](item)]
        assert all(alone < 1 and together < 1 for alone, together in damaged), item["truth"]
        planted += bool(damaged)
    assert planted == SIZES[name]
