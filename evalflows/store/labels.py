"""Import human labels: read from a file, checked as a whole and stored as one batch, or one at a time as a person
gives it.

A labeller's labels of one metric are an open batch that grows. Its small parts are merged as it does, so that queries
read few files.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from evalflows.specs.errors import InputError
from evalflows.specs.escaping import from_csv_cell
from evalflows.specs.frozen import dataclass
from evalflows.specs.metrics import MAX_NUMBER
from evalflows.store.file_formats import Numbered, read_rows, suffix
from evalflows.store.observations import LABELS, merge_similar
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.records import DataType, LabelRow, SubjectKind, derived_id, from_json, to_json
from evalflows.store.sql import fields_of, record_of
from evalflows.store.store import Store

YES, NO = ("true", "yes"), ("false", "no")
UP, DOWN = (
    ("up", "thumbs_up", "positive", "like", "+1", "👍"),
    ("down", "thumbs_down", "negative", "dislike", "-1", "👎"),
)

SHOWN = ("inputs", "outputs", "reference_outputs", "why")
"""Columns that only inform the labeller."""

DRAWN = ("fair", "uncertain")
"""How a run was selected for labelling: by a fair sample, or because a judge was uncertain about it."""

SELECTION = "selection"
"""What labels of traces were drawn from that meet a condition, or are the newest: no random sample of production."""

FEEDBACK = "feedback"
"""The source of labels that users gave on their own initiative."""

MACHINE = "machine"
"""The source of labels that a program gave. The view `labels` leaves them out: they never count as a person's."""

_OWN = {"run_id", "trace_id", "experiment", "experiment_id", "example_id", "repetition", "other_experiment"}
_OWN |= {"metric", "value"}

SOURCE = "review"
"""The source of labels that were given on the page Review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelValue:
    """A label's value as stored."""

    value: float | None = None
    label: str | None = None
    data_type: DataType


def parse_value(value: Any) -> LabelValue:
    """Parse yes or no, a finite number, or else a category. Raise InputError for nan, infinity and other types."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in (*YES, *NO):
            return LabelValue(value=float(word in YES), data_type="BOOLEAN")
        return _number_or_label(value.strip())
    if isinstance(value, bool):
        return LabelValue(value=float(value), data_type="BOOLEAN")
    if isinstance(value, int | float):
        return LabelValue(value=finite_number("value", value), data_type="NUMERIC")
    raise InputError(f"value: got {type(value).__name__}, wanted a number, yes or no, or a label")


def parse_feedback(value: Any) -> LabelValue:
    """Parse a thumb up or down. Raise InputError for anything else."""
    word = str(value).strip().lower()
    if word in (*UP, *YES, "1", "1.0"):
        return LabelValue(value=1.0, data_type="BOOLEAN")
    if word in (*DOWN, *NO, "0", "0.0", "-1.0"):
        return LabelValue(value=0.0, data_type="BOOLEAN")
    raise InputError(f"feedback: got {value!r}, wanted up or down (or 1 and 0, yes and no, like and dislike)")


def finite_number(name: str, value: Any) -> float:
    """Parse a finite number. Raise InputError for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name}: got {value!r}, wanted a number") from None
    if not math.isfinite(number):
        raise InputError(f"{name}: got {value!r}, wanted a finite number")
    if abs(number) > MAX_NUMBER:
        raise InputError(f"{name}: got {value!r}, wanted a number between -{MAX_NUMBER:g} and {MAX_NUMBER:g}")
    return number


def whole_number(name: str, value: Any) -> int:
    """Parse a whole number of at least 0. Raise InputError for anything else."""
    number = finite_number(name, value)
    if number != int(number) or number < 0:
        raise InputError(f"{name}: got {value!r}, wanted a whole number of at least 0")
    return int(number)


