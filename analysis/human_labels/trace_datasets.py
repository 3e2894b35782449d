"""Datasets that grow by traces or sessions of production. Nothing is written here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from evalflows.analysis.human_labels.trace_order import ordered_keys
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError
from evalflows.specs.trace_selection import TraceSelection
from evalflows.store.drafts import draft
from evalflows.store.examples import Examples
from evalflows.store.ingest.datasets import Loaded, load_dataset, merge_examples, selected_examples
from evalflows.store.parquet import Store
from evalflows.store.snapshots import current_snapshot, load_snapshot, to_examples

if TYPE_CHECKING:
    from evalflows.execution.trace_examples import Counts

PRODUCTION = "production"
"""The source of versions of datasets that are made of traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The examples of a dataset and those that a selection adds."""

    current: str | None  # the dataset's snapshot, if nothing is added to it
    examples: Examples
    counts: "Counts"
    metadata: Mapping[str, Any]  # of the new version


def growth_by_traces(store: Store, name: str | None, selection: TraceSelection) -> Growth:
    """Return what a dataset has after the selected traces or sessions were added; without a name, these alone.

    Raise InputError if no trace meets the filter, or none of those that do can become an example.
    """
    # late: this imports the SDK of OpenAI, which most datasets do not need
    from evalflows.execution.trace_examples import TraceExamples, check_selection

    check_selection(selection)
    before = current_snapshot(store, name) if name is not None else None
    old = load_snapshot(store, before) if before else draft([])
    keys, unscored = ordered_keys(store, selection)
    made = TraceExamples(store, selection, old)
    made.counts.unscored = unscored
    rows = made.rows(keys)
    first = next(rows, None)
    if first is None and before is None:
        raise InputError(_nothing(selection, made.counts))
    examples = old if first is None else merge_examples(old, _examples(chain([first], rows)), PRODUCTION)
    metadata = {"selection": _described(selection), **_outcome(made.counts)}
    return Growth(current=before if first is None else None, examples=examples, counts=made.counts, metadata=metadata)


def loaded_dataset(store: Store, spec: DatasetSpec) -> Loaded:
    """Load the examples of a dataset spec, those of production included, without freezing them. Raise InputError."""
    if spec.traces is None:
        return load_dataset(store, spec)
    growth = growth_by_traces(store, spec.name, spec.traces)
    return Loaded(
        name=spec.name,
        source=PRODUCTION,
        examples=growth.examples,
        selected=selected_examples(growth.examples, spec),
        metadata=growth.metadata,
    )


def _examples(rows: Iterator[dict[str, Any]]) -> Examples:
    return to_examples(enumerate(rows, start=1), PRODUCTION)


def _nothing(selection: TraceSelection, counts: "Counts") -> str:
    got = f"got {counts.not_captured} whose input was not captured"
    if counts.failed:
        got += f", {counts.failed} that could not be mapped ({counts.first_failure})"
    return f"{selection.scope}: {got}, wanted at least one that can become an example"


def _described(selection: TraceSelection) -> dict[str, Any]:
    """Return a selection as it is stored: of the user's patterns only their names, as they may contain a secret."""
    return selection.model_dump(mode="json", exclude_none=True) | {"mask": sorted(selection.mask)}


def _outcome(counts: "Counts") -> dict[str, Any]:
    names = ("duplicates", "not_captured", "failed", "unscored")
    return {
        "added": counts.added,
        "known": counts.known,
        "left_out": {name: getattr(counts, name) for name in names},
        "masked": dict(sorted(counts.masked.items())),
    }
