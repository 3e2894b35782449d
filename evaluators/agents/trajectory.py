"""Read an agent's trajectory from its outputs, and the expected calls from a reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.evaluators.agents.calls import Call, read_arguments, read_calls
from evalflows.evaluators.agents.messages import (
    AssistantParts,
    Message,
    assistant_parts,
    is_conversation,
    new_messages,
    read_messages,
)
from evalflows.evaluators.subject import RunView
from evalflows.evaluators.text import as_text
from evalflows.specs.errors import short

_NO_ANSWERS = ("tool_calls", "messages", "reasoning_steps")


@dataclass(frozen=True, slots=True)
class Trajectory:
    """An agent's calls in order, its reasoning in order, and its final answer as text; None without an answer."""

    tool_calls: tuple[Call, ...]
    reasoning_steps: tuple[str, ...]
    final_answer: str | None


def read_trajectory(
    outputs: Mapping[str, Any], inputs: Mapping[str, Any] | None = None, run: RunView | None = None
) -> Trajectory:
    """Return the trajectory of a run.

    Calls come from `tool_calls`; without that field from `messages` (or `output`, if it is a conversation), except
    those already in the inputs; and if there are none, from the run's steps: those of kind "tool", else the calls in
    recorded model responses. Reasoning comes from `reasoning_steps`, else from texts alongside calls. The final answer
    is that of `answer_of`. Arguments that are not a JSON object are None.

    Raise ValueError for fields that are not a list of calls, messages or steps.
    """
    messages = messages_of(outputs, inputs)
    from_messages, from_steps = assistant_parts(messages), assistant_parts(_recorded(run))
    calls = from_messages.calls or _tools(run) or from_steps.calls
    if outputs.get("tool_calls") is not None:
        calls = read_calls(outputs["tool_calls"], "tool_calls")
    answer = _answer(outputs, from_messages)
    reasoning = _reasoning(outputs)
    return Trajectory(
        tool_calls=calls,
        reasoning_steps=(from_messages.reasoning or from_steps.reasoning) if reasoning is None else reasoning,
        final_answer=None if answer is None else as_text(answer),
    )


def messages_of(fields: Mapping[str, Any], inputs: Mapping[str, Any] | None) -> list[Message]:
    """Return the conversation in `messages` or `output` without the inputs' messages; empty without a conversation."""
    given = fields.get("messages")
    if given is None:
        given = fields["output"] if is_conversation(fields.get("output")) else []
    return new_messages(read_messages(given, "messages"), inputs)


def answer_of(fields: Mapping[str, Any], inputs: Mapping[str, Any] | None = None) -> Any:
    """Return the final answer unchanged, or None: `final_answer`, else the assistant's last text without a call, else
    `output` or `answer`, else the only field."""
    return _answer(fields, assistant_parts(messages_of(fields, inputs)))


def expected_calls(
    reference_outputs: Mapping[str, Any] | None, key: str | None, inputs: Mapping[str, Any] | None = None
) -> tuple[Call, ...] | None:
    """Return the calls of a reference: of the field `key`, else of `tool_calls`, else of `messages`; None without any.

    Raise ValueError for a value that is not a list of calls or messages, and for arguments that are not a JSON object.
    """
    names = (key,) if key is not None else ("tool_calls", "messages")
    fields = reference_outputs if isinstance(reference_outputs, Mapping) else {}
    field = next((name for name in names if fields.get(name) is not None), None)
    if field is None:
        return None
    given, where = fields[field], f"reference: {field}"
    if field == "messages" or (is_conversation(given) and "role" in given[0]):
        calls = assistant_parts(new_messages(read_messages(given, where), inputs)).calls
    else:
        calls = read_calls(given, where)
    if broken := [call.name for call in calls if call.arguments is None]:
        raise ValueError(f"{where}: {broken[0]}: got arguments that are not a JSON object, wanted a JSON object")
    return calls


def _answer(fields: Mapping[str, Any], spoken: AssistantParts) -> Any:
    if fields.get("final_answer") is not None:
        return fields["final_answer"]
    if spoken.answer is not None:
        return spoken.answer
    others = {name: value for name, value in fields.items() if name not in _NO_ANSWERS and not is_conversation(value)}
    named = [others[name] for name in ("output", "answer") if others.get(name) is not None]
    if named:
        return named[0]
    return next(iter(others.values())) if len(others) == len(fields) == 1 else None


def _reasoning(outputs: Mapping[str, Any]) -> tuple[str, ...] | None:
    given = outputs.get("reasoning_steps")
    if given is None:
        return None
    if not isinstance(given, list | tuple):
        raise ValueError(f"reasoning_steps: got {short(given)}, wanted a list of texts")
    return tuple(as_text(step) for step in given)


def _tools(run: RunView | None) -> tuple[Call, ...]:
    steps = [step for step in _steps(run) if step.get("kind") == "tool"]
    return tuple(Call(str(step.get("name")), read_arguments(step.get("inputs"))) for step in steps)


def _recorded(run: RunView | None) -> list[Message]:
    """Return the messages in recorded model responses: of a chat completion, or the items of a response."""
    messages: list[Message] = []
    for step in _steps(run):
        outputs = step.get("outputs")
        if step.get("kind") == "llm" and isinstance(outputs, Mapping):
            given = outputs.get("output")
            items: list[Any] = given if isinstance(given, list) else [outputs.get("message")]
            messages += [item for item in items if is_conversation([item])]
    return messages


def _steps(run: RunView | None) -> Sequence[Mapping[str, Any]]:
    return [step for step in (run.steps if run else None) or () if isinstance(step, Mapping)]
