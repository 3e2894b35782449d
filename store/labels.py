"""Labels that people gave: read from a file, checked as a whole, kept as one batch."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specs.errors import InputError
from store.label_values import Given, feedback, given_value, number_in
from store.labelled_runs import Run, Runs
from store.parquet import Store
from store.records import LabelRow, derived_id, to_json
from store.rows import Numbered, read_rows

SHOWN = ("inputs", "outputs", "reference_outputs", "why")
"""Columns that are there for the labeller to read."""

DRAWN = ("fair", "uncertain")
"""How a run came to be labelled: in a fair sample, or since a judge was unsure of it."""

FEEDBACK = "feedback"
"""The source of labels that users gave of their own accord."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import has kept."""

    batch_id: str
    labels: Sequence[LabelRow]
    left_empty: int  # rows without a label, as a form that is filled in half has them
    was_there: bool  # whether the same was imported before, so that nothing was written


def import_labels(
    store: Store, path: str | os.PathLike[str], *, metric: str | None = None, labeller: str | None = None
) -> Imported:
    """Keep the labels of a file (CSV, JSON, JSONL, Parquet), all of them or none.

    A row names its run (`run_id`, or `experiment`, `example_id` and, where there are several, `repetition`), what is
    said of it (`value`, `label` or `feedback`; or, of two, `winner` with `other_experiment`), and may have `metric`,
    `labeller`, `comment`, `labelled_at`, `drawn` and `chance`. `metric` and `labeller` are for rows that have none.
    Other columns are kept as metadata. The same rows again change nothing.

    Raises InputError, with the row's number, for the first row that cannot be used, and for a file without labels.
    """
    where = str(path)
    rows = _checked(store, read_rows(path), where, {"metric": metric, "labeller": labeller})
    labels = [label for label in rows if label is not None]
    if not labels:
        raise InputError(f"{where}: has no labels, wanted at least one row with a value, a label or a winner")
    batch = derived_id("labels", *sorted(to_json(_content(label)) for label in labels))
    labels = [replace(label, batch_id=batch, label_id=derived_id(batch, label.label_id)) for label in labels]
    if not (was_there := store.is_sealed("labels", batch)):
        store.publish("labels", batch, labels)
    return Imported(batch_id=batch, labels=labels, left_empty=len(rows) - len(labels), was_there=was_there)


def _content(label: LabelRow) -> dict[str, Any]:
    """What a label says, whenever it was read."""
    skipped = ("label_id", "batch_id", "recorded_at", "labelled_at", "source")
    told = {name: getattr(label, name) for name in LabelRow.__slots__ if name not in skipped}
    at = label.labelled_at and label.labelled_at.isoformat()
    return told | {"labelled_at": at, "of_own_accord": label.source == FEEDBACK}


def _checked(store: Store, rows: Numbered, where: str, defaults: Mapping[str, str | None]) -> list[LabelRow | None]:
    """A label for each row, None for one without; their ids are not those of a batch yet."""
    numbered = list(rows)
    runs = Runs(store, [row for _, row in numbered])
    made: list[LabelRow | None] = []
    seen: dict[str, int] = {}
    kinds: dict[str, tuple[bool, int]] = {}
    for number, row in numbered:
        try:
            label = _label({**row, **{k: v for k, v in defaults.items() if row.get(k) is None}}, runs, where)
            if label is not None and (before := seen.setdefault(label.label_id, number)) != number:
                raise InputError(f"labelled in row {before} too, wanted a labeller for each, or one of the two")
            if label is not None:
                _check_kind(label, kinds, number)
        except InputError as error:
            raise InputError(f"{where}:{number}: {error}") from error
        made.append(label)
    return made


def _check_kind(label: LabelRow, kinds: dict[str, tuple[bool, int]], number: int) -> None:
    """Numbers and labels are not of one metric: one of them is a slip."""
    is_number = label.value is not None
    expected, first = kinds.setdefault(label.metric, (is_number, number))
    if expected != is_number:
        got = f"{label.value:g}, a number" if label.value is not None else f"{label.label!r}, a label"
        raise InputError(f"{label.metric}: got {got}, wanted {'a number' if expected else 'a label'} as in row {first}")


