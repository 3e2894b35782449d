"""Datasets of production: traces or sessions become examples, masked, without duplicates, as a new version."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from pydantic import ValidationError

from evalflows.analysis.human_labels.trace_order import ordered_keys
from evalflows.execution.trace_examples import Counts, TraceExamples, check_selection
from evalflows.specs.errors import InputError, first_problem
from evalflows.specs.trace_evaluation import Filter
from evalflows.specs.trace_selection import SelectedScope, SelectionOrder, TraceSelection
from evalflows.store.examples import Examples
from evalflows.store.ingest.datasets import merge_examples
from evalflows.store.parquet import Store
from evalflows.store.snapshots import current_snapshot, freeze, load_snapshot, to_examples

SOURCE = "production"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDataset:
    """The version of a dataset after traces were added, and what became of the selected ones."""

    name: str
    snapshot: str
    n_examples: int
    counts: Counts


def dataset_from_traces(
    name: str,
    *,
    scope: SelectedScope = "traces",
    filter: Filter | None = None,  # noqa: A002 as in TraceEvaluationSpec
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    limit: int | None = None,
    order: SelectionOrder = "newest",
    metric: str | None = None,
    seed: int = 0,
    mapper: str | Mapping[str, str] | None = None,
    turns: str | None = None,
    keep_output_as_reference: bool = False,
    mask: Mapping[str, str] | None = None,
) -> TraceDataset:
    """Add production's traces or sessions to a dataset as a new version of it, or create the dataset.

    Args:
        name: Name of the dataset. Its examples keep their ids; a trace whose input it has already is not added.
        scope: What one example comes from.
        filter: Only those that meet a condition: SQL, or JSON as in trace evaluations.
        since: Only those that began since then.
        until: Only those that began until then.
        limit: Maximum number of different inputs, including those that the dataset already has.
        order: Which come first: the newest, those with the worst scores of a metric, those whose scores are the least
            certain, or a random sample.
        metric: The metric of the orders worst and uncertain.
        seed: Seed of the random order.
        mapper: `"module:name"`, or paths for input, expected_output and metadata.
        turns: For sessions: `whole` makes an example of each conversation, `next` of each turn of the assistant.
        keep_output_as_reference: Whether the application's answer becomes the reference.
        mask: Further secrets to mask, as name: regular expression.

    API keys, e-mail addresses, card numbers and the like are masked before anything is written. Raise InputError, with
    nothing written, if no trace meets the filter, or none of those that do can become an example.
    """
    given = {
        "scope": scope,
        "filter": filter,
        "since": since,
        "until": until,
        "limit": limit,
        "order": order,
        "metric": metric,
        "seed": seed,
        "mapper": mapper,
        "turns": turns,
        "keep_output_as_reference": keep_output_as_reference,
        "mask": dict(mask or {}),
    }
    try:
        selection = TraceSelection.model_validate(given)
    except ValidationError as error:
        raise InputError(first_problem(error, "dataset from traces")) from None
    return grown(Store(), name, selection)


def grown(store: Store, name: str, selection: TraceSelection) -> TraceDataset:
    """Add the selected traces or sessions to a dataset, as `dataset_from_traces` does."""
    check_selection(selection)
    before = current_snapshot(store, name)
    old = load_snapshot(store, before) if before else []
    keys, unscored = ordered_keys(store, selection)
    made = TraceExamples(store, selection, old)
    made.counts.unscored = unscored
    rows = made.rows(keys)
    first = next(rows, None)
    if first is None:
        if before is None:
            raise InputError(_nothing(selection, made.counts))
        return TraceDataset(name=name, snapshot=before, n_examples=len(old), counts=made.counts)
    examples = merge_examples(old, _examples(chain([first], rows)), SOURCE)
    metadata = {"selection": _described(selection), **_outcome(made.counts)}
    snapshot = freeze(store, examples, name=name, source=SOURCE, metadata=metadata)
    return TraceDataset(name=name, snapshot=snapshot, n_examples=len(examples), counts=made.counts)


def _examples(rows: Iterator[dict[str, Any]]) -> Examples:
    return to_examples(enumerate(rows, start=1), SOURCE)


def _nothing(selection: TraceSelection, counts: Counts) -> str:
    got = f"got {counts.not_captured} whose input was not captured"
    if counts.failed:
        got += f", {counts.failed} that could not be mapped ({counts.first_failure})"
    return f"{selection.scope}: {got}, wanted at least one that can become an example"


def _described(selection: TraceSelection) -> dict[str, Any]:
    """Return a selection as it is stored: of the user's patterns only their names, as they may contain a secret."""
    return selection.model_dump(mode="json", exclude_none=True) | {"mask": sorted(selection.mask)}


def _outcome(counts: Counts) -> dict[str, Any]:
    names = ("duplicates", "not_captured", "failed", "unscored")
    return {
        "added": counts.added,
        "known": counts.known,
        "left_out": {name: getattr(counts, name) for name in names},
        "masked": dict(sorted(counts.masked.items())),
    }
