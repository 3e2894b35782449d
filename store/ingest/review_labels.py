"""One label at a time, as a person gives it on the page Review: on disk before the person sees the next item.

A labeller's labels of one metric are an open batch that grows. Its small parts are merged as it does, so that queries
read few files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from evalflows.specs.errors import InputError
from evalflows.store.compaction import LABELS, merge_similar
from evalflows.store.ingest.labelled_runs import Runs
from evalflows.store.ingest.labels import label_of, later_labels
from evalflows.store.parquet import Store
from evalflows.store.records import LabelRow, derived_id, from_json

SOURCE = "review"
"""The source of labels that were given on the page Review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """A label that counts now."""

    label: LabelRow
    is_new: bool  # False if the labeller's label was the same already


def add_label(store: Store, batch_id: str, row: Mapping[str, Any]) -> Added:
    """Store the label of one row of a label file, see `import_labels`. It is on disk when this returns.

    The labeller's label of the same subject and metric is replaced: the older row stays, the newer counts. Giving the
    same label to the same question again stores nothing. Raise InputError for an invalid row, or one without a label.
    """
    label, before = store.steady(lambda: _read(store, row))
    if before is not None and _said(before) == _said(label):
        return Added(label=before, is_new=False)
    identity = derived_id(batch_id, label.label_id, before.label_id if before else None, *map(str, _said(label)))
    label = replace(label, batch_id=batch_id, label_id=identity)
    store.append("labels", batch_id, "label", [label])
    merge_similar(store, "labels", batch_id, LABELS, removes=True)
    return Added(label=label, is_new=True)


def _read(store: Store, row: Mapping[str, Any]) -> tuple[LabelRow, LabelRow | None]:
    """Return the label of a row, recorded after others of its subject, and what the labeller had said before."""
    label = label_of(row, Runs(store, [row]), SOURCE)
    if label is None:
        raise InputError("got no label, wanted a value, a label or a winner")
    (label,) = later_labels(store, [label])
    return label, _current(store, label)


def _current(store: Store, label: LabelRow) -> LabelRow | None:
    """Return the label of the same labeller and subject that counts now."""
    query = f"""select {", ".join(LabelRow.__slots__)} from source.labels
                where subject_kind = ? and subject_id = ? and turn is null and other_run_id is not distinct from ?
                      and metric = ? and labeller is not distinct from ?
                order by recorded_at desc, label_id limit 1"""
    subject = (label.subject_kind, label.subject_id, label.other_run_id, label.metric, label.labeller)
    rows = store.query(query, subject)
    return LabelRow(**dict(zip(LabelRow.__slots__, rows[0], strict=True))) if rows else None


def _said(label: LabelRow) -> tuple[float | str | None, ...]:
    """What a label says, and of which question."""
    question = (from_json(label.metadata) or {}).get("question") if label.metadata else None
    return label.value, label.label, label.comment, question
