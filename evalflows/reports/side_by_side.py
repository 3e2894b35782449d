"""Compared examples with what each of several systems answered, side by side: which are shown, and in which order."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from evalflows.analysis.changes import Change, ComparedExperiments, ExampleChange, SharedExample
from evalflows.specs.escaping import json_text
from evalflows.specs.frozen import dataclass
from evalflows.store.queries.lookup import rows_of_experiments
from evalflows.store.sql import ask, record_of
from evalflows.store.store import Store

LONGEST = 20_000
"""Characters of a JSON text from which on only its beginning is read."""

BEGINNING = 2_000
"""Characters that are read of a longer one."""

NOTHING = "select null where false"

_OF_CANDIDATE = {name: name for name in ("value", "label", "missing", "change", "gain")}
_OF_BASELINE = {name: f"baseline_{name}" for name in ("value", "label", "missing")}
"""Fields of a value, and those of a change that they are."""

RowSort = Literal["worst", "best", "position", "example"]


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
    of_example = {example: [each for metric in changes for each in metric.get(example, ())] for example in examples}
    metrics = list(dict.fromkeys(each.metric for some in of_example.values() for each in some))
    lacking = [example for example, some in of_example.items() if any(map(_lacks, some))]
    with store.reading(only=rows_of_experiments(store, ids)):
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
                identity: Side(
                    answer=given.get((identity, example)),
                    values=_values(identity, identity == ids[0], of_example[example], why),
                )
                for identity in ids
            },
        )
        for example in examples
    ]


def _lacks(change: ExampleChange) -> bool:
    return bool(change.missing or change.baseline_missing or change.change == "missing")


def _values(
    owner: str, is_baseline: bool, changes: Sequence[ExampleChange], why: Mapping[tuple[str, str, str], str]
) -> list[SideValue]:
    """Return one system's values. The baseline's stand in every candidate's changes."""
    values = {}
    for change in changes:
        if is_baseline or change.candidate_experiment_id == owner:
            given = _OF_BASELINE if is_baseline else _OF_CANDIDATE
            reason = why.get((owner, change.example_id, change.metric))
            values[change.metric] = SideValue(
                metric=change.metric, reason=reason, **{name: getattr(change, field) for name, field in given.items()}
            )
    return list(values.values())


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
