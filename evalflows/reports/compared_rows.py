"""Which compared examples are shown, and in which order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evalflows.analysis.changes import Change, ExampleChange, SharedExample

RowSort = Literal["worst", "best", "position", "example"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Which examples are wanted, and in which order. None: any."""

    change: Change | None = None
    candidate: str | None = None  # whose changes count
    split: str | None = None
    search: str | None = None  # in the example's id, inputs and reference, and in all answers; case does not count
    sort: RowSort = "worst"


def wanted_examples(
    examples: Sequence[SharedExample],
    changes: Mapping[str, Sequence[ExampleChange]],
    wanted: RowFilter,
    found: set[str] | None = None,
) -> list[str]:
    """Return the ids of the wanted examples in order.

    Args:
        examples: All, by position.
        changes: Those in the metric that counts, by example.
        wanted: Which are wanted.
        found: Those with the text that is searched for; None without a search.
    """
    ranked = []
    for example in examples:
        if (wanted.split and example.split != wanted.split) or (found is not None and example.example_id not in found):
            continue
        if wanted.candidate and wanted.candidate not in example.candidates:
            continue
        counted = [each for each in changes.get(example.example_id, ()) if _counts(each, wanted)]
        if counted or not wanted.change:
            ranked.append((_rank(example, counted, wanted.sort), example.example_id))
    return [example for _, example in sorted(ranked)]


def _counts(change: ExampleChange, wanted: RowFilter) -> bool:
    return (not wanted.candidate or change.candidate_experiment_id == wanted.candidate) and (
        not wanted.change or change.change == wanted.change
    )


def _rank(example: SharedExample, changes: Sequence[ExampleChange], sort: RowSort) -> tuple[Any, ...]:
    """Return what examples are sorted by; those without a gain follow those with one, changed ones first."""
    if sort == "example":
        return (example.example_id,)
    if sort == "position":
        return (example.position, example.example_id)
    gains = [change.gain if sort == "worst" else -change.gain for change in changes if change.gain is not None]
    is_same = all(change.change == "same" for change in changes)
    return (not gains, min(gains, default=0.0), not changes, is_same, example.position, example.example_id)