def _number_or_label(text: str) -> LabelValue:
    try:
        float(text)
    except ValueError:
        return LabelValue(label=text, data_type="CATEGORICAL")
    return LabelValue(value=finite_number("value", text), data_type="NUMERIC")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRun:
    """One run of an experiment."""

    run_id: str
    experiment_id: str
    name: str  # of the experiment
    example_id: str
    repetition: int

    @property
    def names(self) -> tuple[str, str]:
        """The experiment's name and id, either of which may be used for it."""
        return self.name, self.experiment_id


class Runs:
    """The runs of all experiments that the rows refer to, read once."""

    def __init__(self, store: Store, rows: Sequence[Mapping[str, Any]]) -> None:
        self._store = store
        self._experiments: dict[str, str] = {}
        self._by_id: dict[str, LabelledRun] = {}
        # by experiment and example, then by repetition
        self._by_example: dict[tuple[str, str], dict[int, LabelledRun]] = {}
        identities = sorted({str(row["run_id"]) for row in rows if row.get("run_id") is not None})
        query = "select distinct experiment_id from source.outputs where list_contains(?, run_id)"
        for (experiment,) in store.query(query, [identities]) if identities else ():
            self._read(experiment)
        traces = sorted({str(row["trace_id"]) for row in rows if row.get("trace_id") is not None})
        query = "select distinct trace_id from source.observations where list_contains(?, trace_id)"
        self._traces = {trace for (trace,) in store.query(query, [traces])} if traces else set[str]()

    def subject(self, row: Mapping[str, Any]) -> "LabelledRun | str":
        """Return the run, or the id of the trace, that a row is about. Raise InputError if there is none."""
        if (trace := row.get("trace_id")) is None or row.get("run_id") is not None:
            return self.find(row)
        if str(trace) not in self._traces:
            raise InputError(f"trace_id: got {trace!r}, wanted a trace in {self._store.layout.root}")
        return str(trace)

    def find(self, row: Mapping[str, Any]) -> LabelledRun:
        """Return the run with `run_id`, or with `experiment`, `example_id` and `repetition`.

        Raise InputError if there is no such run.
        """
        if (identity := row.get("run_id")) is not None:
            if str(identity) not in self._by_id:
                raise InputError(
                    f"run_id: got {identity!r}, wanted a run of an experiment in {self._store.layout.root}"
                )
            return self._by_id[str(identity)]
        reference = row.get("experiment") or row.get("experiment_id")
        if reference is None or row.get("example_id") is None:
            got = ", ".join(name for name, value in row.items() if value is not None)
            raise InputError(f"got {got or 'nothing'}, wanted run_id, or experiment and example_id, or trace_id")
        return self._at(self._experiment(str(reference)), str(row["example_id"]), row.get("repetition"))

    def find_other(self, row: Mapping[str, Any]) -> LabelledRun | None:
        """Return the run of `other_experiment` on the same example; None if the row has no other experiment."""
        if (reference := row.get("other_experiment")) is None:
            return None
        run, other = self.find(row), self._experiment(str(reference))
        if other == run.experiment_id:
            raise InputError(f"other_experiment: got {reference!r}, the same experiment, wanted another one")
        return self._at(other, run.example_id, run.repetition)

    def _at(self, experiment: str, example: str, repetition: Any) -> LabelledRun:
        runs = self._by_example.get((experiment, example), {})
        if repetition is None and len(runs) > 1:
            raise InputError(f"example {example!r} has {len(runs)} runs, wanted a column repetition, from 0")
        number = 0 if repetition is None else whole_number("repetition", repetition)
        if number not in runs:
            raise InputError(f"example_id: got {example!r}, but {experiment} has no run of it with repetition {number}")
        return runs[number]

    def _experiment(self, reference: str) -> str:
        if reference not in self._experiments:
            (self._experiments[reference],) = find_experiments(self._store, reference, just_one=True)
            self._read(self._experiments[reference])
        return self._experiments[reference]

    def _read(self, experiment: str) -> None:
        query = """select o.run_id, o.experiment_id, e.name, o.example_id, o.repetition
                   from source.outputs o join source.experiments e using (experiment_id) where o.experiment_id = ?"""
        for row in self._store.query(query, [experiment]):
            run = record_of(LabelledRun, row)
            self._by_id[run.run_id] = run
            self._by_example.setdefault((run.experiment_id, run.example_id), {})[run.repetition] = run


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import."""

    batch_id: str
    labels: Sequence[LabelRow]
    left_empty: int  # rows without a label, as in a half-completed form
    already_imported: bool  # the same labels were imported before, so nothing was written


def import_labels(
    store: Store,
    path: str | os.PathLike[str],
    *,
    metric: str | None = None,
    labeller: str | None = None,
    machine: str | None = None,
) -> Imported:
    """Store the labels of a file (CSV, JSON, JSONL, Parquet): all of them or, if any is invalid, none.

    A row names its run (`run_id`, or `experiment`, `example_id` and, if there are several, `repetition`) and its label
    (`value`, `label` or `feedback`; or `winner` with `other_experiment` for a pair of runs). It may also have `metric`,
    `labeller`, `comment`, `labelled_at`, `drawn` and `chance`. The arguments `metric` and `labeller` apply to rows
    without their own; `machine` names the program that gave all of them, if no person did. Other columns are stored as
    metadata. Importing the same rows again changes nothing.

    Raise InputError, with the row's number, for the first invalid row, and for a file without labels.
    """
    where = str(path)
    numbered = [(number, row if machine is None else row | {"labeller": machine}) for number, row in _read(path)]
    rows = _check_labels(store, numbered, where, {"metric": metric, "labeller": labeller})
    labels = [label if machine is None else replace(label, source=MACHINE) for label in rows if label is not None]
    if not labels:
        raise InputError(f"{where}: has no labels, wanted at least one row with a value, a label or a winner")
    batch = derived_id("labels", *sorted(to_json(_content(label)) for label in labels))
    labels = [replace(label, batch_id=batch, label_id=derived_id(batch, label.label_id)) for label in labels]
    if not (already_imported := store.is_sealed("labels", batch)):
        labels = later_labels(store, labels)
        store.publish("labels", batch, labels)
    return Imported(
        batch_id=batch, labels=labels, left_empty=len(rows) - len(labels), already_imported=already_imported
    )


def later_labels(store: Store, labels: Sequence[LabelRow]) -> list[LabelRow]:
    """Return labels recorded after all others of the same subjects, whatever the clock says: the latest one counts."""
    query = "select max(recorded_at) from source.labels where list_contains(?, subject_id)"
    ((newest,),) = store.query(query, [sorted({label.subject_id for label in labels})])
    if newest is None:
        return list(labels)
    return [replace(label, recorded_at=max(label.recorded_at, newest + timedelta(microseconds=1))) for label in labels]


def _read(path: str | os.PathLike[str]) -> Numbered:
    """Read the rows of a file. In CSV, drop the apostrophe that `labels next` adds to what looks like a formula."""
    is_csv = suffix(Path(path)) == ".csv"
    for number, row in read_rows(path):
        yield number, {column: from_csv_cell(value) for column, value in row.items()} if is_csv else row


def _content(label: LabelRow) -> dict[str, Any]:
    """Return a label's content, which is the same whenever it is imported."""
    skipped = ("label_id", "batch_id", "recorded_at", "labelled_at", "source")
    content = {name: getattr(label, name) for name in LabelRow.__slots__ if name not in skipped}
    at = label.labelled_at and label.labelled_at.isoformat()
    by_machine = {"by_machine": True} if label.source == MACHINE else {}
    return content | {"labelled_at": at, "of_own_accord": label.source == FEEDBACK, **by_machine}


