"""What a judge reads of messages and steps, in all the shapes in which they are written down."""

import json
from typing import Any

import pytest

from evalflows.evaluators.agents.transcript import entry_of, transcript
from evalflows.evaluators.views import RunView

CALL = {"name": "weather", "arguments": {"city": "Paris"}}
TEXT = json.dumps(CALL["arguments"])
SHOWN = {"role": "assistant", "tool_calls": [CALL]}
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ({"role": "user", "content": "Hi", "name": "", "id": "m1"}, {"role": "user", "content": "Hi"}),
        ({"type": "human", "content": "Hi"}, {"role": "user", "content": "Hi"}),
        ({"role": "assistant", "content": None, "refusal": "No."}, {"role": "assistant", "refusal": "No."}),
        ({"role": "user", "content": ["a", {"type": "text", "text": "b"}]}, {"role": "user", "content": ["a", "b"]}),
        ({"role": "user", "content": [IMAGE]}, {"role": "user", "content": {"not_shown": "image_url"}}),
        (
            {"role": "user", "content": [{"type": "refusal", "refusal": "No."}]},
            {"role": "user", "content": {"type": "refusal", "text": "No."}},
        ),
        ({"role": "tool", "content": {"degrees": 18}}, {"role": "tool", "content": {"value": {"degrees": 18}}}),
        ({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "weather", "arguments": TEXT}}]}, SHOWN),
        ({"role": "assistant", "content": "", "function_call": {"name": "weather", "arguments": TEXT}}, SHOWN),
        ({"type": "ai", "content": "", "tool_calls": [{"name": "weather", "args": {"city": "Paris"}}]}, SHOWN),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "name": "weather", "input": {"city": "Paris"}}]},
            SHOWN,
        ),
        ({"type": "function_call", "name": "weather", "arguments": TEXT, "call_id": "1"}, SHOWN),
        (
            {"role": "assistant", "tool_calls": [{"name": "weather", "arguments": '{"city": '}, {"custom": 1, "a": 2}]},
            {"role": "assistant", "tool_calls": [CALL | {"arguments": '{"city": '}, {"call": {"custom": 1, "a": 2}}]},
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "content": "18", "is_error": True}]},
            {"role": "user", "content": {"tool_result": "18", "is_error": True}},
        ),
        ({"type": "function_call_output", "output": "18"}, {"role": "tool", "content": "18"}),
        (
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"role": "assistant", "reasoning": "Hm."},
        ),
    ],
)
def test_a_message_is_shown_in_one_form_without_ids_and_empty_fields(message: Any, shown: Any) -> None:
    assert entry_of(message) == shown


def steps(outputs: dict[str, Any], *tools: dict[str, Any]) -> list[dict[str, Any]]:
    run = RunView(id="r", inputs={}, outputs={}, steps=[{"kind": "tool", **tool} for tool in tools])
    return [json.loads(line) for line in transcript(outputs, None, run).splitlines()]


def test_steps_are_the_messages_or_else_reasoning_calls_with_their_results_and_the_answer() -> None:
    said = {"role": "assistant", "content": "It is 18 degrees."}
    assert steps({"messages": [{"role": "system", "content": "x"}, SHOWN, said], "final_answer": {"degrees": 18}}) == [
        {"step": 1, **SHOWN},
        {"step": 2, **said},
        {"step": 3, "role": "assistant", "final_answer": {"degrees": 18}},
    ]
    tools = [
        {"name": "weather", "inputs": {"city": "Paris"}, "outputs": {"degrees": 18}},
        {"name": "say", "inputs": {}, "outputs": None, "error": "OSError: no"},
    ]
    assert steps({"output": "18", "reasoning_steps": ["Look first."]}, *tools) == [
        {"step": 1, "role": "assistant", "reasoning": "Look first."},
        {"step": 2, **SHOWN},
        {"step": 3, "role": "tool", "result": {"degrees": 18}},
        {"step": 4, "role": "assistant", "tool_calls": [{"name": "say", "arguments": {}}]},
        {"step": 5, "role": "tool", "error": "OSError: no"},
        {"step": 6, "role": "assistant", "final_answer": "18"},
    ]
    assert transcript({"tool_calls": []}) == "(none)"
