"""A trace in the terminal: its fields, its observations as a tree, and what evaluators and people said about them."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from evalflows.cli.terminal import Console, Text
from evalflows.specs.safe_text import json_text, one_line
from evalflows.store.queries.listed_traces import Verdict
from evalflows.telemetry.tree import in_depth
from evalflows.telemetry.views import ObservationView, TraceView

STEP = "  "
LEAST = 20
"""Columns that a text has at least, however deep in the tree it stands."""


def print_trace(out: Console, trace: TraceView, verdicts: Sequence[Verdict]) -> None:
    """Print a trace, each text on one line of the console's width."""
    _print(out, "", f"{trace.name}  {_figures(trace)}", style="bold red" if trace.status == "error" else "bold")
    _print(out, STEP, f"{trace.id}  {trace.started_at:%Y-%m-%d %H:%M:%S} UTC")
    if fields := _fields(trace):
        _print(out, STEP, fields)
    for name in ("input", "output"):
        _print_content(out, STEP, name, getattr(trace, name))
    by_subject: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_subject[verdict.subject_id].append(verdict)
    _print_verdicts(out, STEP, by_subject[trace.id])
    out.print()
    for depth, observation in in_depth(trace.observations):
        _print_observation(out, STEP * depth, observation, by_subject[f"{trace.id}/{observation.id}"])


def _print_observation(out: Console, indent: str, view: ObservationView, verdicts: Sequence[Verdict]) -> None:
    style = "red" if view.status == "error" else ""
    model = f" {view.model}" if view.model else ""
    _print(out, indent, f"{view.type} {view.name}{model}  {_figures(view)}", style=style)
    if view.status == "error" and view.status_message:
        _print_content(out, indent + STEP, "error", view.status_message)
    for name in ("input", "output"):
        _print_content(out, indent + STEP, name, getattr(view, name))
    _print_verdicts(out, indent + STEP, verdicts)


def _figures(view: TraceView | ObservationView) -> str:
    latency = None if view.latency_s is None else f"{view.latency_s:.2f} s"
    has_tokens = view.tokens_in is not None or view.tokens_out is not None
    tokens = f"tokens {_number(view.tokens_in)}+{_number(view.tokens_out)}" if has_tokens else None
    cost = None if view.cost_usd is None else f"{view.cost_usd:.4g} USD"
    return "  ".join(part for part in (latency, tokens, cost) if part)


def _number(count: int | None) -> str:
    return "?" if count is None else str(count)


def _fields(trace: TraceView) -> str:
    names = ("session_id", "user_id", "version", "environment", "service")
    shown = [f"{name.removesuffix('_id')} {value}" for name in names if (value := getattr(trace, name)) is not None]
    return "  ".join([*shown, *([f"tags {', '.join(trace.tags)}"] if trace.tags else [])])


def _print_verdicts(out: Console, indent: str, verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        value = " ".join(str(part) for part in (_value(verdict.value), verdict.label) if part is not None)
        said = value or (verdict.problem if verdict.problem else "no value")
        giver = f" by {verdict.given_by}" if verdict.given_by else ""
        comment = f": {verdict.comment}" if verdict.comment else ""
        kind = "label" if verdict.by_person else "score"
        _print(out, indent, f"{kind} {verdict.metric} {said}{giver}{comment}", style="cyan")


def _value(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _print_content(out: Console, indent: str, name: str, value: Any) -> None:
    if value is not None:
        _print(out, indent, f"{name + ':':<8}{_content(value)}")


def _content(value: Any) -> str:
    """Return a value as text; of messages, the last one."""
    if isinstance(value, dict) and value.keys() == {"messages"} and value["messages"]:
        value = value["messages"][-1]
        if isinstance(value, dict) and isinstance(value.get("content"), str) and not value.get("tool_calls"):
            value = value["content"]
    return value if isinstance(value, str) else json_text(value, default=str)


def _print(out: Console, indent: str, text: str, style: str = "") -> None:
    """Print a text on one line, cut to the width."""
    deep = indent[: max(0, out.width - LEAST)]
    line = Text(one_line(text), style)
    line.truncate(max(1, out.width - len(deep)), overflow="ellipsis")
    out.print(Text(deep) + line, soft_wrap=True)