def _check_labels(
    store: Store, numbered: Sequence[tuple[int, Mapping[str, Any]]], where: str, defaults: Mapping[str, str | None]
) -> list[LabelRow | None]:
    """Return a label per row, None for a row without one. Their ids do not include the batch yet."""
    runs = Runs(store, [row for _, row in numbered])
    labels: list[LabelRow | None] = []
    seen: dict[str, int] = {}
    kinds: dict[str, tuple[bool, int]] = {}
    for number, row in numbered:
        try:
            label = label_of({**row, **{k: v for k, v in defaults.items() if row.get(k) is None}}, runs, where)
            if label is not None and (before := seen.setdefault(label.label_id, number)) != number:
                raise InputError(
                    f"got a second label of this run (the first is in row {before}), wanted one per labeller"
                )
            if label is not None:
                _check_kind(label, kinds, number)
        except InputError as error:
            raise InputError(f"{where}:{number}: {error}") from error
        labels.append(label)
    return labels


def _check_kind(label: LabelRow, kinds: dict[str, tuple[bool, int]], number: int) -> None:
    """Raise InputError if a metric has both numbers and labels: one of them is a mistake."""
    is_number = label.value is not None
    expected, first = kinds.setdefault(label.metric, (is_number, number))
    if expected != is_number:
        got = f"{label.value:g}, a number" if label.value is not None else f"{label.label!r}, a label"
        raise InputError(f"{label.metric}: got {got}, wanted {'a number' if expected else 'a label'} as in row {first}")


