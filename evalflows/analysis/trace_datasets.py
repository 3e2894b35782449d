"""Datasets that grow by traces or sessions of production: the newest, worst, least certain, or random ones.

Only `add_traces` writes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from evalflows.specs.dataset import RANKED, DatasetSpec, SelectedScope, TraceSelection
from evalflows.specs.errors import InputError
from evalflows.specs.failure_modes import PREFIX
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.stats.agreement import expected_error
from evalflows.store.dataset_versions import merge_examples
from evalflows.store.ingest import LoadedDataset, load_dataset, lot, selected_examples
from evalflows.store.queries.failures import answers_with_mode, examples_with_mode, owners_of
from evalflows.store.queries.trace_evaluations import ItemValue, item_values, production_metric
from evalflows.store.queries.traces import LATEST, ItemKey, Window, condition, item_keys, keys_of_items
from evalflows.store.query_process import OF_COMMANDS, QueryProcesses
from evalflows.store.snapshots import Examples, current_snapshot, draft, freeze, load_snapshot, to_examples
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.engine.trace_examples import ExampleCounts, TraceExamples

MOST = 10_000_000
"""Most keys of items in memory."""

PRODUCTION = "production"
"""The source of versions of datasets that are made of traces."""


def ordered_keys(store: Store, selection: TraceSelection) -> tuple[list[ItemKey], int]:
    """Return the keys of the selected items in their order, and how many were left out for lack of a score.

    Raise InputError if the filter is invalid, if no item meets it, or if none has a score of the metric.
    """
    only = condition(selection.filter, selection.scope)
    window = Window(moment="started_at", since=selection.since, until=selection.until or LATEST, newest_first=True)
    with closing(QueryProcesses(store.layout.root, OF_COMMANDS)) as queries:
        keys = item_keys(store, selection.scope, only, window, MOST, queries.rows)
    if not keys:
        raise InputError(f"{selection.scope}: none meet the filter in this time, wanted at least one (`traces ls`)")
    if selection.order not in RANKED:
        is_random = selection.order == "random"
        return (sorted(keys, key=lambda key: lot(key.id, selection.seed)) if is_random else keys), 0
    urgency = _urgency(store, selection)
    scored = [key for key in keys if key.id in urgency]
    if not scored:
        raise InputError(f"metric {selection.metric!r}: none of {len(keys)} selected {selection.scope} have a score")
    return sorted(scored, key=lambda key: (-urgency[key.id], key.id)), len(keys) - len(scored)


def _urgency(store: Store, selection: TraceSelection) -> Mapping[str, float]:
    """Return the items with a score of the metric; the larger their number, the earlier they come."""
    metric = selection.metric or ""
    declared = production_metric(store, metric)
    values = item_values(store, selection.scope, metric)
    if selection.order == "worst":
        return _badness(values, higher_is_better=bool(declared.higher_is_better))
    return _uncertainty(values, declared.range)


def _badness(values: Sequence[ItemValue], *, higher_is_better: bool) -> dict[str, float]:
    """Return the worst score of each item, negated if higher is better."""
    worst: dict[str, float] = {}
    for value in values:
        badness = -value.lowest if higher_is_better else value.highest
        worst[value.item] = max(badness, worst.get(value.item, -np.inf))
    return worst


def _uncertainty(values: Sequence[ItemValue], declared: tuple[float, float] | None) -> dict[str, float]:
    """Return an index of how uncertain each item's scores are, as in `labels next`.

    It grows as the score nears the middle of the range, as repeats of the judge differ, and as judges disagree.
    """
    by_item = grouped((value.item, value) for value in values)
    low, high = declared or (min(0.0, *(v.lowest for v in values)), max(1.0, *(v.highest for v in values)))
    most = max(map(len, by_item.values()))
    means = np.full((most, len(by_item)), np.nan)
    spreads = np.full(len(by_item), np.nan)
    for index, of_item in enumerate(by_item.values()):
        means[: len(of_item), index] = [np.clip(value.mean, low, high) for value in of_item]
        known = [value.spread for value in of_item if value.spread is not None]
        spreads[index] = max(known, default=np.nan)
    others = means[1:] if most > 1 else None
    errors = expected_error(means[0], low, high, spreads=spreads, others=others)
    return dict(zip(by_item, map(float, errors), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersFrom:
    """The model that draws users from conversations."""

    connection: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The examples of a dataset and those that a selection adds."""

    current: str | None  # the dataset's snapshot, if nothing is added to it
    examples: Examples
    counts: "ExampleCounts"
    metadata: Mapping[str, Any]  # of the new version


