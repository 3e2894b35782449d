"""The results of an experiment as columns to be checked, in blocks of rows.

What an expectation about single rows cannot see is counted or looked up here: how many rows a run has, whether what a
row refers to exists, and how many rows share a key. Long texts have stand-ins, so that a block is small.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from evalflows.store.database import shared
from evalflows.store.records import ExperimentRow
from evalflows.store.store import Store

COUNTED = ("latency_s", "tokens_in", "tokens_out", "cost_usd")
"""Columns of outputs and scores that hold an amount."""

PLACES = ("example_id", "repetition")
PLACES_OF_SCORES = (*PLACES, "metric")
PLACES_OF_SUMMARIES = ("evaluator",)
"""The columns by which a row is found again."""

ROWS_AT_ONCE = 10_000
"""Rows in one block."""


def by(evaluator: str) -> str:
    """Return the column with a run's number of scores by an evaluator."""
    return f"runs.scores_by.{evaluator}"


def value_of(metric: str) -> str:
    """Return the column with a metric's value; null in rows of other metrics."""
    return f"scores.value.{metric}"


def planned_runs(store: Store, experiment: ExperimentRow, evaluators: Sequence[str]) -> Iterator[pa.Table]:
    """Yield one row per example and repetition, with its number of outputs, and of scores by each evaluator."""
    counts = [f"count(*) filter (evaluator = ${place}) as n{place}" for place in range(4, len(evaluators) + 4)]
    shown = [f"coalesce(n{place}, 0)" for place in range(4, len(evaluators) + 4)]
    names = [*PLACES, "runs.outputs", *map(by, evaluators)]
    query = _PLANNED.format(counts=", ".join(["subject_id", *counts]), shown=", ".join(["coalesce(n, 0)", *shown]))
    values = [experiment.experiment_id, experiment.snapshot_id, experiment.repetitions, *evaluators]
    return _blocks(store, query, values, names)


_PLANNED = """
with planned as (
    select example_id, position, unnest(range($3)) as repetition from source.examples where snapshot_id = $2
), answered as (
    select example_id, repetition, count(*) as n, any_value(run_id) as subject_id
    from source.outputs where experiment_id = $1 group by all
), judged as (
    select {counts} from source.scores where experiment_id = $1 and subject_kind = 'run' group by subject_id
)
select example_id, repetition, {shown}
from planned left join answered using (example_id, repetition) left join judged using (subject_id)
order by position, repetition
"""


def summary_columns(store: Store, experiment: ExperimentRow, evaluators: Sequence[str]) -> Iterator[pa.Table]:
    """Yield one row per summary evaluator, with its number of scores of the experiment."""
    return _blocks(
        store, _SUMMARIES, [experiment.experiment_id, [*evaluators]], [*PLACES_OF_SUMMARIES, "summaries.scores"]
    )


_SUMMARIES = """
select name, count(score_id)
from (select unnest($2::varchar[]) as name)
left join source.scores on evaluator = name and experiment_id = $1 and subject_kind = 'experiment'
group by name order by name
"""


def output_columns(store: Store, experiment: ExperimentRow) -> Iterator[pa.Table]:
    """Yield one row per output. `outputs.example` is null if the snapshot has no such example."""
    names = ["example", "repetition", "status", "outputs", "error", *COUNTED]
    values = [experiment.experiment_id, experiment.snapshot_id]
    return _blocks(store, _OUTPUTS, values, [*PLACES, *(f"outputs.{name}" for name in names)])


_STAND_IN = """case when length(outputs) < 2000 then outputs
    when json_valid(outputs) then to_json(left(outputs, 200) || '…')::varchar else left(outputs, 200) || '…' end"""
"""What a long text begins with: JSON if it is."""

_HAS_ERROR = "case when error is not null then true end"
"""Whether a row says why there is no answer; null if it does not, which is all that is expected of the text."""

_OUTPUTS = f"""
with known as (select example_id from source.examples where snapshot_id = $2)
select example_id, repetition, known.example_id, repetition, status, {_STAND_IN}, {_HAS_ERROR},
    {", ".join(COUNTED)}
from source.outputs as o left join known using (example_id) where experiment_id = $1
"""


def score_columns(store: Store, experiment: ExperimentRow, metrics: Sequence[str]) -> Iterator[pa.Table]:
    """Yield one row per score, with a column for each of the metrics.

    `scores.subject` is null if there is no such output, or one of another example or repetition.
    """
    names = ["subject", "rows_of_key", "status", "result", "is_finite", "error", "sampling_rate", *COUNTED]
    values = [f"case when s.metric = ${place} then value end" for place in range(2, len(metrics) + 2)]
    columns = [*PLACES_OF_SCORES, *(f"scores.{name}" for name in names), *map(value_of, metrics)]
    query = _SCORES.format(values="".join(f", {value}" for value in values))
    return _blocks(store, query, [experiment.experiment_id, *metrics], columns)


_SCORES = f"""
with runs as (select run_id, example_id, repetition from source.outputs where experiment_id = $1),
repeated as (
    select subject_id, turn, metric, evaluator_version, count(*) as n
    from source.scores where experiment_id = $1 group by all having n > 1
)
select s.example_id, s.repetition, s.metric,
    case when subject_kind = 'run' and s.run_id = s.subject_id then runs.run_id
         when subject_kind = 'experiment' and s.subject_id = $1 then $1 end,
    coalesce(n, 1), status, coalesce(value::varchar, left(label, 200)), isfinite(value), {_HAS_ERROR},
    sampling_rate, {", ".join(COUNTED)} {{values}}
from source.scores as s
left join runs on runs.run_id = s.subject_id and runs.example_id = s.example_id and runs.repetition = s.repetition
left join repeated on repeated.subject_id = s.subject_id and repeated.turn is not distinct from s.turn
    and repeated.metric = s.metric and repeated.evaluator_version = s.evaluator_version
where s.experiment_id = $1
"""


def _blocks(store: Store, query: str, values: Sequence[Any], names: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of a query with these names of columns; without rows, an empty block.

    The files are those of a finished experiment, which do not change. Raise StorageError for a damaged one.
    """
    store.verify([str(value) for value in values[:2]], ("examples", "outputs", "scores"))
    with shared.little_memory(), store.cursor() as connection:
        batches = connection.sql(query, params=[*values]).to_arrow_reader(ROWS_AT_ONCE)
        none = True
        for batch in batches:
            none = False
            yield pa.Table.from_batches([batch]).rename_columns([*names])
        if none:
            yield batches.schema.empty_table().rename_columns([*names])