def _label(row: Mapping[str, Any], runs: Runs, where: str) -> LabelRow | None:
    given = _said(row)
    if given is None and row.get("winner") is None:
        return None
    metric = _text(row, "metric")
    if metric is None:
        raise InputError("no metric, wanted a column `metric`, or --metric")
    run, other = runs.find(row), runs.find_other(row)
    if other is not None:
        run, other, given = _pair(run, other, row)
    elif given is None:
        raise InputError("winner: got no other_experiment, wanted the one that it was compared with")
    labeller = _text(row, "labeller")
    return LabelRow(
        label_id=derived_id(run.run_id, other.run_id if other else None, metric, labeller),
        batch_id="",
        subject_kind="run",
        subject_id=run.run_id,
        experiment_id=run.experiment_id,
        example_id=run.example_id,
        other_run_id=other.run_id if other else None,
        metric=metric,
        value=given.value,
        label=given.label,
        data_type=given.data_type,
        labeller=labeller,
        comment=_text(row, "comment"),
        source=FEEDBACK if row.get("feedback") is not None else Path(where).name,
        metadata=_metadata(row),
        labelled_at=_time(row.get("labelled_at")),
    )


def _said(row: Mapping[str, Any]) -> Given | None:
    """What is said of one run. Raises InputError for two of value, label, feedback and winner."""
    readers: dict[str, Callable[[Any], Given]] = {
        "value": given_value,
        "label": lambda label: Given(label=str(label), data_type="CATEGORICAL"),
        "feedback": feedback,
    }
    named = [name for name in (*readers, "winner") if row.get(name) is not None]
    if len(named) > 1:
        raise InputError(f"got {' and '.join(named)}, wanted one of them")
    if not named and not {*readers, "winner"} & {*row}:
        raise InputError(f"got {', '.join(row)}, wanted a column value, label, feedback or winner")
    return readers[named[0]](row[named[0]]) if named and named[0] in readers else None


def _pair(run: Run, other: Run, row: Mapping[str, Any]) -> tuple[Run, Run, Given]:
    """The older experiment's run first, as comparisons have it, and its points."""
    if row.get("winner") is None:
        raise InputError("other_experiment: got no winner, wanted one of the two experiments, or tie")
    winner = str(row["winner"])
    calls = ((run, row.get("experiment")), (other, row.get("other_experiment")))
    called = [one for one, as_given in calls if winner in (*one.names, as_given)]
    if len(called) > 1:
        raise InputError(f"winner: got {winner!r}, as both are called, wanted an experiment's id")
    if not called and winner != "tie":
        raise InputError(f"winner: got {winner!r}, wanted {run.name!r}, {other.name!r} or tie")
    left, right = sorted((run, other), key=lambda one: one.experiment_id)
    label = "tie" if not called else "left" if called[0] is left else "right"
    points = {"left": 1.0, "tie": 0.5, "right": 0.0}[label]
    return left, right, Given(value=points, label=label, data_type="CATEGORICAL")


_OWN = {"run_id", "experiment", "experiment_id", "example_id", "repetition", "other_experiment", "metric", "value"}
_OWN |= {"label", "feedback", "winner", "labeller", "comment", "labelled_at", *SHOWN}


def _metadata(row: Mapping[str, Any]) -> str | None:
    """How it was drawn, and what else the row has."""
    kept = {name: value for name, value in row.items() if name not in _OWN and value is not None}
    if (drawn := kept.get("drawn")) is not None and drawn not in DRAWN:
        raise InputError(f"drawn: got {drawn!r}, wanted {' or '.join(DRAWN)}")
    if "chance" in kept:
        kept["chance"] = number_in("chance", kept["chance"])
        if not 0 < kept["chance"] <= 1:
            raise InputError(f"chance: got {kept['chance']:g}, wanted more than 0, and at most 1")
    return to_json(kept) if kept else None


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return None if value is None or not str(value).strip() else str(value).strip()


def _time(value: Any) -> datetime | None:
    """A moment in ISO form; without a zone, in UTC."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise InputError(f"labelled_at: got {value!r}, wanted a time such as 2026-01-31T12:00:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
