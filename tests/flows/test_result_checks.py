"""Checks of results at the end of a run: what runs leave meets them, and an error stops the conclusions."""

from collections.abc import Sequence
from typing import Any

import pytest
from catalog_rows import rows

from evalflows import evaluate
from evalflows.specs.errors import IncompleteError
from evalflows.store.records import CheckRow, ExperimentRow

DATA = [{"inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(6)]


def target(question: str) -> str:
    if question == "q3":
        raise ValueError("no answer")
    return question.upper()


def right(outputs: Any, reference_outputs: Any) -> bool:
    return bool(outputs["output"] == reference_outputs["answer"])


def several(outputs: Any) -> list[dict[str, Any]]:
    return [{"key": "length_class", "value": "short"}, {"key": "half", "score": 0.5}]


def fussy(outputs: Any) -> float | None:
    if outputs["output"] == "Q1":
        raise RuntimeError("cannot judge")
    return None


def total(outputs: list[Any]) -> float:
    return float(len(outputs))


def run(**settings: Any) -> str:
    result = evaluate(
        target,
        DATA,
        [right, several, fussy, {"use": "contains", "sample_rate": 0.5}],
        summary_evaluators=[total],
        experiment_prefix="checked",
        num_repetitions=2,
        composites=[{"name": "quality", "weights": {"right": 1, "half": 1}}],
        metrics={"half": {"range": [0, 1]}},
        check_results=True,
        **settings,
    )
    return result.experiment_id


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_what_a_run_leaves_meets_every_expectation(prefect_api: dict[str, str]) -> None:
    identity = run()
    of_results = "from checks where subject_kind = 'experiment'"
    assert rows(f"select message {of_results} and passed is not true") == []
    counts = "count(*), count(*) filter (column_name like 'runs.%'), count(flow_run_id)"
    ((subject, expectations, of_runs, flow_runs),) = rows(f"select subject_id, {counts} {of_results} group by 1")
    assert (subject, of_runs) == (identity, 6)
    assert expectations == flow_runs > 25


def not_met(store: Any, experiments: Sequence[ExperimentRow], flow_run_id: str | None) -> dict[str, list[CheckRow]]:
    check = CheckRow(
        check_id="c", batch_id="b", subject_kind="experiment", subject_id="e", name="n", passed=False, message="wrong"
    )
    return {row.experiment_id: [check, check] for row in experiments}


@pytest.mark.usefixtures("prefect_api")
def test_nothing_is_concluded_from_results_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalflows.tasks.test_and_decide.checks_of_results", not_met)
    with pytest.raises(IncompleteError, match=r"^experiment 'checked' \(exp-\w+\): wrong \(and 1 more\)$") as caught:
        run()
    assert len(caught.value.experiments) == 1
    assert rows("select count(*) from estimates") == [(0,)]
    assert rows("select state from experiments") == [("completed",)]