def label_of(row: Mapping[str, Any], runs: Runs, where: str) -> LabelRow | None:
    """Return the label of one row, without a batch; None if the row has none. Raise InputError if it is invalid."""
    label_value = _label_value(row)
    if label_value is None and row.get("winner") is None:
        return None
    metric = _text(row, "metric")
    if metric is None:
        raise InputError("got no metric, wanted a column `metric`, or --metric")
    run = runs.subject(row)
    if isinstance(run, str):
        return _label(row, "trace", run, metric, label_value, where)
    other = runs.find_other(row)
    if other is not None:
        run, other, label_value = _pair(run, other, row)
    elif label_value is None:
        raise InputError("winner: got no other_experiment, wanted the experiment that it was compared with")
    label = _label(row, "run", run.run_id, metric, label_value, where, other.run_id if other else None)
    return replace(label, experiment_id=run.experiment_id, example_id=run.example_id)


def _label(
    row: Mapping[str, Any],
    kind: SubjectKind,
    subject: str,
    metric: str,
    label_value: LabelValue | None,
    where: str,
    other: str | None = None,
) -> LabelRow:
    if label_value is None:
        raise InputError("winner: got one for a trace, wanted a value, a label or feedback")
    labeller = _text(row, "labeller")
    return LabelRow(
        label_id=derived_id(subject, other, metric, labeller),
        batch_id="",
        subject_kind=kind,
        subject_id=subject,
        other_run_id=other,
        metric=metric,
        value=label_value.value,
        label=label_value.label,
        data_type=label_value.data_type,
        labeller=labeller,
        comment=_text(row, "comment"),
        source=FEEDBACK if row.get("feedback") is not None else Path(where).name,
        metadata=_metadata(row),
        labelled_at=_time(row.get("labelled_at")),
    )


def _label_value(row: Mapping[str, Any]) -> LabelValue | None:
    """Return the label of a single run. Raise InputError if several of value, label, feedback and winner are given."""
    readers: dict[str, Callable[[Any], LabelValue]] = {
        "value": parse_value,
        "label": lambda label: LabelValue(label=str(label), data_type="CATEGORICAL"),
        "feedback": parse_feedback,
    }
    filled = [name for name in (*readers, "winner") if row.get(name) is not None]
    if len(filled) > 1:
        raise InputError(f"got {' and '.join(filled)}, wanted one of them")
    if not filled and not {*readers, "winner"} & {*row}:
        raise InputError(f"got {', '.join(row)}, wanted a column value, label, feedback or winner")
    return readers[filled[0]](row[filled[0]]) if filled and filled[0] in readers else None


