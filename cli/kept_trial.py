"""Try an evaluator on a row as an experiment that is kept, with the tag that marks a trial."""

from collections.abc import Mapping
from typing import Any

from evalflows.cli.running import prepared
from evalflows.cli.terminal import stdout_to_stderr
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import TRIAL, ExperimentSpec
from evalflows.specs.target import RecordedTarget
from evalflows.store.parquet import Store
from evalflows.store.records import ScoreRow

ANSWER = "outputs"
"""The field of the row, and of the kept example's metadata, that holds the answer."""


def run_trial(spec: ExperimentSpec, row: Mapping[str, Any], where: str) -> tuple[str, list[ScoreRow]]:
    """Run a spec's one evaluator on a row as an experiment. Return its id and its scores.

    Raise InputError for a row without an answer, and IncompleteError if a model could not be called.
    """
    if row.get(ANSWER) is None:
        raise InputError(f"{where}: no outputs, wanted 'outputs', the answer to judge")
    kept = {name: value for name, value in row.items() if name != ANSWER}
    kept["metadata"] = {**(row.get("metadata") or {}), ANSWER: row[ANSWER]}
    target = RecordedTarget(kind="recorded", name="row", column=ANSWER)
    changes = {"dataset": DatasetSpec(rows=[kept]), "targets": [target], "tags": [TRIAL]}
    with stdout_to_stderr(), prepared(False, spec.name) as watch:
        from evalflows import run

        (identity,) = run(spec.model_copy(update=changes), None, watch)
    return identity, Store().read("scores", identity)
