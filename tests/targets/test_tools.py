"""The tools of a chat target: the spec's or the example's own, sent in OpenAI's format, called by their own names."""

import asyncio
import gzip
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evalflows.specs.errors import InputError
from evalflows.specs.protocols import Completion, Message
from evalflows.specs.target import ChatTarget
from evalflows.targets import as_tools, chat, check_fields, check_tools

BFCL = Path(os.environ.get("EVALFLOWS_PUBLISHED_DATA", Path(__file__).parents[3] / "shared" / "data")) / "bfcl"

FUNCTION = {"name": "maths.area", "description": "An area.", "parameters": {"type": "dict", "properties": {}}}
SENT = {
    "type": "function",
    "function": {"name": "maths_area", "description": "An area.", "parameters": {"type": "object", "properties": {}}},
}


class Model:
    """Stands in for `complete`: calls the first tool that it is offered."""

    def __init__(self) -> None:
        self.offered: list[Any] = []

    async def __call__(self, messages: str | Sequence[Message], **parameters: Any) -> Completion:
        self.offered.append(parameters.get("tools"))
        tools = parameters.get("tools") or []
        names = [tool["function"]["name"] for tool in tools[:1]]
        calls = [{"id": "1", "type": "function", "function": {"name": name, "arguments": "{}"}} for name in names]
        return Completion(text="", tool_calls=calls, model="stub", call_id="call-1")


def spec(**settings: Any) -> ChatTarget:
    return ChatTarget(kind="chat", name="variant", **settings)


def answer(target: ChatTarget, model: Model, inputs: dict[str, Any], metadata: dict[str, Any] | None = None) -> Any:
    made = chat(target, model)
    return asyncio.run(as_coroutine(made.call({"inputs": inputs, "metadata": metadata or {}})))


async def as_coroutine(awaitable: Any) -> Any:
    return await awaitable


def test_what_is_no_list_of_tools_is_told() -> None:
    for tools, problem in (
        ("f", "tools: got 'f', wanted a list of tools"),
        ({"name": "f"}, "tools: got {'name': 'f'}, wanted a list of tools"),
        ([{"parameters": {}}], "tools: got {'parameters': {}}, wanted a function with a name"),
        ([7], "tools: got 7, wanted a function with a name"),
        (
            [{"name": "a.b"}, {"name": "a_b"}],
            "tools: got a.b, a_b, wanted names that differ in letters, digits, _ and -",
        ),
    ):
        with pytest.raises(InputError) as caught:
            as_tools(tools)
        assert str(caught.value) == problem
    with pytest.raises(ValueError, match=r"tools: got 'tools', wanted a list, or a path: inputs\.… or metadata\.…"):
        spec(tools="tools")


def test_an_example_offers_its_own_tools_and_is_asked_by_its_other_field() -> None:
    asked = {"question": "Why?"}
    for path, inputs, metadata in (
        ("inputs.tools", {**asked, "tools": [FUNCTION]}, {}),
        ("metadata.tools", asked, {"tools": [FUNCTION]}),
        ("metadata.given.tools", asked, {"given": {"tools": [FUNCTION]}}),
    ):
        model, target = Model(), spec(tools=path)
        check_fields(target, inputs, "example 'e1'")
        check_tools(target, {"inputs": inputs, "metadata": metadata}, "example 'e1'")
        outputs = answer(target, model, inputs, metadata)
        assert model.offered == [[SENT]]
        assert outputs["tool_calls"][0]["function"] == {"name": "maths.area", "arguments": "{}"}
    for path, got in (("metadata.tols", "metadata has topic"), ("inputs.tools", "inputs has question")):
        with pytest.raises(InputError) as caught:
            check_tools(spec(tools=path), {"inputs": asked, "metadata": {"topic": 1}}, "example 'e1'")
        assert str(caught.value) == f"target 'variant': example 'e1': tools: no {path!r}, {got}"


def test_types_are_named_as_in_json_schema_at_every_depth_and_nothing_else_changes() -> None:
    properties = {
        "type": {"type": "tuple", "items": {"type": "float"}},
        "any": {"type": "any", "description": "dict"},
        "default": {"type": "dict", "properties": {"type": {"type": "list"}}, "default": {"type": "dict"}},
        "either": {"anyOf": [{"type": "float"}, {"type": "null"}], "enum": ["dict", "float"]},
    }
    made = as_tools([{"name": "f", "parameters": {"type": "dict", "properties": properties, "required": ["type"]}}])
    assert made is not None
    assert made.sent[0]["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "type": {"type": "array", "items": {"type": "number"}},
            "any": {"description": "dict"},
            "default": {"type": "object", "properties": {"type": {"type": "array"}}, "default": {"type": "dict"}},
            "either": {"anyOf": [{"type": "number"}, {"type": "null"}], "enum": ["dict", "float"]},
        },
        "required": ["type"],
    }


@pytest.mark.skipif(not BFCL.is_dir(), reason="BFCL is not there (EVALFLOWS_PUBLISHED_DATA)")
@pytest.mark.parametrize("name", ["simple_python", "multiple", "parallel", "irrelevance"])
def test_the_published_functions_of_bfcl_can_be_offered_as_they_are(name: str) -> None:
    with gzip.open(BFCL / "v4" / f"BFCL_v4_{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        lists = [json.loads(line)["function"] for line in file]
    types = {"object", "array", "string", "integer", "number", "boolean"}
    for functions in lists:
        made = as_tools(functions)
        assert made is not None
        assert [*made.own_names.values()] == [function["name"] for function in functions]
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool["function"]["name"]) for tool in made.sent)
        assert {found for tool in made.sent for found in schema_types(tool["function"]["parameters"])} <= types
    assert len(lists) >= 200


def schema_types(schema: dict[str, Any]) -> list[str]:
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return [*([schema["type"]] if "type" in schema else []), *(found for one in inner for found in schema_types(one))]
