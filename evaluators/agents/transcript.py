"""Messages and an agent's steps as judges read them: one JSON object on each line.

JSON escapes quotes and line ends inside strings. So nothing that is said, called or returned can pass for another line
or for another field of its line.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evalflows.evaluators.agents.trajectory import (
    TEXT_PARTS,
    Call,
    Message,
    answer_of,
    calls_of,
    kind_of,
    messages_of,
    parts_of,
    read_calls,
    read_trajectory,
)
from evalflows.evaluators.prompt_texts import NONE
from evalflows.evaluators.views import RunView
from evalflows.specs.escaping import json_text, one_line

_ROLES = {
    "ai": "assistant",
    "message": "assistant",
    "reasoning": "assistant",
    "function_call": "assistant",
    "function_call_output": "tool",
    "human": "user",
}
_CONTENTS = {"reasoning": "summary", "function_call_output": "output"}
"""The fields of items of OpenAI's Responses API that hold what other messages have as content."""


def lines(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return one JSON object on each line, with its fields in their order; (none) without entries.

    A tool's result that is the text of a JSON object or list has `_json` added to its field's name and the text itself
    as the value: escaping its quotes would cost tokens. What an agent says is always escaped.
    """
    return "\n".join(map(_line, entries)) or NONE


def _line(entry: Mapping[str, Any]) -> str:
    is_result = entry.get("role") in ("tool", "function")
    fields = (
        f'"{name}_json":{value}'
        if is_result and isinstance(value, str) and _is_json(value)
        else f'"{name}":{json_text(value, separators=(",", ":"), default=str)}'
        for name, value in entry.items()
    )
    return "{" + ",".join(fields) + "}"


def _is_json(text: str) -> bool:
    """Return whether a text is a JSON object or list on one line, without characters that must be escaped."""
    if not text.startswith(("{", "[")) or text != one_line(text):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def entry_of(message: Message) -> dict[str, Any]:
    """Return what a judge reads of a message: its role, content, refusal and calls, without ids and empty fields.

    Roles are in OpenAI's spelling. Content is a text; an object for a part that is no text, which has another name than
    the text's; or a list of several. Calls that cannot be read are shown as they are.
    """
    kind = kind_of(message)
    parts = parts_of(message.get(_CONTENTS.get(kind, "content")))
    said = [part for part in parts if _type(part) != "tool_use"]
    calls = [*(message.get("tool_calls") or ()), *(part for part in parts if _type(part) == "tool_use")]
    calls += [message["function_call"]] if message.get("function_call") else []
    calls += [message] if kind == "function_call" else []
    fields = {
        "reasoning" if kind == "reasoning" else "content": _content(said),
        "refusal": message.get("refusal"),
        "tool_calls": [_read(call) for call in calls],
    }
    filled = {name: value for name, value in fields.items() if value not in (None, "", [])}
    return {"role": _ROLES.get(kind, kind)} | filled


def transcript(outputs: Mapping[str, Any], inputs: Mapping[str, Any] | None = None, run: RunView | None = None) -> str:
    """Return the agent's steps in order, each a numbered line.

    They come from `messages`, including those of users and tools; else from its reasoning, its calls, with the tools'
    results if the run's steps have them, and its final answer.
    """
    messages, tool_calls = messages_of(outputs, inputs), read_trajectory(outputs, inputs, run).tool_calls
    if messages and (not tool_calls or any(calls_of(message) for message in messages)):
        entries = [entry_of(message) for message in messages]
        if outputs.get("final_answer") is not None:
            entries.append({"role": "assistant", "final_answer": outputs["final_answer"]})
    else:
        entries = list(_of_trajectory(outputs, inputs, run))
    return lines({"step": number, **entry} for number, entry in enumerate(entries, start=1))


def _of_trajectory(
    outputs: Mapping[str, Any], inputs: Mapping[str, Any] | None, run: RunView | None
) -> Iterator[dict[str, Any]]:
    trajectory, answer = read_trajectory(outputs, inputs, run), answer_of(outputs, inputs)
    for text in outputs.get("reasoning_steps") or trajectory.reasoning_steps:
        yield {"role": "assistant", "reasoning": text}
    results = _results(run) if outputs.get("tool_calls") is None else []
    for index, call in enumerate(trajectory.tool_calls):
        yield {"role": "assistant", "tool_calls": [_shown(call)]}
        if len(results) == len(trajectory.tool_calls):
            yield {"role": "tool"} | results[index]
    if answer is not None:
        yield {"role": "assistant", "final_answer": answer}


def _results(run: RunView | None) -> list[dict[str, Any]]:
    """Return the result, or the error, of each tool among the run's steps."""
    tools = [step for step in (run.steps if run else []) if step.get("kind") == "tool"]
    return [{"error": step["error"]} if step.get("error") else {"result": step.get("outputs")} for step in tools]


def _read(call: Any) -> Any:
    try:
        (read,) = read_calls([call], "tool_calls")
    except ValueError:
        return {"call": call}
    return _shown(read)


def _shown(call: Call) -> dict[str, Any]:
    return {"name": call.name, "arguments": call.given if call.arguments is None else call.arguments}


def _content(parts: Sequence[Any]) -> Any:
    shown = [_part(part) for part in parts]
    return shown[0] if len(shown) == 1 else shown


def _part(part: Any) -> Any:
    """Return a text as it is, and any other part as an object that says what it is."""
    if isinstance(part, str):
        return part
    kind = _type(part)
    if kind is None:
        return {"value": part}
    if kind == "tool_result":
        failed = {"is_error": True} if part.get("is_error") else {}
        return {"tool_result": _content(parts_of(part.get("content")))} | failed
    text = part.get("text") or part.get("refusal")
    if not isinstance(text, str):
        return {"not_shown": kind}
    return text if kind in TEXT_PARTS else {"type": kind, "text": text}


def _type(part: Any) -> str | None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return kind if isinstance(kind, str) else None
