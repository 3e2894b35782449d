"""Snapshots and results as columns to be checked, and the counts of rows that are missing or unexpected.

What an expectation about single rows cannot see is counted or looked up here: how many rows a run has, whether what a
row refers to exists, and how many rows share a key.
"""

from collections.abc import Sequence
from typing import Any

from evalflows.specs.frozen import dataclass
from evalflows.store.database import shared
from evalflows.store.layout import identifier
from evalflows.store.records import ExperimentRow
from evalflows.store.store import Store

TEXTS = ("inputs", "reference_outputs", "metadata")
"""The columns of examples that hold JSON."""

COUNTED = ("latency_s", "tokens_in", "tokens_out", "cost_usd")
"""Columns of outputs and scores that hold an amount."""

_RUN = ("example_id", "repetition")
_SCORE = (*_RUN, "metric")

_HAS_ERROR = "case when error is not null then true end"
"""Whether a row says why there is no answer; null if it does not, which is all that is expected of the text."""

_AMOUNTS = ", ".join(f"nullif({name}, 'nan'::double)" for name in COUNTED)
"""Not a number is no amount, and has a check of its own in values of metrics."""

_OUTPUTS = f"""
with known as (select example_id from source.examples where snapshot_id = $2)
select example_id, repetition, known.example_id, repetition, status, outputs, {_HAS_ERROR}, {_AMOUNTS}
from source.outputs as o left join known using (example_id) where experiment_id = $1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A query with its values, the names of its columns, and which of these tell a row from the others."""

    query: str
    values: Sequence[object]
    names: Sequence[str]
    places: Sequence[str]

    @property
    def rows(self) -> str:
        return f"with rows ({', '.join(map(identifier, self.names))}) as ({self.query})"


def count_unexpected(
    store: Store, columns: Columns, conditions: Sequence[tuple[str, str, str]]
) -> list[tuple[int, int, int]]:
    """Return how many rows meet each first condition in SQL, and how many of these the second and the third.

    The rows are read once. Raise StorageError for a damaged file.
    """
    counts = [
        f"count(*) filter (({checked}){more})"
        for checked, missing, wrong in conditions
        for more in ("", f" and ({missing})", f" and ({wrong})")
    ]
    with shared.little_memory():
        (found,) = store.query(f"{columns.rows} select {', '.join(counts)} from rows", columns.values)
    return [(found[index], found[index + 1], found[index + 2]) for index in range(0, len(found), 3)]


def unexpected_rows(
    store: Store, columns: Columns, name: str, condition: tuple[str, str, str], limit: int
) -> list[tuple[Any, ...]]:
    """Return some of the rows that meet the first and third condition: a column's value, and where each is."""
    checked, _, wrong = condition
    shown = ", ".join(map(identifier, (name, *columns.places)))
    query = f"{columns.rows} select {shown} from rows where ({checked}) and ({wrong}) order by all limit {limit}"
    with shared.little_memory():
        return store.query(query, columns.values)


def example_columns(snapshot: str) -> Columns:
    """Return the examples of a snapshot: how many fields of the inputs are filled, and which values are not unique."""
    names = ("example_id", *TEXTS, "filled_inputs", "example_id is repeated", "inputs is repeated", "example")
    return Columns(query=_EXAMPLES, values=[snapshot], names=names, places=("example",))


_EXAMPLES = r"""
with examples as (select * from source.examples where snapshot_id = $1)
select example_id, inputs, reference_outputs, metadata,
    case when json_valid(inputs)
         then len(list_filter(inputs ->> '$.*', lambda text: not regexp_full_match(text, '[\s\p{Z}]*'))) end,
    example_id in (select example_id from examples group by all having count(*) > 1),
    md5(inputs) in (select md5(inputs) from examples group by all having count(*) > 1),
    position + 1
from examples
"""

FIELDS = r"""
with examples as (select inputs, position from source.examples where snapshot_id = $1),
fields as (
    select unnest(json_keys(inputs)) as field, unnest(inputs ->> '$.*') as text, position + 1 as example
    from examples where case when json_valid(inputs) then json_type(inputs) = 'OBJECT' end
)
select field, (select count(*) from examples), count(*) filter (not regexp_full_match(text, '[\s\p{Z}]*')),
    coalesce(min(example, 20) filter (coalesce(regexp_full_match(text, '[\s\p{Z}]*'), true)), [])
from fields group by field order by field
"""
"""For each field of the inputs of a snapshot: its name, the number of examples, of those with a text in it, and the
numbers of the first in which it is blank."""


