"""The conversation of a run: from which side its messages come, whose turns are whose, what a message says."""

from typing import Any

import pytest

from evalflows.evaluators.conversations import conversation


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text} | fields


SYSTEM = {"role": "system", "content": "Be brief."}
GIVEN = [user("Hello"), assistant("Hello!"), user("Who are you?")]


def texts(inputs: dict[str, Any], outputs: dict[str, Any]) -> list[str]:
    found = conversation(inputs, outputs)
    assert found is not None
    return [str(message["content"]) for message in found.messages]


def judged(inputs: dict[str, Any], outputs: dict[str, Any], given: bool = False) -> list[int]:
    found = conversation(inputs, outputs)
    assert found is not None
    return [turn.number for turn in found.judged(given)]


@pytest.mark.parametrize("field", ["messages", "chat"])
def test_an_answer_is_the_next_turn_behind_the_messages_of_the_inputs(field: str) -> None:
    assert texts({field: GIVEN}, {"output": "A bot."}) == ["Hello", "Hello!", "Who are you?", "A bot."]
    assert judged({field: GIVEN}, {"output": "A bot."}) == [2]
    assert judged({field: GIVEN}, {"output": "A bot."}, given=True) == [1, 2]


WHOLE = [*GIVEN, assistant("A bot."), user("Really?"), assistant("Yes.")]


@pytest.mark.parametrize("added", [WHOLE, WHOLE[3:]], ids=["the whole", "what was added"])
def test_outputs_may_hold_the_whole_conversation_or_what_the_target_added(added: list[dict[str, Any]]) -> None:
    found = conversation({"messages": GIVEN}, {"messages": added})
    assert found is not None
    assert found.messages == WHOLE
    assert [turn.number for turn in found.judged(False)] == [2, 3]


def test_system_messages_ids_and_empty_fields_do_not_hide_that_it_is_the_whole() -> None:
    added = [SYSTEM, GIVEN[0], assistant("Hello!", id="m1", tool_calls=None), *WHOLE[2:]]
    wanted = ["Be brief.", *(str(message["content"]) for message in WHOLE)]
    assert texts({"messages": GIVEN}, {"messages": added}) == wanted
    assert texts({"messages": [SYSTEM, *GIVEN]}, {"messages": added}) == wanted
    assert texts({"messages": [SYSTEM, *GIVEN]}, {"messages": WHOLE}) == wanted
    assert judged({"messages": [SYSTEM, *GIVEN]}, {"messages": added}) == [2, 3]


def test_without_messages_on_either_side_it_is_no_conversation() -> None:
    assert judged({"task": "Be polite"}, {"messages": WHOLE}) == [1, 2, 3]
    assert conversation({"question": "Who?"}, {"output": "A bot."}) is None
    assert conversation({"numbers": [1, 2]}, {"output": 3}) is None
    assert conversation({"messages": None, "n": 1}, {"messages": None}) is None


def test_messages_of_a_turn_and_its_tools_are_one_turn() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"order": "KX-1"}'}}
    added = [assistant(None, tool_calls=[call]), {"role": "tool", "tool_call_id": "c1", "content": "sent"}]
    found = conversation({"messages": [user("Where is it?")]}, {"messages": [*added, assistant("On its way.")]})
    assert found is not None
    assert [(turn.number, turn.begins, turn.ends) for turn in found.turns] == [(1, 1, 4)]


def test_a_chat_targets_calls_stand_beside_its_text_and_a_structure_is_no_text() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    outputs = [{"output": "One moment.", "tool_calls": [call]}, {"tool_calls": [call]}, {"output": {"sure": True}}]
    found = [conversation({"messages": GIVEN}, one) for one in outputs]
    assert [one.messages[-1] for one in found if one] == [
        assistant("One moment.", tool_calls=[call]),
        assistant(None, tool_calls=[call]),
        {"role": "assistant", "content": [{"output": {"sure": True}}]},
    ]


@pytest.mark.parametrize(
    ("inputs", "outputs", "says"),
    [
        ({"messages": "hello"}, {"output": "x"}, "messages: got str, wanted a list of {role, content}"),
        ({"messages": [{"role": "human", "content": "x"}]}, {"output": "x"}, "messages: 1: got the role 'human'"),
        ({"messages": GIVEN}, {"messages": [*WHOLE, "x"]}, "messages: 7: got 'x', wanted {role, content}"),
    ],
)
def test_messages_that_are_none_are_an_error(inputs: dict[str, Any], outputs: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError) as caught:
        conversation(inputs, outputs)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("added", [[], GIVEN, [user("Anyone?")]], ids=["none", "the given ones", "the user's"])
def test_outputs_without_a_turn_of_the_assistants_are_an_error_and_not_a_pass(added: list[dict[str, Any]]) -> None:
    found = conversation({"messages": GIVEN}, {"messages": added})
    assert found is not None
    with pytest.raises(ValueError, match="no turn of the assistant in the outputs"):
        found.judged(given=False)
