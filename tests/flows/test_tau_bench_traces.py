"""tau-bench's trajectories as traces: agent evaluators give each the score that they give it in an experiment."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import rows

from evalflows import evaluate_traces, run
from evalflows.specs import ExperimentSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.store import Store
from evalflows.telemetry.exports import add_traces

ROOT = Path(__file__).parents[2]
PUBLISHED = Path(os.environ.get("EVALFLOWS_PUBLISHED_DATA", ROOT.parent / "shared" / "data"))
TRAJECTORIES = PUBLISHED / "tau_bench" / "gpt-4o-airline_trajectories_full.json.gz"
pytestmark = [
    pytest.mark.skipif(not TRAJECTORIES.is_file(), reason="tau-bench is not there (EVALFLOWS_PUBLISHED_DATA)"),
    pytest.mark.usefixtures("prefect_api"),
    pytest.mark.soak,
]
EVALUATORS: list[Any] = [
    "tool_selection",
    {"use": "tool_order", "args": {"mode": "superset"}},
    {"use": "tool_arguments", "args": {"extra_calls": "ignored"}},
    "step_efficiency",
]

Scores = dict[tuple[str, str, int], tuple[float | None, str]]
"""The value and the status by metric, task and trial."""


def experiment(runs: list[dict[str, Any]], folder: Path) -> Scores:
    """Judge the trajectories as the recorded answers of an experiment."""
    answers = folder / "answers.jsonl"
    lines = (
        {"id": str(one["task_id"]), "repetition": one["trial"], "outputs": {"messages": one["traj"]}} for one in runs
    )
    answers.write_text("\n".join(map(json.dumps, lines)))
    actions = {one["task_id"]: one["info"]["task"]["actions"] for one in runs}
    examples = [
        {"id": str(task), "inputs": {"task": task}, "reference_outputs": {"tool_calls": wanted}}
        for task, wanted in actions.items()
    ]
    target = {"name": "gpt-4o", "kind": "recorded", "path": str(answers)}
    run(
        ExperimentSpec.model_validate(
            {
                "name": "airline",
                "dataset": {"rows": examples},
                "targets": [target],
                "repetitions": 4,
                "evaluators": EVALUATORS,
            }
        )
    )
    query = (
        "select metric, example_id, repetition, value, status from scores where subject_kind = 'run' and turn is null"
    )
    return {
        (metric, task, trial): (value, status)
        for metric, task, trial, value, status in rows(query)
        if metric.startswith(("tool_", "step_"))
    }


def production(runs: list[dict[str, Any]], folder: Path) -> Scores:
    """Judge them as traces, of which evaluators see the tool calls."""
    import tau_bench_traces

    path = folder / "traces.jsonl"
    path.write_text("".join(json.dumps(tau_bench_traces.request(one)) + "\n" for one in runs))
    added = add_traces(Store(), str(path))
    assert (added.records, added.n_rejected) == (200, 0)
    assert rows("select count(*), count(distinct session_id) from traces") == [(200, 50)]
    evaluate_traces(
        TraceEvaluationSpec.model_validate(
            {"name": "airline", "mapper": "tau_bench_traces:mapped", "evaluators": EVALUATORS, "settle_s": 0}
        )
    )
    ids = {tau_bench_traces.trace_id(one): (str(one["task_id"]), one["trial"]) for one in runs}
    found = rows("select metric, trace_id, value, status from trace_scores")
    return {(metric, *ids[trace]): (value, status) for metric, trace, value, status in found}


def test_traces_get_the_scores_of_the_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import tau_bench_traces

    runs = tau_bench_traces.trajectories(str(TRAJECTORIES))
    expected = experiment(runs, tmp_path)
    found = production(runs, tmp_path)
    assert len(expected) == 200 * len({metric for metric, _, _ in expected}) >= 200 * 6
    assert found == expected