def by(evaluator: str) -> str:
    """Return the column with a run's number of scores by an evaluator."""
    return f"runs.scores_by.{evaluator}"


def value_of(metric: str) -> str:
    """Return the column with a metric's value; null in rows of other metrics."""
    return f"scores.value.{metric}"


def planned_runs(experiment: ExperimentRow, evaluators: Sequence[str]) -> Columns:
    """Return one row per example and repetition, with its number of outputs, and of scores by each evaluator."""
    counts = [f"count(*) filter (evaluator = ${index}) as n{index}" for index in range(4, len(evaluators) + 4)]
    shown = [f"coalesce(n{index}, 0)" for index in range(4, len(evaluators) + 4)]
    query = _PLANNED.format(counts=", ".join(["subject_id", *counts]), shown=", ".join(["coalesce(n, 0)", *shown]))
    values = [experiment.experiment_id, experiment.snapshot_id, experiment.repetitions, *evaluators]
    names = [*_RUN, "runs.outputs", *map(by, evaluators)]
    return Columns(query=query, values=values, names=names, places=_RUN)


_PLANNED = """
with planned as (
    select example_id, unnest(range($3)) as repetition from source.examples where snapshot_id = $2
), answered as (
    select example_id, repetition, count(*) as n, any_value(run_id) as subject_id
    from source.outputs where experiment_id = $1 group by all
), judged as (
    select {counts} from staging.scores where experiment_id = $1 and subject_kind = 'run' group by subject_id
)
select example_id, repetition, {shown}
from planned left join answered using (example_id, repetition) left join judged using (subject_id)
"""


def summary_columns(experiment: ExperimentRow, evaluators: Sequence[str]) -> Columns:
    """Return one row per summary evaluator, with its number of scores of the experiment."""
    values = [experiment.experiment_id, [*evaluators]]
    return Columns(query=_SUMMARIES, values=values, names=["evaluator", "summaries.scores"], places=["evaluator"])


_SUMMARIES = """
select name, count(score_id)
from (select unnest($2::varchar[]) as name)
left join staging.scores on evaluator = name and experiment_id = $1 and subject_kind = 'experiment'
group by name
"""


def output_columns(experiment: ExperimentRow) -> Columns:
    """Return one row per output. `outputs.example` is null if the snapshot has no such example."""
    columns = ("example", "repetition", "status", "outputs", "error", *COUNTED)
    values = [experiment.experiment_id, experiment.snapshot_id]
    names = [*_RUN, *(f"outputs.{name}" for name in columns)]
    return Columns(query=_OUTPUTS, values=values, names=names, places=_RUN)


def score_columns(experiment: ExperimentRow, metrics: Sequence[str]) -> Columns:
    """Return one row per score, with a column for each of the metrics.

    `scores.subject` is null if there is no such output, or one of another example or repetition.
    """
    columns = ("subject", "rows_of_key", "status", "result", "is_finite", "error", "sampling_rate", *COUNTED)
    values = [
        f"case when s.metric = ${index} then nullif(value, 'nan'::double) end" for index in range(2, len(metrics) + 2)
    ]
    names = [*_SCORE, *(f"scores.{name}" for name in columns), *map(value_of, metrics)]
    query = _SCORES.format(values="".join(f", {value}" for value in values))
    return Columns(query=query, values=[experiment.experiment_id, *metrics], names=names, places=_SCORE)


_SCORES = f"""
with runs as (select run_id, example_id, repetition from source.outputs where experiment_id = $1),
repeated as (
    select subject_id, turn, metric, evaluator_version, count(*) as n
    from staging.scores where experiment_id = $1 group by all having n > 1
)
select s.example_id, s.repetition, s.metric,
    case when subject_kind = 'run' and s.run_id = s.subject_id then runs.run_id
         when subject_kind = 'experiment' and s.subject_id = $1 then $1 end,
    coalesce(n, 1), status, coalesce(value::varchar, left(label, 200)), isfinite(value), {_HAS_ERROR},
    sampling_rate, {_AMOUNTS} {{values}}
from staging.scores as s
left join runs on runs.run_id = s.subject_id and runs.example_id = s.example_id and runs.repetition = s.repetition
left join repeated on repeated.subject_id = s.subject_id and repeated.turn is not distinct from s.turn
    and repeated.metric = s.metric and repeated.evaluator_version = s.evaluator_version
where s.experiment_id = $1
"""
