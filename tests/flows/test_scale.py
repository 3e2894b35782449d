"""Thousands of recorded answers: few task runs, every row in its place."""

import json
import time
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

from evalflows import run
from evalflows.specs import ExperimentSpec
from evalflows.store import connect

N = 8_000


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_thousands_of_recorded_rows_and_three_rules(tmp_path: Path) -> None:
    questions = [{"id": i, "inputs": {"q": f"{i}?"}, "outputs": {"a": str(i % 7)}} for i in range(N)]
    answers = [{"id": i, "outputs": {"output": str(i % 5)}} for i in range(N)]
    contains = {"use": "contains", "args": {"any_of": ["3", "4"]}}
    spec = {
        "name": "recorded",
        "dataset": {"path": write_jsonl(tmp_path / "questions.jsonl", questions)},
        "targets": [{"kind": "recorded", "path": write_jsonl(tmp_path / "answers.jsonl", answers)}],
        "evaluators": ["exact_match", contains, {"use": "judges:longer_than", "args": {"characters": 0}}],
    }
    run(ExperimentSpec.model_validate(spec))
    query = "select metric, mean, scored, missing from metric_summary where evaluator <> 'measured' order by 1"
    with connect() as catalog:
        (flow_run,) = catalog.execute("select flow_run_id from experiments").fetchone() or ()
        means = catalog.execute(query).fetchall()
    matching = pytest.approx(sum(i % 7 == i % 5 for i in range(N)) / N)
    assert means == [("contains", 0.4, N, 0), ("exact_match", matching, N, 0), ("longer_than", 1.0, N, 0)]
    assert task_runs(flow_run, at_least=12) == 12  # 2 chunks of two tasks, and eight around them


def task_runs(flow_run: str, at_least: int) -> int:
    """How many task runs the server has of a flow run. It records them a little later than they happen."""
    only = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(flow_run)]))
    with get_client(sync_client=True) as client:
        for _ in range(100):
            found = len(client.read_task_runs(flow_run_filter=only, limit=200))
            if found >= at_least:
                break
            time.sleep(0.2)
    return found
