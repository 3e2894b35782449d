"""Where two conversations part: the messages that both begin with, and how the states of their worlds differ."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from evalflows.reports.example_detail import RunDetail
from evalflows.specs.dialogue import STATE
from evalflows.specs.frozen import dataclass
from evalflows.specs.tool_changes import difference_lines

MOST_DIFFERENCES = 10
"""Differences of two states that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """How a conversation differs from that of the baseline."""

    n_alike: int
    """The number of messages that both begin with."""
    state: Sequence[str]
    """In lines: what the baseline's state has, and this one's."""


def partings_of(runs: Sequence[RunDetail], baseline: str) -> dict[str, Parting]:
    """Return how each run's conversation differs from the baseline's in the same repetition, by run.

    The baseline's own has the fewest messages in common with any. Runs that are no conversations are not among them.
    """
    before = {run.repetition: run for run in runs if run.experiment_id == baseline}
    found: dict[str, Parting] = {}
    for run in runs:
        old = before.get(run.repetition)
        if old is None or run.experiment_id == baseline:
            continue
        old_fields, fields = _conversation(old), _conversation(run)
        if old_fields is None or fields is None:
            continue
        n_alike = sum(1 for _ in _alike(old_fields["messages"], fields["messages"]))
        found[run.run_id] = Parting(n_alike=n_alike, state=[*_of_states(old_fields.get(STATE), fields.get(STATE))])
        known = found.get(old.run_id)
        found[old.run_id] = Parting(n_alike=n_alike if known is None else min(n_alike, known.n_alike), state=())
    return found


def _conversation(run: RunDetail) -> dict[str, Any] | None:
    fields = json.loads(run.outputs) if run.outputs is not None else None
    has_messages = isinstance(fields, dict) and isinstance(fields.get("messages"), list)
    return fields if has_messages else None


def _alike(old: Sequence[Any], new: Sequence[Any]) -> Iterator[Any]:
    for before, after in zip(old, new, strict=False):
        if before != after:
            return
        yield after


def _of_states(old: Any, new: Any) -> Iterator[str]:
    if old is None or new is None:
        return
    found = difference_lines(old, new)
    yield from found[:MOST_DIFFERENCES]
    if len(found) > MOST_DIFFERENCES:
        yield f"and {len(found) - MOST_DIFFERENCES} more"
