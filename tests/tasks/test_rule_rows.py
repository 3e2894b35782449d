"""The rows that rules give to recorded answers: the same as in the version that made a row for each score."""

import json
from pathlib import Path
from typing import Any

from mixed_rules import CONFIGS, EVALUATORS, EXAMPLES, METRICS
from rule_rows import comparable, stored

from evalflows.execution.chunks import waves_of
from evalflows.specs import ExperimentSpec
from evalflows.store.records import ExperimentRow
from evalflows.tasks.evaluate import evaluate_chunk
from evalflows.tasks.execute import execute_rounds
from evalflows.tasks.snapshot import check_and_freeze
from evalflows.tasks.start import start_experiments

KEPT = Path(__file__).parent / "rule_rows.json"
"""The rows as version 0.1 made them, with what differs between runs left out."""


def judge(*more: Any, repetitions: int = 2) -> ExperimentRow:
    """Answer and judge the examples, without a flow."""
    spec = ExperimentSpec.model_validate(
        {
            "name": "rules",
            "dataset": {"rows": EXAMPLES},
            "targets": [{"kind": "recorded", "column": "said"}],
            "evaluators": [*EVALUATORS, *more],
            "metrics": METRICS,
            "score_configs": CONFIGS,
            "repetitions": repetitions,
            "chunk_size": 5,
        }
    )
    experiments = start_experiments.fn(check_and_freeze(spec))
    for wave in waves_of(spec, experiments):
        for rounds in wave:
            execute_rounds.fn(rounds)
            for chunk in rounds.chunks:
                evaluate_chunk.fn(chunk)
    return experiments[0]


def test_the_rows_are_those_that_were_made_one_by_one() -> None:
    found = {table: comparable(rows) for table, rows in stored(judge()).items()}
    assert found == json.loads(KEPT.read_text(encoding="utf-8"))
