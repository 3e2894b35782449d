"""Write a trajectory as text for a judge: one numbered entry per message, call or result."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from evalflows.evaluators.agents.messages import Message, calls_of, is_assistant, text_of
from evalflows.evaluators.agents.trajectory import Trajectory, messages_of, read_trajectory
from evalflows.evaluators.subject import RunView
from evalflows.evaluators.text import as_text

NOTHING = "(no step and no answer)"


def transcript(outputs: Mapping[str, Any], inputs: Mapping[str, Any] | None = None, run: RunView | None = None) -> str:
    """Return the agent's actions in order.

    They come from `messages`, including those of users and tools; else from its reasoning, its calls, with the tools'
    results if the run's steps have them, and its final answer.
    """
    messages, trajectory = messages_of(outputs, inputs), read_trajectory(outputs, inputs, run)
    messages_have_calls = any(calls_of(message) for message in messages) or not trajectory.tool_calls
    if messages and messages_have_calls:
        entries = [entry for message in messages for entry in _of_message(message)]
        if outputs.get("final_answer") is not None:
            entries.append(f"final answer: {trajectory.final_answer}")
    else:
        entries = list(_of_trajectory(trajectory, outputs, run))
    return "\n".join(f"{number}. {entry}" for number, entry in enumerate(entries, 1)) or NOTHING


def _of_message(message: Message) -> Iterator[str]:
    text = text_of(message)
    if message.get("type") == "function_call_output":
        yield f"result: {as_text(message.get('output'))}"
    elif text and is_assistant(message):
        yield f"agent: {text}"
    elif text:
        role = str(message.get("role") or message.get("type"))
        yield f"{'result' if role == 'tool' else role}: {text}"
    yield from (f"call: {call}" for call in calls_of(message))


def _of_trajectory(trajectory: Trajectory, outputs: Mapping[str, Any], run: RunView | None) -> Iterator[str]:
    yield from (f"reasoning: {text}" for text in trajectory.reasoning_steps)
    results = _results(run) if outputs.get("tool_calls") is None else []
    for index, call in enumerate(trajectory.tool_calls):
        yield f"call: {call}"
        if len(results) == len(trajectory.tool_calls):
            yield f"result: {results[index]}"
    if trajectory.final_answer is not None:
        yield f"final answer: {trajectory.final_answer}"


def _results(run: RunView | None) -> list[str]:
    """Return the result, or the error, of each tool among the run's steps."""
    tools = [step for step in (run.steps if run else []) if step.get("kind") == "tool"]
    return [f"error: {step['error']}" if step.get("error") else _shown(step.get("outputs")) for step in tools]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
