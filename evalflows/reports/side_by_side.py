"""Compared examples with what each of several systems answered, side by side."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from evalflows.analysis.changes import (
    CHANGES,
    Change,
    ComparedExperiments,
    ComparedFigures,
    ExampleChange,
    SharedExample,
    SliceSearch,
    changes_of,
    shared_examples,
)
from evalflows.analysis.diff import figures_between
from evalflows.analysis.differences import MetricReader
from evalflows.analysis.judge_exclusions import people_batches
from evalflows.reports.diff import ExperimentsDiff, diff_of, diff_without_lists
from evalflows.specs.errors import MEASURES, json_text
from evalflows.store.queries.lookup import run_groups
from evalflows.store.queries.progress import owner_states
from evalflows.store.records import controls_batch
from evalflows.store.sql import ask, record_of
from evalflows.store.store import Store

LONGEST = 20_000
"""Characters of a JSON text from which on only its beginning is read."""

BEGINNING = 2_000
"""Characters that are read of a longer one."""


def _cut(column: str) -> str:
    """SQL for a JSON text, cut if it is very long, and for the number of its characters that are left out."""
    text = f"{column}::varchar"
    return f"""case when length({text}) > {LONGEST} then to_json(left({text}, {BEGINNING}))::varchar else {text} end,
       case when length({text}) > {LONGEST} then length({text}) - {BEGINNING} else 0 end"""


FOUND = """
select distinct example_id from (
    select example_id from experiments join examples using (snapshot_id)
    where is_one_of(experiment_id, $1)
          and (contains(lower(example_id), $2) or contains(lower(inputs::varchar), $3)
               or contains(lower(reference_outputs::varchar), $3))
    union all
    select example_id from outputs where is_one_of(experiment_id, $1) and contains(lower(outputs::varchar), $3)
)
"""
"""$2: a text in lower case; $3: the same as JSON writes it, without quotes."""

ANSWERS = f"""
with lowest as (
    select run_id, min(value) as value from run_values
    where is_one_of(experiment_id, $1) and list_contains($2, example_id) and metric = $3 group by run_id
)
select experiment_id, example_id, {_cut("outputs")}, status, error, repetition,
       count(*) over (partition by experiment_id, example_id)
from outputs left join lowest using (run_id)
where is_one_of(experiment_id, $1) and list_contains($2, example_id)
qualify row_number() over (
    partition by experiment_id, example_id
    order by status in ('failed', 'not_attempted') desc, lowest.value nulls last, repetition) = 1
"""

ONLY_ANSWERS = f"""
select experiment_id, example_id, {_cut("outputs")}, status, error, repetition, 1
from outputs where is_one_of(experiment_id, $1) and list_contains($2, example_id)
"""
"""The same without repetitions, in a third of the time."""

NOTHING = "select null where false"

REASONS = """
select experiment_id, example_id, metric, arg_min(coalesce(error, replace(status, '_', ' ')), repetition)
from run_values
where is_one_of(experiment_id, $1) and list_contains($2, example_id) and list_contains($3, metric)
      and status <> 'scored'
group by experiment_id, example_id, metric
"""

TEXTS = f"""
select example_id, {_cut("inputs")}, {_cut("reference_outputs")}
from experiments join examples using (snapshot_id)
where is_one_of(experiment_id, $1) and list_contains($2, example_id)
qualify row_number() over (partition by example_id order by list_position($1, experiment_id)) = 1
"""


RowSort = Literal["worst", "best", "position", "example"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Which examples are wanted, and in which order. None: any."""

    change: Change | None = None
    candidate: str | None = None  # whose changes count
    split: str | None = None
    search: str | None = None  # in the example's id, inputs and reference, and in all answers; case does not count
    sort: RowSort = "worst"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one system answered to an example; of several repetitions, a failed one, or that with the lowest value.

    Of a very long answer, `outputs` is a JSON text with its beginning.
    """

    outputs: str | None
    left_out: int  # characters of the JSON
    status: str
    error: str | None
    repetition: int
    repetitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SideValue:
    """One metric of one example in one system. The baseline has no change and no gain."""

    metric: str
    value: float | None
    label: str | None
    missing: int  # repetitions that failed or were not attempted
    change: Change | None = None
    gain: float | None = None
    reason: str | None = None  # why a value is missing, as far as it is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One system's part of a row."""

    answer: Answer | None  # None: it has none
    values: Sequence[SideValue]  # the metric that the table is about first, if there is a value

    @property
    def change(self) -> Change | None:
        return self.values[0].change if self.values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """One example and what every system made of it. Inputs and reference are JSON, cut like answers."""

    example_id: str
    inputs: str
    inputs_left_out: int
    reference: str | None
    reference_left_out: int
    sides: Mapping[str, Side] = field(default_factory=dict)  # by experiment


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
    for one in examples:
        if (wanted.split and one.split != wanted.split) or (found is not None and one.example_id not in found):
            continue
        if wanted.candidate and wanted.candidate not in one.candidates:
            continue
        counted = [each for each in changes.get(one.example_id, ()) if _counts(each, wanted)]
        if counted or not wanted.change:
            ranked.append((_rank(one, counted, wanted.sort), one.example_id))
    return [example for _, example in sorted(ranked)]


