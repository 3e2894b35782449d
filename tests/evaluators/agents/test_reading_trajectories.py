"""What an agent did, read out of all the shapes in which it is written down."""

import json
from typing import Any

import pytest

from evalflows.evaluators.agents.trajectory import Call, Trajectory, answer_of, expected_calls, read_trajectory
from evalflows.evaluators.views import RunView

PARIS = {"city": "Paris", "days": 2}
WEATHER = Call("weather", PARIS)
TEXT = json.dumps(PARIS)


def run_of(*steps: dict[str, Any]) -> RunView:
    return RunView(id="r", inputs={}, outputs={}, steps=list(steps))


def openai_call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    "written",
    [
        {"name": "weather", "arguments": PARIS},
        {"name": "weather", "arguments": TEXT},
        {"name": "weather", "args": PARIS, "id": "1", "type": "tool_call"},
        {"name": "weather", "input": PARIS},
        {"name": "weather", "kwargs": PARIS},
        openai_call("weather", TEXT),
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": TEXT},
        {"weather": PARIS},
    ],
)
def test_a_call_is_read_in_every_shape(written: dict[str, Any]) -> None:
    assert read_trajectory({"tool_calls": [written]}).tool_calls == (WEATHER,)
    assert expected_calls({"tool_calls": [written]}, None) == (WEATHER,)


DEEP = pytest.param("[" * 100_000, id="deep")


@pytest.mark.parametrize("broken", ['{"city": "Par', "[1, 2]", '"Paris"', "NaN", '{"x": NaN}', DEEP, 5, [1]])
def test_arguments_that_are_no_json_object_keep_the_call_without_them(broken: Any) -> None:
    assert read_trajectory({"tool_calls": [{"name": "f", "arguments": broken}]}).tool_calls == (Call("f", None),)
    with pytest.raises(ValueError, match="reference: tool_calls: f: got arguments that are not a JSON object"):
        expected_calls({"tool_calls": [{"name": "f", "arguments": broken}]}, None)


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ({"tool_calls": "f()"}, "tool_calls: got 'f\\(\\)', wanted a list of calls"),
        ({"tool_calls": [{"name": "f"}, {"x": 1, "y": 2}]}, r"tool_calls\[1\]: got .*, wanted a call: name and arg"),
        ({"messages": "hi"}, "messages: got 'hi', wanted a list of messages"),
        ({"messages": [{"role": "user", "content": "a"}, "b"]}, r"messages\[1\]: got 'b', wanted a message"),
        ({"reasoning_steps": "first"}, "reasoning_steps: got 'first', wanted a list of texts"),
    ],
)
def test_what_is_no_list_of_calls_or_messages_is_an_error(outputs: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_trajectory(outputs)


CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "content": "I look it up.", "tool_calls": [openai_call("weather", TEXT)]},
    {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
    {"role": "assistant", "content": None, "tool_calls": [openai_call("round", "{}"), openai_call("say", "{}")]},
    {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    {"role": "assistant", "content": "It is 18 degrees."},
    {"role": "user", "content": "Thanks."},
]


def test_what_the_inputs_held_already_was_not_done_by_this_run() -> None:
    later = [
        {"role": "user", "content": "And tomorrow?"},
        {"role": "assistant", "content": "", "tool_calls": [openai_call("forecast", "{}")]},
        {"role": "assistant", "content": "Rain."},
    ]
    outputs = {"messages": [{"role": "system", "content": "Other."}, *CONVERSATION[1:], *later]}
    expected = Trajectory((Call("forecast", {}),), (), "Rain.")
    assert read_trajectory(outputs, {"history": CONVERSATION}) == expected
    assert read_trajectory({"messages": later}, {"history": CONVERSATION}) == expected  # only the new ones
    assert len(read_trajectory(outputs, {"question": "And tomorrow?"}).tool_calls) == 4


def test_langchain_and_anthropic_messages_are_read() -> None:
    langchain = [
        {"type": "human", "content": "Weather?"},
        {"type": "ai", "content": "Let me see.", "tool_calls": [{"name": "weather", "args": PARIS, "id": "1"}]},
        {"type": "tool", "content": "18"},
        {"type": "ai", "content": "18 degrees."},
    ]
    parts = [{"type": "text", "text": "Let me see."}, {"type": "tool_use", "name": "weather", "input": PARIS}]
    anthropic = [
        {"role": "assistant", "content": parts},
        {"role": "user", "content": [{"type": "tool_result", "content": "18"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "18 degrees."}]},
    ]
    for messages in (langchain, anthropic):
        assert read_trajectory({"messages": messages}) == Trajectory((WEATHER,), ("Let me see.",), "18 degrees.")


RESPONSE = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I need the weather."}]},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": TEXT},
    {"type": "function_call_output", "call_id": "c1", "output": "18"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "18 degrees."}]},
]


