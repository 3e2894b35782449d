"""Numbers inside arrays told apart as BFCL does, and the example's own tools as the schemas."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalflows.evaluators.agents.agent import agent
from evalflows.evaluators.agents.tools import tool_arguments
from evalflows.evaluators.score import Score

BFCL = Path(os.environ.get("EVALFLOWS_PUBLISHED_DATA", Path(__file__).parents[4] / "shared" / "data")) / "bfcl"


def made(**arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": "f", "arguments": arguments}]}


def value(wanted: Any, got: Any, arguments: str, **settings: Any) -> float:
    if arguments == "allowed":
        wanted = [wanted]
    score = tool_arguments(None, made(x=got), made(x=wanted), arguments=arguments, **settings)  # type: ignore[arg-type]
    assert isinstance(score, Score)
    return float(score.value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("items", "got", "loose", "strict"),
    [
        ({"type": "float"}, [1.0, 2.5], 1, 1),
        ({"type": "float"}, [1, 2.5], 1, 0),
        ({"type": "number"}, [1], 1, 0),
        ({"type": ["number", "integer"]}, [1, 2.5], 1, 1),
        ({"type": "integer"}, [1, 2.0], 1, 0),
        ({"type": "array", "items": {"type": "float"}}, [[1]], 1, 0),
        ({"type": "string"}, ["a", 1], 1, 0),
    ],
)
def test_with_types_it_is_the_schema_that_says_of_what_an_array_is(
    items: dict[str, Any], got: Any, loose: int, strict: int
) -> None:
    tools = [{"name": "f", "parameters": {"properties": {"x": {"type": "array", "items": items}}}}]
    for numbers, wanted in (("equal", loose), ("strict", strict)):
        settings: Any = {"arguments": "types", "tools": tools, "numbers": numbers}
        score = tool_arguments(None, made(x=got), None, **settings)
        assert isinstance(score, Score) and score.value == wanted


def test_the_agent_hands_on_both_and_without_tools_nothing_is_judged() -> None:
    metadata = {"tools": [{"name": "f", "parameters": {"properties": {"x": {"items": {"type": "float"}}}}}]}
    for numbers, wanted in (("equal", 1), ("strict", 0)):
        settings: Any = {"arguments": "types", "tools": "metadata.tools", "numbers": numbers}
        scores = agent(None, made(x=[1]), made(x=[1.0]), None, metadata, weights={"arguments": 1}, **settings)
        assert scores is not None and scores[0].value == wanted
    assert tool_arguments({}, made(x=1), made(x=1), arguments="types", tools="inputs.tools") is None


# BFCL's own rule, written anew for arrays of numbers: `type_checker` of its `ast_checker.py`.


def bfcl_accepts(given: list[Any], allowed: list[Any], items: str) -> bool:
    declared = {"float": float, "integer": int}[items]
    lists = [one for one in allowed if isinstance(one, list)]
    typed = any(all(type(x) in (declared, type(one[0])) for x in given) for one in lists if one)
    return typed and given in allowed


def arrays_of_numbers() -> Iterator[tuple[str, list[Any], str]]:
    """The allowed values of each argument that is an array of numbers, and what its items are."""
    for name in ("simple_python", "multiple", "parallel"):
        with (
            gzip.open(BFCL / "v4" / f"BFCL_v4_{name}.jsonl.gz", "rt", encoding="utf-8") as questions,
            gzip.open(BFCL / "v4" / "possible_answer" / f"BFCL_v4_{name}.jsonl.gz", "rt", encoding="utf-8") as truths,
        ):
            for question, truth in zip(questions, truths, strict=True):
                schemas = {one["name"]: one["parameters"]["properties"] for one in json.loads(question)["function"]}
                for call in json.loads(truth)["ground_truth"]:
                    for tool, arguments in call.items():
                        for argument, allowed in arguments.items():
                            schema = schemas[tool][argument]
                            if schema["type"] in ("array", "tuple") and schema["items"]["type"] in ("float", "integer"):
                                yield argument, allowed, schema["items"]["type"]


@pytest.mark.skipif(not BFCL.is_dir(), reason="BFCL is not there (EVALFLOWS_PUBLISHED_DATA)")
def test_every_published_array_of_numbers_is_judged_as_bfcl_does_however_it_is_written() -> None:
    judged: list[tuple[bool, bool]] = []
    for argument, allowed, items in arrays_of_numbers():
        for given in [one for one in allowed if one]:
            whole = [int(x) if float(x).is_integer() else x for x in given]
            for written in (given, [float(x) for x in given], whole):
                truth = {"tool_calls": [{"f": {argument: allowed}}]}
                answer = {"tool_calls": [{"name": "f", "arguments": json.dumps({argument: written})}]}
                score = tool_arguments(None, answer, truth, arguments="allowed", numbers="strict")
                assert isinstance(score, Score)
                judged.append((score.value == 1, bfcl_accepts(written, allowed, items)))
    assert [pair for pair in judged if pair[0] != pair[1]] == []
    assert (len(judged), sum(not theirs for _, theirs in judged)) == (225, 55)
