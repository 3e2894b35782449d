"""The rows that rules give to recorded answers: the same as in the version that made a row for each score."""

import json
from pathlib import Path
from typing import Any

import pytest
from mixed_rules import CONFIGS, EVALUATORS, EXAMPLES, METRICS
from rule_rows import comparable, run_without_flow, stored

from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import InputError
from evalflows.specs.reference import refer
from evalflows.store.records import ExperimentRow

KEPT = Path(__file__).parent / "rule_rows.json"
"""The rows as version 0.1 made them, with what differs between runs left out."""


TWO = {"kind": "processes", "processes": 2}


def judge(*more: Any, repetitions: int = 2, **changes: Any) -> ExperimentRow:
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
        | changes
    )
    return run_without_flow(spec)


def check(found: dict[str, list[Any]], kept: dict[str, list[Any]]) -> None:
    """Both have the same rows; otherwise those that only one has are named."""
    for table, rows in found.items():
        others = [f"too many: {row}" for row in rows if row not in kept[table]]
        others += [f"lacking: {row}" for row in kept[table] if row not in rows]
        assert not others, "\n".join([f"{table}:", *others[:10]])
    assert found == kept


def test_the_rows_are_those_that_were_made_one_by_one() -> None:
    found = {table: comparable(rows) for table, rows in stored(judge()).items()}
    check(found, json.loads(KEPT.read_text(encoding="utf-8")))


def test_rows_of_rules_that_take_long_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalflows.engine.judge_chunk.FLUSH_AFTER_S", 0.0)  # each is a row, and on disk at once
    test_the_rows_are_those_that_were_made_one_by_one()


@pytest.mark.slow
def test_processes_make_the_same_rows() -> None:
    asynchronous = "mixed_rules:awaited"
    evaluators = [evaluator for evaluator in EVALUATORS if evaluator != asynchronous]
    rows_by_table = stored(judge(evaluators=evaluators, task_runner=TWO))
    found = {table: comparable(rows) for table, rows in rows_by_table.items()}
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    kept["judgements"] = [row for row in kept["judgements"] if row["evaluator"] != "awaited"]
    check(found, kept)


def test_processes_are_for_rules_and_recorded_answers_only() -> None:
    wanted = "task_runner: got processes, wanted recorded answers or items of production, and rules without models"
    with pytest.raises(InputError, match=wanted):
        judge(task_runner=TWO)
    with pytest.raises(InputError, match="evaluator 'mine': got a function that only this process has"):
        judge(evaluators=[{"use": refer(lambda outputs: True), "name": "mine"}], task_runner="processes")
