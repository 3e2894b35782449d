"""Datasets of production: traces or sessions become examples, masked, without duplicates, as a new version."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from evalflows.analysis.human_labels.trace_datasets import PRODUCTION, growth_by_traces
from evalflows.execution.trace_examples import Counts
from evalflows.specs.errors import InputError, first_problem
from evalflows.specs.trace_evaluation import Filter
from evalflows.specs.trace_selection import SelectedScope, SelectionOrder, TraceSelection
from evalflows.store.parquet import Store
from evalflows.store.snapshots import freeze


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
    store = Store()
    growth = growth_by_traces(store, name, selection)
    snapshot = growth.current or freeze(store, growth.examples, name=name, source=PRODUCTION, metadata=growth.metadata)
    return TraceDataset(name=name, snapshot=snapshot, n_examples=len(growth.examples), counts=growth.counts)
