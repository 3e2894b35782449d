"""Comparisons that reuse judgements, stop, resume or are killed."""

import subprocess
from pathlib import Path

import pytest
import yaml
from command import command, with_support
from endpoint import Endpoint, serving
from interrupted_runs import when_called
from matched import asked, judgements
from pairwise_runs import N, answered, by_length, judged_by

from evalflows import compare
from evalflows.specs import InputError

pytestmark = pytest.mark.usefixtures("prefect_api", "short_pauses")


@pytest.mark.slow
def test_adding_an_experiment_pays_only_for_its_new_pairs() -> None:
    a, b, c = answered("a", "b", "c")
    with serving(Endpoint(answer=by_length)) as endpoint:
        compare(judged_by(endpoint, [a, b], name="two"))
        assert endpoint.calls == N + 1, "and a trial of the judge's parameters"
        compare(judged_by(endpoint, [c, b, a], name="three"))
        assert endpoint.calls == 3 * N + 1 and endpoint.repeated() == 0
        compare(judged_by(endpoint, [a, b, c], name="again"))
        assert endpoint.calls == 3 * N + 1
        compare(judged_by(endpoint, [a, b], name="fresh", use_cache=False))
        assert endpoint.calls == 4 * N + 1
    paid = dict(asked("select name, [calls, calls_cached] from comparison_sets"))
    assert paid == {"two": [N + 1, 0], "three": [2 * N, N], "again": [0, 3 * N], "fresh": [N, 0]}
    board = asked("select experiment, rank from leaderboard where comparison = 'three' and slice = 'all' order by rank")
    assert board == [("c", 1), ("b", 2), ("a", 3)]


def test_budget_usd_without_prices_is_refused_before_anything_is_paid() -> None:
    with serving(Endpoint(answer=by_length)) as endpoint:
        with pytest.raises(InputError, match="evaluator 'judge': budget_usd cannot be enforced without the price of"):
            compare(judged_by(endpoint, answered("old", "new"), budget_usd=1.0))
        assert endpoint.calls == 0
    assert asked("select count(*) from comparison_sets") == [(0,)]


# Killed

MANY, IN_FLIGHT = 100, 8


def write_spec(folder: Path, base_url: str, experiments: list[str]) -> Path:
    spec = {
        "name": "killed",
        "experiments": experiments,
        "evaluators": [{"use": "pairwise_preference", "connection": "mock"}, "judges_of_pairs:by_text"],
        "connections": {"mock": {"kind": "endpoint", "base_url": base_url, "model": "m", "max_in_flight": IN_FLIGHT}},
        "both_orders": True,
        "max_concurrency": IN_FLIGHT,
        "chunk_size": 20,
    }
    path = folder / "comparison.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


@pytest.mark.soak
def test_a_killed_comparison_repeats_only_calls_in_flight(tmp_path: Path, prefect_environment: dict[str, str]) -> None:
    old, new = answered("old", "new", n=MANY)
    total = 2 * MANY
    with serving(Endpoint(latency_s=0.03, answer=by_length)) as endpoint:
        spec = write_spec(tmp_path, endpoint.base_url, [old, new])
        process = started(tmp_path, prefect_environment, "compare", str(spec))
        when_called(process, endpoint, MANY)
        process.kill()
        process.communicate()
        process = started(tmp_path, prefect_environment, "resume", "killed")
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output.decode()
    print(f"killed at call {MANY}: {endpoint.calls} calls for {total}, {endpoint.repeated()} of them again")
    assert endpoint.repeated() <= IN_FLIGHT
    assert endpoint.calls - endpoint.repeated() == total
    ((identity, state, reason),) = asked("select comparison_id, state, reason from comparison_sets")
    assert (state, reason) == ("completed", None)
    rows = judgements(identity)
    assert len(rows) == len({row.judgement_id for row in rows}) == 2 * total
    of = {(row.metric, row.example_id, row.shown_first) for row in rows}
    assert len(of) == 2 * total and {row.status for row in rows} == {"scored"}
    assert {row.winner for row in rows if row.metric == "pairwise_preference"} == {"right"}
    assert not list((tmp_path / "spool").rglob("*.jsonl"))


def started(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    """Start the command in its own process, on this test's store."""
    own = with_support(environment)
    return subprocess.Popen(command(*arguments), cwd=folder, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