def growth_by_traces(
    store: Store, name: str | None, selection: TraceSelection, users: UsersFrom | None = None
) -> Growth:
    """Return what a dataset has after the selected traces or sessions were added; without a name, these alone.

    With `users`, the rows are those of users that a model draws from the conversations of the selected sessions. Raise
    InputError if no trace meets the filter, or none of those that do can become an example.
    """
    # late: this imports the SDK of OpenAI, which most datasets do not need
    from evalflows.engine.trace_examples import TraceExamples, check_selection

    check_selection(selection)
    before = current_snapshot(store, name) if name is not None else None
    old = load_snapshot(store, before) if before else draft([])
    keys, unscored = ordered_keys(store, selection)
    made = TraceExamples(store, selection, old)
    made.counts.unscored = unscored
    rows = made.rows(keys) if users is None else _users(store, made, keys, users)
    first = next(rows, None)
    if first is None and before is None:
        raise InputError(_nothing(selection, made.counts))
    examples = old
    if first is not None:
        examples = merge_examples(old, to_examples(enumerate(chain([first], rows), start=1), PRODUCTION), PRODUCTION)
    metadata = {"selection": _described(selection), **_outcome(made.counts)}
    return Growth(current=before if first is None else None, examples=examples, counts=made.counts, metadata=metadata)


def _users(store: Store, made: "TraceExamples", keys: Sequence[ItemKey], users: UsersFrom) -> Iterator[dict[str, Any]]:
    """Yield the rows of the users of conversations; count those from which none could be drawn."""
    from evalflows.engine.trace_users import draw_users

    conversations = [*made.rows(keys)]
    for drawn in draw_users(store, conversations, users.connection, users.model) if conversations else ():
        if isinstance(drawn, str):
            made.counts.added -= 1
            made.counts.failed += 1
            made.counts.first_failure = made.counts.first_failure or drawn
        else:
            yield drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDataset:
    """The version of a dataset after traces were added, and what became of the selected ones."""

    name: str
    snapshot: str
    n_examples: int
    counts: "ExampleCounts"


def add_traces(
    store: Store, name: str, selection: TraceSelection, source: str = PRODUCTION, users: UsersFrom | None = None
) -> TraceDataset:
    """Add the selected traces or sessions to a dataset as a new version of it, or create the dataset.

    Raise InputError, with nothing written, if no trace meets the filter, or none of those that do can become an
    example.
    """
    growth = growth_by_traces(store, name, selection, users)
    snapshot = growth.current or freeze(store, growth.examples, name=name, source=source, metadata=growth.metadata)
    return TraceDataset(name=name, snapshot=snapshot, n_examples=len(growth.examples), counts=growth.counts)


def rows_with_mode(store: Store, mode: str, reference: str | None) -> list[dict[str, Any]]:
    """Return the examples, traces and sessions that have a failure mode as rows of a dataset: all, or those of the
    experiments or the trace evaluation that a reference means. Raise InputError if none has it."""
    from evalflows.engine.trace_examples import TraceExamples  # late, as above

    owners = owners_of(store, reference) if reference else None
    rows, items = examples_with_mode(store, mode, owners), answers_with_mode(store, mode, owners=owners)
    sessions = {item.subject_id for item in items if item.subject_kind == "session"}
    traces = {item.subject_id.partition("/")[0] for item in items if item.subject_kind in ("trace", "observation")}
    by_scope: dict[SelectedScope, set[str]] = {"traces": traces, "sessions": sessions}
    for scope, ids in by_scope.items():
        keys = keys_of_items(store, scope, [*ids], datetime.fromtimestamp(0, UTC))
        for row in TraceExamples(store, TraceSelection(scope=scope), []).rows(keys):
            rows.append(row | {"id": f"{mode}-{row['id']}", "metadata": row["metadata"] | {"mode": mode}})
    if not rows:
        raise InputError(f"got nothing with {PREFIX}{mode}{f' in {reference!r}' if reference else ''}, wanted one")
    return rows


def loaded_dataset(store: Store, spec: DatasetSpec, *, final: bool = False) -> LoadedDataset:
    """Load the examples of a dataset spec, those of production included, without freezing them; see `load_dataset`."""
    if spec.traces is None:
        return load_dataset(store, spec, final=final)
    growth = growth_by_traces(store, spec.name, spec.traces)
    return LoadedDataset(
        name=spec.name,
        source=PRODUCTION,
        examples=growth.examples,
        **selected_examples(growth.examples, spec, final=final)._asdict(),
        metadata=growth.metadata,
    )


def _nothing(selection: TraceSelection, counts: "ExampleCounts") -> str:
    got = f"got {counts.not_captured} whose input was not captured"
    if counts.failed:
        got += f", {counts.failed} that could not be mapped ({counts.first_failure})"
    return f"{selection.scope}: {got}, wanted at least one that can become an example"


def _described(selection: TraceSelection) -> dict[str, Any]:
    """Return a selection as it is stored: of the user's patterns only their names, as they may contain a secret."""
    return selection.model_dump(mode="json", exclude_none=True) | {"mask": sorted(selection.mask)}


def _outcome(counts: "ExampleCounts") -> dict[str, Any]:
    names = ("duplicates", "not_captured", "failed", "unscored")
    return {
        "added": counts.added,
        "known": counts.known,
        "left_out": {name: getattr(counts, name) for name in names},
        "masked": dict(sorted(counts.masked.items())),
    }
