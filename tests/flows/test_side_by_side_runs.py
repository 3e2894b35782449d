"""The targets of a run answer each example in turn, in drawn order; only then are their latencies compared."""

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from catalog_rows import one
from click.testing import CliRunner
from endpoint import Endpoint, echo, error, serving

from evalflows import approve, run
from evalflows.cli.main import cli
from evalflows.specs import ExperimentSpec
from evalflows.specs.reference import refer

pytestmark = pytest.mark.usefixtures("prefect_api")

N = 24
TURNS: list[tuple[str, str]] = []


def slow(question: str) -> str:
    TURNS.append(("slow", question))
    time.sleep(0.02)
    return "yes"


def quick(question: str) -> str:
    TURNS.append(("quick", question))
    return "yes"


def spec(*functions: Any, **fields: Any) -> ExperimentSpec:
    given = {
        "name": "turns",
        "dataset": {"rows": [{"id": f"q{i}", "inputs": {"question": f"q{i}"}} for i in range(N)]},
        "targets": [{"kind": "python", "name": each.__name__, "function": refer(each)} for each in functions],
        "max_concurrency": 1,
    }
    return ExperimentSpec.model_validate(given | fields)


def with_chat(endpoint: Endpoint, **fields: Any) -> ExperimentSpec:
    targets = [
        {"kind": "python", "name": "slow", "function": refer(slow)},
        {"kind": "chat", "name": "chat", "connection": "mine", "user": "{question}"},
    ]
    connection = {"mine": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "attempts": 1}}
    return spec(targets=targets, connections=connection, **fields)


LATENCY = """select conclusion, reason_code, n_pairs, difference, warning from verdicts
             where metric = 'latency' order by candidate_experiment_id desc limit 1"""


@pytest.mark.slow
def test_each_example_is_answered_by_all_targets_in_turn() -> None:
    TURNS.clear()
    run(spec(slow, quick))
    questions = [question for _, question in TURNS]
    assert questions == [f"q{i}" for i in range(N) for _ in range(2)]
    first = {target for target, _ in TURNS[::2]}
    assert first == {"slow", "quick"}  # now one, now the other
    (at_once, rounds) = one("select count(*), count(distinct round_at) from outputs where round_at is not null")
    assert (at_once, rounds) == (2 * N, N)
    conclusion, code, n_pairs, difference, warning = one(LATENCY)
    assert (conclusion, code, n_pairs, warning) == ("better", None, N - 1, None)  # without the round of the warm-up
    assert -0.04 < difference < -0.01


@pytest.mark.slow
def test_targets_that_ran_at_different_times_keep_their_figures_without_a_verdict() -> None:
    fields: dict[str, Any] = {
        "run_key": "turns",
        "evaluators": ["exact_match"],
        "composites": [{"name": "quality", "weights": {"exact_match": 1, "latency": 1}}],
        "metrics": {"latency": {"range": [0, 10]}},
    }
    run(spec(slow, **fields))
    experiments = run(spec(slow, quick, **fields))
    conclusion, code, n_pairs, difference, _ = one(LATENCY)
    assert (conclusion, code, n_pairs) == ("not_enough_evidence", "not_side_by_side", N)
    assert -0.04 < difference < -0.01
    code, reason = one("select reason_code, reason from verdicts where metric = 'quality'")
    assert (code, "it depends on latency" in reason) == ("not_side_by_side", True)
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(cli, ["show", experiments[1]]).output
    assert "not measured side by side" in " ".join(shown.split())


@pytest.mark.slow
def test_a_retried_answer_is_left_out_and_that_is_said() -> None:
    with serving(Endpoint()) as endpoint:
        endpoint.faults += [echo({"messages": []}), error(500, "down")]
        run(with_chat(endpoint, chunk_retry_delay_s=0.1))
    _, _, n_pairs, _, warning = one(LATENCY)
    assert n_pairs == N - 2
    said = f"1 of {N - 1} pairs left out because they were not made side by side"
    assert warning == f"{said}: 1 of a run that was resumed or retried"


def test_a_gate_that_compares_latency_with_an_approved_baseline_is_refused_before_the_run(tmp_path: Path) -> None:
    (experiment,) = run(spec(slow))
    approve(experiment)
    gate = {"gates": [{"name": "release", "non_inferiority": {"latency": 0.1}}]}
    (tmp_path / "spec.yaml").write_text(
        yaml.safe_dump(spec(slow, **gate).model_dump(mode="json", exclude_defaults=True))
    )
    answered = len(TURNS)
    refused = CliRunner().invoke(cli, ["gate", str(tmp_path / "spec.yaml")])
    assert (refused.exit_code, len(TURNS)) == (2, answered)
    assert "latency cannot be compared with an approved baseline, which answered at another time" in refused.output