def _pair(run: LabelledRun, other: LabelledRun, row: Mapping[str, Any]) -> tuple[LabelledRun, LabelledRun, LabelValue]:
    """Return the two runs, the older experiment's first as in comparisons, and the first run's points."""
    if row.get("winner") is None:
        raise InputError("other_experiment: got no winner, wanted one of the two experiments, or tie")
    winner = str(row["winner"])
    references = ((run, row.get("experiment")), (other, row.get("other_experiment")))
    winners = [candidate for candidate, reference in references if winner in (*candidate.names, reference)]
    if len(winners) > 1:
        raise InputError(f"winner: got {winner!r}, the name of both experiments, wanted an experiment's id")
    if not winners and winner != "tie":
        raise InputError(f"winner: got {winner!r}, wanted {run.name!r}, {other.name!r} or tie")
    left, right = sorted((run, other), key=lambda side: side.experiment_id)
    label = "tie" if not winners else "left" if winners[0] is left else "right"
    points = {"left": 1.0, "tie": 0.5, "right": 0.0}[label]
    return left, right, LabelValue(value=points, label=label, data_type="CATEGORICAL")


_OWN |= {"label", "feedback", "winner", "labeller", "comment", "labelled_at", *SHOWN}


def _metadata(row: Mapping[str, Any]) -> str | None:
    """Return how the run was drawn, and the row's other columns."""
    metadata = {name: value for name, value in row.items() if name not in _OWN and value is not None}
    if (drawn := metadata.get("drawn")) is not None and drawn not in DRAWN:
        raise InputError(f"drawn: got {drawn!r}, wanted {' or '.join(DRAWN)}")
    if "chance" in metadata:
        metadata["chance"] = finite_number("chance", metadata["chance"])
        if not 0 < metadata["chance"] <= 1:
            raise InputError(f"chance: got {metadata['chance']:g}, wanted more than 0 and at most 1")
    return to_json(metadata) if metadata else None


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return None if value is None or not str(value).strip() else str(value).strip()


def _time(value: Any) -> datetime | None:
    """Parse an ISO time; without a time zone it is UTC."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise InputError(f"labelled_at: got {value!r}, wanted a time such as 2026-01-31T12:00:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """A label that counts now."""

    label: LabelRow
    is_new: bool  # False if the labeller's label was the same already


def add_label(store: Store, batch_id: str, row: Mapping[str, Any], source: str = SOURCE) -> Added:
    """Store the label of one row of a label file, see `import_labels`. It is on disk when this returns.

    The labeller's label of the same subject and metric is replaced: the older row stays, the newer counts. Giving the
    same label to the same question again stores nothing. Raise InputError for an invalid row, or one without a label.
    """
    found = label_of(row, Runs(store, [row]), source)
    if found is None:
        raise InputError("got no label, wanted a value, a label or a winner")
    (label,) = later_labels(store, [found])
    before = _current(store, label)
    if before is not None and _said(before) == _said(label):
        return Added(label=before, is_new=False)
    identity = derived_id(batch_id, label.label_id, before.label_id if before else None, *map(str, _said(label)))
    label = replace(label, batch_id=batch_id, label_id=identity)
    store.append("labels", batch_id, "label", [label])
    merge_similar(store, "labels", batch_id, LABELS, removes=True)
    return Added(label=label, is_new=True)


def _current(store: Store, label: LabelRow) -> LabelRow | None:
    """Return the label of the same labeller and subject that counts now."""
    query = f"""select {fields_of(LabelRow)} from source.labels
                where subject_kind = ? and subject_id = ? and turn is null and other_run_id is not distinct from ?
                      and metric = ? and labeller is not distinct from ? and (source = '{MACHINE}') = ?
                order by recorded_at desc, label_id limit 1"""
    subject = (label.subject_kind, label.subject_id, label.other_run_id, label.metric, label.labeller)
    rows = store.query(query, [*subject, label.source == MACHINE])
    return record_of(LabelRow, rows[0]) if rows else None


def _said(label: LabelRow) -> tuple[float | str | None, ...]:
    """Return what a label says, and of which question."""
    question = (from_json(label.metadata) or {}).get("question") if label.metadata else None
    return label.value, label.label, label.comment, question
