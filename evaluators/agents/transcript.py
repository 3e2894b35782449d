"""A trajectory as a text that a judge reads: one numbered entry for everything that was said, called or given back."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from evaluators.agents.messages import Message, calls_of, is_assistant, text_of
from evaluators.agents.trajectory import Trajectory, messages_of, read_trajectory
from evaluators.subject import RunView
from evaluators.text import as_text

NOTHING = "(no step and no answer)"


def transcript(outputs: Mapping[str, Any], inputs: Mapping[str, Any] | None = None, run: RunView | None = None) -> str:
    """What the agent did, in order. Out of `messages` with what users and tools said; else its reasoning, its calls,
    with what the tools gave where the run's steps have that, and its final answer."""
    messages, trajectory = messages_of(outputs, inputs), read_trajectory(outputs, inputs, run)
    told = any(calls_of(one) for one in messages) or not trajectory.tool_calls
    if messages and told:
        entries = [entry for one in messages for entry in _of_message(one)]
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
    for place, call in enumerate(trajectory.tool_calls):
        yield f"call: {call}"
        if len(results) == len(trajectory.tool_calls):
            yield f"result: {results[place]}"
    if trajectory.final_answer is not None:
        yield f"final answer: {trajectory.final_answer}"


def _results(run: RunView | None) -> list[str]:
    """What each tool among the run's steps gave, or the error that it raised."""
    tools = [step for step in (run.steps if run else []) if step.get("kind") == "tool"]
    return [f"error: {step['error']}" if step.get("error") else _shown(step.get("outputs")) for step in tools]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
