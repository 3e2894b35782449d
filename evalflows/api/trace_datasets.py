"""Make datasets of traces of production."""

from collections.abc import Mapping
from datetime import datetime

from pydantic import ValidationError

from evalflows.analysis.trace_datasets import TraceDataset, UsersFrom, add_traces
from evalflows.specs.dataset import SelectedScope, SelectionOrder, TraceSelection
from evalflows.specs.errors import InputError, first_problem
from evalflows.specs.traces import Filter
from evalflows.store.store import Store


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
    as_users: str | None = None,
    model: str | None = None,
) -> TraceDataset:
    """Add production's traces or sessions to a dataset as a new version of it, or create the dataset.

    Args:
        name: Name of the dataset. Its examples keep their ids; a trace whose input it has already is not added.
        scope: What one example comes from.
        filter: Condition on the items: SQL, or JSON as in trace evaluations.
        since: Start of the range of start times.
        until: End of the range of start times.
        limit: Maximum number of different inputs, including those that the dataset already has.
        order: Which come first: the newest, those with the worst scores of a metric, those whose scores are the least
            certain, or a random sample.
        metric: The metric of the orders worst and uncertain.
        seed: Seed of the random order.
        mapper: `"module:name"`, or paths for input, expected_output and metadata.
        turns: For sessions: `whole` makes an example of each conversation, `next` of each turn of the assistant.
        keep_output_as_reference: Whether the application's answer becomes the reference.
        mask: Further secrets to mask, as name: regular expression.
        as_users: Name of a connection, whose model draws the user of each session's conversation: its goal, persona
            and facts, for the target `conversation`. The examples are drafts to be reviewed.
        model: The model that does. Default: the connection's.

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
        raise InputError(first_problem(error, "dataset from traces", TraceSelection)) from None
    if as_users is None:
        return add_traces(Store(), name, selection)
    if scope != "sessions" or turns or mapper is not None:
        raise InputError("as_users: wanted the scope sessions, without turns and without a mapper")
    whole = selection.model_copy(update={"turns": "whole", "keep_output_as_reference": True})
    return add_traces(Store(), name, whole, users=UsersFrom(connection=as_users, model=model))