def test_steps_of_tools_are_calls_and_else_the_calls_in_the_answers_of_models() -> None:
    asked = {"role": "assistant", "content": "I look.", "tool_calls": [openai_call("weather", TEXT)]}
    model = {"kind": "llm", "name": "chat", "inputs": {}, "outputs": {"message": asked}}
    response = {"kind": "llm", "name": "responses", "inputs": {}, "outputs": {"output": RESPONSE}}
    failed = {"kind": "llm", "name": "chat", "inputs": {}, "outputs": None}
    tool = {"kind": "tool", "name": "weather", "inputs": PARIS, "outputs": 18}
    search = {"kind": "retrieval", "name": "search", "inputs": {"q": "x"}, "outputs": []}
    for steps in ([model], [failed, response], [search, tool], [model, tool, response]):
        made = read_trajectory({"output": "18"}, None, run_of(*steps))
        assert made.tool_calls == (WEATHER,) and made.final_answer == "18"
    assert read_trajectory({"output": "18"}, None, run_of(model)).reasoning_steps == ("I look.",)
    assert read_trajectory({"output": "18"}, None, run_of(search)).tool_calls == ()


def test_the_outputs_own_calls_come_before_messages_and_these_before_steps() -> None:
    run = run_of({"kind": "tool", "name": "of_steps", "inputs": {}})
    own = {"tool_calls": [{"name": "own"}], "messages": CONVERSATION}
    assert [call.name for call in read_trajectory(own, None, run).tool_calls] == ["own"]
    assert read_trajectory({"tool_calls": [], "messages": CONVERSATION}, None, run).tool_calls == ()
    assert len(read_trajectory({"messages": CONVERSATION}, None, run).tool_calls) == 3
    silent = {"messages": CONVERSATION[-2:]}
    assert [call.name for call in read_trajectory(silent, None, run).tool_calls] == ["of_steps"]


@pytest.mark.parametrize(
    ("outputs", "answer"),
    [
        ({"final_answer": "a", "messages": CONVERSATION, "output": "c"}, "a"),
        ({"messages": CONVERSATION, "output": "c"}, "It is 18 degrees."),
        ({"messages": [], "output": "c", "answer": "d"}, "c"),
        ({"result": 42}, 42),
        ({"result": 42, "other": 1}, None),
        ({"tool_calls": [], "note": "easy"}, None),
        ({"messages": CONVERSATION[:4]}, None),  # it broke off: what it said with a call is no answer
    ],
)
def test_the_final_answer(outputs: dict[str, Any], answer: Any) -> None:
    assert answer_of(outputs) == answer
    assert read_trajectory(outputs).final_answer == (None if answer is None else str(answer))


def test_what_a_reference_wants_may_be_messages_or_calls_under_another_name() -> None:
    assert expected_calls({"messages": CONVERSATION}, None) == (WEATHER, Call("round", {}), Call("say", {}))
    assert expected_calls({"way": CONVERSATION[:4]}, "way") == (WEATHER,)
    assert expected_calls({"way": [{"weather": PARIS}], "tool_calls": []}, "way") == (WEATHER,)
    assert expected_calls({"tool_calls": []}, "way") is None
