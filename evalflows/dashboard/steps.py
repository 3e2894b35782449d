"""The steps of an application's run, as pages show them."""

import json
from collections.abc import Mapping
from typing import Any

from evalflows.specs.escaping import json_text
from evalflows.specs.frozen import dataclass

_IN_HEAD = ("id", "parent", "kind", "name", "started_at", "latency_s", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step; a child stands below its parent."""

    depth: int
    kind: str
    name: str
    latency_s: float | None
    error: str | None
    contents: list[tuple[str, str]]  # names and JSON of inputs, outputs and whatever else was noted


def steps_of(content: str | None) -> list[Step]:
    """Return the steps of a run, given as JSON, in order; users' targets may note anything in them."""
    notes = json.loads(content) if content else []
    notes = [note for note in notes if isinstance(note, dict)] if isinstance(notes, list) else []
    depths: dict[Any, int] = {}
    steps = []
    for note in notes:
        depth = depths.get(str(note.get("parent")), -1) + 1
        depths[str(note.get("id"))] = depth
        steps.append(_step(note, depth))
    return steps


def _step(note: Mapping[str, Any], depth: int) -> Step:
    latency, error = note.get("latency_s"), note.get("error")
    return Step(
        depth=min(depth, 4),
        kind=str(note.get("kind") or "step"),
        name=str(note.get("name") or ""),
        latency_s=latency if isinstance(latency, int | float) else None,
        error=None if error is None else str(error),
        contents=[
            (name, json_text(value)) for name, value in note.items() if name not in _IN_HEAD and value is not None
        ],
    )