def found_examples(store: Store, compared: ComparedExperiments, search: str) -> set[str]:
    """Return the ids of the examples with a text in their id, inputs or reference, or in an answer."""
    text = search.lower()
    (rows,) = ask(store, (FOUND, [compared.experiment_ids, text, json_text(text)[1:-1]]))
    return {example for (example,) in rows}


def inputs_of(store: Store, compared: ComparedExperiments, examples: Sequence[str]) -> dict[str, str]:
    """Return the inputs of examples as JSON, cut like answers, by the examples' ids."""
    (rows,) = ask(store, (TEXTS, [compared.experiment_ids, list(examples)]))
    return {example: inputs for example, inputs, *_ in rows}


def side_by_side(
    store: Store,
    compared: ComparedExperiments,
    examples: Sequence[str],
    changes: Sequence[Mapping[str, Sequence[ExampleChange]]],
    *,
    repetitions: int,
) -> list[ComparedRow]:
    """Return examples with every system's answer and values.

    Args:
        store: The store.
        compared: The systems.
        examples: The ids of the examples, in order.
        changes: Those in each metric by example, the main metric's first.
        repetitions: The most that a system has.
    """
    ids, shown = compared.experiment_ids, list(examples)
    of_example = {one: [each for metric in changes for each in metric.get(one, ())] for one in examples}
    metrics = list(dict.fromkeys(each.metric for some in of_example.values() for each in some))
    lacking = [one for one, some in of_example.items() if any(map(_lacks, some))]
    answers, reasons, texts = ask(
        store,
        (ANSWERS, [ids, shown, metrics[0]]) if metrics and repetitions > 1 else (ONLY_ANSWERS, [ids, shown]),
        (REASONS, [ids, lacking, metrics]) if lacking else (NOTHING, []),
        (TEXTS, [ids, shown]),
    )
    given = {(owner, example): record_of(Answer, row) for owner, example, *row in answers}
    why = {(owner, example, metric): reason for owner, example, metric, reason in reasons}
    rows = {row[0]: row for row in texts}
    return [
        record_of(
            ComparedRow,
            rows[example],
            sides={
                one: Side(
                    answer=given.get((one, example)), values=_values(one, one == ids[0], of_example[example], why)
                )
                for one in ids
            },
        )
        for example in examples
    ]


def _lacks(change: ExampleChange) -> bool:
    return bool(change.missing or change.baseline_missing or change.change == "missing")


def _counts(change: ExampleChange, wanted: RowFilter) -> bool:
    return (not wanted.candidate or change.candidate_experiment_id == wanted.candidate) and (
        not wanted.change or change.change == wanted.change
    )


def _rank(example: SharedExample, changes: Sequence[ExampleChange], sort: RowSort) -> tuple[Any, ...]:
    """What examples are sorted by; those without a gain follow those with one, changed ones first."""
    if sort == "example":
        return (example.example_id,)
    if sort == "position":
        return (example.position, example.example_id)
    gains = [one.gain if sort == "worst" else -one.gain for one in changes if one.gain is not None]
    is_same = all(one.change == "same" for one in changes)
    return (not gains, min(gains, default=0.0), not changes, is_same, example.position, example.example_id)


def _values(
    owner: str, is_baseline: bool, changes: Sequence[ExampleChange], why: Mapping[tuple[str, str, str], str]
) -> list[SideValue]:
    """Return one system's values. The baseline's stand in every candidate's changes."""
    values = {}
    for one in changes:
        if is_baseline or one.candidate_experiment_id == owner:
            given = _OF_BASELINE if is_baseline else _OF_CANDIDATE
            reason = why.get((owner, one.example_id, one.metric))
            values[one.metric] = SideValue(
                metric=one.metric, reason=reason, **{name: getattr(one, field) for name, field in given.items()}
            )
    return list(values.values())


