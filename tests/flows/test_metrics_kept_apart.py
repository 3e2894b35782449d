"""An evaluator's metric never meets a measure of every run, whatever the function or the score is called."""

from typing import Any

import pytest
from catalog_rows import rows
from planted_difference import N, often, spec, targets

from evalflows import run
from evalflows.engine.judge_chunk import Judging
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.reference import refer

pytestmark = pytest.mark.usefixtures("without_prefect")


def cost(outputs: dict[str, Any]) -> bool:
    return len(outputs["output"]) < 4


cost.metrics = {"cost": {"higher_is_better": True, "range": [0, 1]}}  # type: ignore[attr-defined]


def keyed(outputs: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": "length", "score": 0.5}, {"key": "latency", "score": 1.0}, {"key": "own", "score": 1.0}]


def means() -> dict[str, float]:
    return dict(rows("select distinct metric, mean from metric_summary where mean is not null and metric <> 'latency'"))


@pytest.mark.slow
def test_functions_and_scores_called_like_measures_are_metrics_of_their_own() -> None:
    weighed = {"name": "weighed", "weights": {"length": 1}}
    gate = {"name": "release", "thresholds": {"length": 0.4}}
    (identity,) = run(
        spec(
            targets=targets(often=often),
            evaluators=[refer(cost), refer(keyed)],
            composites=[weighed],
            gates=[gate],
            metrics={"length": {"range": [0, 1]}},
        )
    )
    found = means()
    assert found.keys() == {"length", "answer_length", "cost_score", "latency_score", "own", "weighed"}
    assert (found["length"], found["cost_score"], found["latency_score"]) == (0.5, 0.75, 1.0)
    assert found["weighed"] == 0.5, "a score called length is nobody else's"
    assert rows("select conclusion from decisions") == [("PASS",)]
    assert rows("select spec -> '$.metrics.cost', spec -> '$.metrics.cost_score.range' from experiments") == [
        (None, "[0.0,1.0]")
    ]
    query = "select count(*), count(distinct run_id) from run_values where experiment_id = ? and metric = 'latency'"
    assert rows(query, identity) == [(N, N)], "the measure has one row per run"


def test_a_rule_on_the_measure_is_refused_where_both_could_be_meant() -> None:
    for changes, where in (
        ({"gates": [{"thresholds": {"cost": 0.5}}]}, "gate 'release'"),
        ({"gates": [{"non_inferiority": {"cost": 0.5}}]}, "gate 'release'"),
        ({"composites": [{"name": "all", "weights": {"cost": 1}}]}, "composite 'all'"),
        ({"metrics": {"cost": {"margin": 0.1}}}, "metrics"),
    ):
        with pytest.raises(InputError) as caught:
            run(spec(evaluators=[refer(cost)], **changes))
        said = f"{where}: 'cost' is the measure of every run, and the evaluator's metric is 'cost_score'; wanted"
        assert str(caught.value).startswith(said)


def one(example: Any) -> dict[str, Any]:
    return {"key": "quality" if int(example.id[1:]) % 2 else "one", "score": 1.0}


def other(example: Any) -> dict[str, Any]:
    return {"key": "other" if int(example.id[1:]) % 2 else "quality", "score": 1.0}


def test_two_evaluators_that_gave_one_key_in_different_processes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # neither process saw both
    monkeypatch.setattr(Judging, "_refuse_shared_metrics", lambda self, name, results: results)
    evaluators = [refer(one), refer(other)]
    with pytest.raises(IncompleteError, match="one and other both give 'quality', wanted different metric names"):
        run(spec(targets=targets(often=often), evaluators=evaluators))


@pytest.mark.slow
def test_with_a_name_for_the_evaluator_the_measure_is_meant() -> None:
    named = [{"use": refer(cost), "name": "short"}, refer(keyed)]
    run(spec(evaluators=named, gates=[{"thresholds": {"latency": 100, "short": 0.1}}]))
    assert rows("select conclusion from decisions") == [("PASS",)]
    errors = {error for (error,) in rows("select distinct error from scores where evaluator = 'keyed'")}
    assert len(errors) == 1 and "returned the score 'latency', which the spec's rules use" in errors.pop()
