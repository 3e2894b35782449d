"""The trajectories of tau-bench's airline as traces of production, in OTLP's JSON lines, and how they are judged.

    python tau_bench_traces.py $EVALFLOWS_PUBLISHED_DATA/tau_bench/gpt-4o-airline_trajectories_full.json.gz traces.jsonl
    evalflows traces add traces.jsonl

A trajectory is one trace: the agent with its messages, and a span for each tool that it called. Its task is its
session, and what the benchmark expects is in the agent's metadata, where `mapped` finds it.
"""

import gzip
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START_S = 1_715_799_600
"""2024-05-15 15:00 in New York, the moment at which the benchmark's customers call."""


def trajectories(path: str) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return list(json.load(file))


def trace_id(run: dict[str, Any]) -> str:
    return hashlib.sha256(f"airline {run['task_id']} {run['trial']}".encode()).hexdigest()[:32]


def request(run: dict[str, Any]) -> dict[str, Any]:
    """Return a trajectory as a request in OTLP's JSON."""
    began = START_S + 3600 * (4 * run["task_id"] + run["trial"])
    first = next(place for place, message in enumerate(run["traj"]) if message["role"] == "assistant")
    agent = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.conversation.id": f"task-{run['task_id']}",
        "gen_ai.input.messages": json.dumps(run["traj"][:first]),
        "gen_ai.output.messages": json.dumps(run["traj"][first:]),
        "metadata": json.dumps({"expected": run["info"]["task"]["actions"], "reward": run["reward"]}),
    }
    spans = [_span(run, 0, "airline agent", agent, began, 10 * len(run["traj"]))]
    for place, call, result in _calls(run["traj"]):
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call["function"]["name"],
            "gen_ai.tool.call.id": call["id"],
            "gen_ai.tool.call.arguments": call["function"]["arguments"],
            "gen_ai.tool.call.result": result,
        }
        spans.append(_span(run, place, f"execute_tool {call['function']['name']}", attributes, began + 10 * place, 1))
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "airline"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "tau-bench"}, "spans": spans}]}]}


def _calls(messages: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Yield each tool call, with the place of its message and what the tool answered."""
    for place, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            later = (other for other in messages[place:] if other.get("tool_call_id") == call["id"])
            yield place, call, next((other["content"] for other in later), "")


def _span(
    run: dict[str, Any], place: int, name: str, attributes: dict[str, str], start_s: int, seconds: int
) -> dict[str, Any]:
    return {
        "traceId": trace_id(run),
        "spanId": f"{place + 1:016x}",
        "parentSpanId": f"{1:016x}" if place else "",
        "name": name,
        "startTimeUnixNano": f"{start_s}000000000",
        "endTimeUnixNano": f"{start_s + seconds}000000000",
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }


def mapped(item: Any) -> dict[str, Any]:
    """Return what evaluators get of a trace: its input and output, and the calls that the benchmark expects."""
    return {
        "input": item.input,
        "output": item.output,
        "expected_output": {"tool_calls": item.metadata["expected"]},
    }


if __name__ == "__main__":
    source, target = sys.argv[1:]
    with Path(target).open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(request(run)) + "\n" for run in trajectories(source))