_OF_CANDIDATE = {name: name for name in ("value", "label", "missing", "change", "gain")}
_OF_BASELINE = {name: f"baseline_{name}" for name in ("value", "label", "missing")}
"""Fields of a value, and those of a change that they are."""


MOST_CHANGES = 500_000
"""Changes that are kept, of all comparisons together: about 200 MB."""


class KeptComparison:
    """A diff without lists of examples, and the changes of each metric, which are read when they are asked for."""

    def __init__(self, store: Store, figures: ComparedFigures) -> None:
        self.compared: ComparedExperiments = figures.compared
        self.diff: ExperimentsDiff = diff_without_lists(store, figures)
        self._store, self._lock = store, threading.Lock()
        self._changes: dict[str, Mapping[str, Sequence[ExampleChange]]] = {}

    @property
    def metrics(self) -> list[str]:
        """The metrics of which examples have changes: those of evaluators first."""
        counts = (one for one in self.diff.counts if any(getattr(one, change) for change in _WITH_VALUES))
        names = list(dict.fromkeys(one.metric for one in counts))
        return sorted(names, key=lambda name: (name in MEASURES, name))

    @property
    def repetitions(self) -> int:
        """The most repetitions that an experiment has."""
        return max(one.repetitions for one in (self.diff.baseline, *self.diff.candidates))

    @cached_property
    def searches(self) -> Sequence[SliceSearch]:
        """The slices in which each candidate departs from its overall difference."""
        candidates = [one.experiment_id for one in self.diff.candidates]
        return diff_of(self._store, self.diff.baseline.experiment_id, candidates, limit=0, slices=True).searches

    @property
    def is_running(self) -> bool:
        return any(one.state == "running" for one in (self.diff.baseline, *self.diff.candidates))

    @property
    def size(self) -> int:
        """The changes that are held."""
        return sum(len(some) for metric in self._changes.values() for some in metric.values())

    @cached_property
    def examples(self) -> Sequence[SharedExample]:
        """The compared examples, in the baseline's order."""
        reader, ids = MetricReader(self._store), self.compared.experiment_ids
        baseline, *candidates = (self._store.read("experiments", identity)[0] for identity in ids)
        shared = {row.experiment_id: reader.matched(row, baseline).example_ids for row in candidates}
        return shared_examples(self._store, ids[0], shared)

    def changes(self, metrics: Sequence[str]) -> list[Mapping[str, Sequence[ExampleChange]]]:
        """Return the changes in each of these metrics, by example, in the candidates' order."""
        with self._lock:
            if unread := [metric for metric in metrics if metric not in self._changes]:
                self._changes |= changes_of(self._store, self.compared, unread)
            return [self._changes[metric] for metric in metrics]


class KeptComparisons:
    """The comparisons that were asked for last."""

    def __init__(self, most_changes: int = MOST_CHANGES) -> None:
        self._most, self._lock = most_changes, threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], KeptComparison] = OrderedDict()

    def get(self, store: Store, baseline: str, candidates: Sequence[str]) -> KeptComparison:
        """Return the comparison of experiments, given by id.

        It is made anew if a row of the experiments, of their judges' validations, or an approval was added, and as long
        as an experiment is running: whether it still runs is in no row. Raise InputError as `figures_between` does.
        """
        key = (store.layout.root, baseline, *candidates, _state(store, [baseline, *candidates]))
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
        if kept is None:
            kept = KeptComparison(store, store.steady(lambda: figures_between(store, baseline, candidates)))
            if not kept.is_running:
                self._keep(key, kept)
        return kept

    def _keep(self, key: tuple[object, ...], one: KeptComparison) -> None:
        """Keep a comparison, and as many of the others as fit beside it."""
        with self._lock:
            self._kept[key] = one
            while len(self._kept) > 1 and sum(kept.size for kept in self._kept.values()) > self._most:
                self._kept.popitem(last=False)


_WITH_VALUES = [change for change in CHANGES if change != "not_applicable"]


def _state(store: Store, experiments: Sequence[str]) -> tuple[object, ...]:
    """What the rows are known by."""
    groups = run_groups(store, experiments)
    owners = [*experiments, *groups, *map(controls_batch, groups), *people_batches(store)]
    return store.damage_version, owner_states(store, owners, ["baselines", "decisions"])
