"""The checks of an experiment's results by Great Expectations, in blocks of rows."""

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from evalflows.execution.data_checks.check_rows import check_row
from evalflows.execution.data_checks.result_expectations import (
    evaluators_of,
    of_outputs,
    of_runs,
    of_scores,
    of_summaries,
    ranges_of,
    summaries_of,
)
from evalflows.execution.data_checks.validator import Validator
from evalflows.store.parquet import Store
from evalflows.store.queries.result_columns import (
    PLACES,
    PLACES_OF_SCORES,
    PLACES_OF_SUMMARIES,
    output_columns,
    planned_runs,
    score_columns,
    summary_columns,
)
from evalflows.store.records import CheckRow, ExperimentRow
from evalflows.store.row_specs import experiment_spec
from evalflows.store.snapshots import load_snapshot


def run_result_checks(store: Store, experiment: ExperimentRow, batch: str) -> list[CheckRow]:
    """Check the planned runs, summaries, outputs and scores of a finished experiment, one row per expectation.

    Raise InputError if its snapshot is not in the store.
    """
    load_snapshot(store, experiment.snapshot_id)
    validator, spec = Validator(), experiment_spec(experiment)
    runs = planned_runs(store, experiment, evaluators_of(spec))
    outputs = output_columns(store, experiment)
    scores = score_columns(store, experiment, [*ranges_of(spec)])
    summaries = summary_columns(store, experiment, summaries_of(spec))
    results = [
        *validator.validate_blocks(_frames(runs), of_runs(experiment), PLACES),
        *validator.validate_blocks(_frames(summaries), of_summaries(experiment), PLACES_OF_SUMMARIES),
        *validator.validate_blocks(_frames(outputs), of_outputs(experiment), PLACES),
        *validator.validate_blocks(_frames(scores), of_scores(experiment), PLACES_OF_SCORES),
    ]
    return [check_row(result, "experiment", experiment.experiment_id, batch) for result in results]


def _frames(tables: Iterable[Any]) -> Iterator[pd.DataFrame]:
    """Yield Arrow tables as frames in which all that is missing is None."""
    for table in tables:
        yield table.to_pandas(integer_object_nulls=True).astype(object).where(lambda frame: frame.notna(), None)
