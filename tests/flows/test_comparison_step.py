"""The comparison of an experiment's targets, as a step of its run."""

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from endpoint import Endpoint, Reply, Request, completion, serving
from matched import asked
from pairwise_runs import NAMES, ROWS, N, by_length, conclusion, longer

from evalflows import run
from evalflows.cli.labels import labels
from evalflows.specs import ExperimentSpec, IncompleteError, InputError
from evalflows.specs.reference import refer

pytestmark = pytest.mark.usefixtures("without_prefect", "short_pauses")


def answers_and_judges(request: Request) -> Reply:
    """Answer questions, and judge pairs of answers."""
    text = request["messages"][-1]["content"]
    return by_length(request) if "[BEGIN" in text else completion(text * (3 if text.startswith("long") else 1))


def with_step(endpoint: Endpoint, **changes: Any) -> ExperimentSpec:
    connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "attempts": 1, "max_in_flight": 4}
    targets = [
        {"kind": "chat", "connection": "mock", "name": name, "user": f"{name} {{question}}"}
        for name in ("short", "long")
    ]
    fields: dict[str, Any] = {
        "name": "stepped",
        "dataset": {"rows": ROWS},
        "targets": targets,
        "evaluators": ["contains"],
        "compare": {"evaluators": [{"use": "pairwise_preference", "connection": "mock"}], "both_orders": True},
        "connections": {"mock": connection},
        "chunk_retry_delay_s": 0.05,
    }
    return ExperimentSpec.model_validate(fields | changes)


@pytest.mark.slow
def test_an_experiment_compares_its_targets_and_a_resume_keeps_the_comparison() -> None:
    with serving(Endpoint(answer=answers_and_judges)) as endpoint:
        spec = with_step(endpoint, baseline="long")
        short_one, long_one = run(spec)
        assert endpoint.calls == 4 * N + 1
        assert conclusion() == ("worse", None)
        sides = asked("select candidate, baseline from win_rates where not length_controlled")
        assert sides == [("stepped-short", "stepped-long")], "the baseline is that of the experiment"
        ((group, identity, experiments, name),) = asked(
            "select run_key, comparison_id, experiments, name from comparison_sets"
        )
        assert (experiments, name) == ([short_one, long_one], "stepped")
        run(spec, resume=group)
        assert endpoint.calls == 4 * N + 1
        assert asked("select comparison_id, state from comparison_sets") == [(identity, "completed")]
        run(spec)
        assert endpoint.calls == 4 * N + 1, "all of it is in the ledger"
    assert asked("select count(distinct comparison_id), sum(calls) from comparison_sets") == [(2, 2 * N)]


def test_pairwise_evaluators_are_checked_before_anything_is_paid() -> None:
    preference = {"use": "pairwise_preference", "connection": "mock"}
    with serving(Endpoint(answer=answers_and_judges)) as endpoint:
        for judge, message in (
            ({"use": "exact_match"}, "evaluator 'exact_match': "),
            (preference | {"args": {"repeats": 0}}, "repeats: got 0"),
            (preference | {"name": "contains"}, "an item metric"),
            (preference | {"connection": "none"}, "'none'"),
        ):
            with pytest.raises(InputError, match=re.escape(message)) as caught:
                run(with_step(endpoint, compare={"evaluators": [judge]}))
            assert "\n" not in str(caught.value)
        assert endpoint.calls == 0
    assert asked("select (select count(*) from experiments), (select count(*) from comparison_sets)") == [(0, 0)]


@pytest.mark.slow
def test_the_budget_is_shared_with_the_comparison_step() -> None:
    with serving(Endpoint(latency_s=0.001, answer=answers_and_judges)) as endpoint:
        spec = with_step(endpoint, max_calls=2 * N + 5, run_key="k")
        with pytest.raises(IncompleteError, match=rf"comparison 'stepped' .*: not done: {2 * N - 4} of {2 * N} by "):
            run(spec)
        assert endpoint.calls == 2 * N + 5
        assert asked("select distinct state from experiments") == [("completed",)]
        with pytest.raises(IncompleteError):
            run(spec)
        assert endpoint.calls == 2 * N + 5
        run(spec.model_copy(update={"max_calls": 4 * N + 1}))
    assert endpoint.calls == 4 * N + 1 and endpoint.repeated() == 0
    assert asked("select state, calls from comparison_sets") == [("completed", 2 * N)]


def briefly(question: str) -> str:
    return question


def at_length(question: str) -> str:
    return question * (3 if question < "q06" else 1)


@pytest.mark.slow
def test_people_are_compared_with_the_judge_of_the_step_by_the_experiments_name(tmp_path: Path) -> None:
    targets = [
        {"kind": "python", "name": name, "function": refer(function)}
        for name, function in (("brief", briefly), ("long", at_length))
    ]
    judge = {"use": refer(longer), "name": "longer"}
    fields = {"name": "stepped", "dataset": {"rows": ROWS}, "targets": targets, "compare": {"evaluators": judge}}
    run(ExperimentSpec.model_validate(fields))
    rows = [
        f"stepped-long,{one},stepped-brief,{'stepped-long' if place < 4 else 'tie'}" for place, one in enumerate(NAMES)
    ]
    path = tmp_path / "labels.csv"
    path.write_text("\n".join(["experiment,example_id,other_experiment,winner", *rows]))
    imported = CliRunner().invoke(labels, ["import", str(path), "--metric", "longer"])
    assert f"{N} labels of longer imported" in imported.output
    for reference in ("stepped", "stepped-long"):
        printed = CliRunner().invoke(labels, ["agreement", reference, "longer"])
        assert "longer, longer, in stepped: 12 labelled of 12 judged" in printed.output, printed.output
        assert "0.83" in printed.output or "83" in printed.output
    printed = CliRunner().invoke(labels, ["agreement", "stepped", "longest"])
    assert printed.exit_code == 2
    assert "got 2 experiments, wanted one of: stepped-long, stepped-brief" in printed.output
