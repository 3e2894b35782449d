"""Programs as for LangSmith, with other import lines: a dataset, three experiments, a gate in pytest."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from catalog_rows import rows
from endpoint import Endpoint, Reply, Request, completion, serving
from user_programs import environment_of, has_written, run_program

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs" / "langsmith_tutorial"
WORDY = "That is a long story, and one that I should like to tell at length: " * 4


def answer(request: Request) -> Reply:
    """The larger model says too much unless it is told how much it may; the judge trusts whoever is brief."""
    system, user = (message["content"] for message in request["messages"])
    if request["model"] == "judge-1":
        return completion("INCORRECT" if WORDY[:20] in user else "CORRECT")
    return completion(WORDY if request["model"] == "large-1" and "ten words" not in system else "The Moon.")


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_the_programs_of_the_chatbot_guide(tmp_path: Path, prefect_environment: dict[str, str]) -> None:
    shutil.copytree(PROGRAMS, tmp_path, dirs_exist_ok=True)  # away from the conftest of our own tests
    shutil.copy(tmp_path / "gate.py", tmp_path / "gate_later.py")  # when the application has become wordy
    with serving(Endpoint(answer=answer)) as endpoint:
        run_program(tmp_path, endpoint, "make_dataset.py")
        assert rows("select name, n_examples, description, versions from datasets") == [
            ("Tide questions", 5, "What a harbour master is asked", 2)
        ]

        printed = run_program(tmp_path, endpoint, "experiments.py")
        names = [line.split("\t")[0] for line in printed.splitlines() if "\t5" in line]
        assert [name.rpartition("-")[0] for name in names] == ["small", "large", "strict-large"]
        assert all(re.fullmatch(r"[0-9a-z]{8}", name.rpartition("-")[2]) for name in names)
        assert Counter(request["model"] for request in endpoint.requests) == {
            "small-1": 5,
            "large-1": 10,
            "judge-1": 10,  # two systems give one answer
        }
        check_the_store(names)

        endpoint.answer = lambda request: answer(request) if endpoint.calls <= 30 else completion(WORDY)
        own = os.environ | prefect_environment | environment_of(endpoint) | {"PYTHONPATH": str(ROOT)}
        gate = [sys.executable, "-m", "pytest", "-q", "gate.py", "gate_later.py"]
        gated = subprocess.run(gate, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=120)
        assert gated.returncode == 1 and "1 failed, 1 passed" in gated.stdout, gated.stdout + gated.stderr
        assert "FAILED gate_later.py::test_length_score - AssertionError: Aggregate" in gated.stdout
        assert endpoint.calls == 35, "the judge has seen all of these answers"
    assert rows("select count(*), count(distinct name) from experiments")[0][0] == 5
    assert not has_written(tmp_path, b"sk-of-a-test")


def check_the_store(names: list[str]) -> None:
    found = rows("select name, dataset_name, calls, tokens_in, cost_usd from experiments order by started_at")
    names = [name.rpartition("-")[0] for name in names]  # what tells runs of one name apart is not stored
    calls_of = zip(names, (10, 10, 5), strict=True)  # the judge has seen the answers of the last
    assert found == [(name, "Tide questions", calls, 10 * calls, None) for name, calls in calls_of]
    means = rows("select experiment, metric, mean, scored, missing from metric_summary order by all")
    small, large, strict = names
    assert {row[:2]: row[2:] for row in means if row[1] in ("concision", "correctness")} == {
        (small, "concision"): (1.0, 5, 0),
        (small, "correctness"): (1.0, 5, 0),
        (large, "concision"): (0.0, 5, 0),
        (large, "correctness"): (0.0, 5, 0),
        (strict, "concision"): (1.0, 5, 0),
        (strict, "correctness"): (1.0, 5, 0),
    }
    calls = "select coalesce(evaluator, ''), connection, model, status, reusable, count(*) from calls group by all"
    assert sorted(rows(calls)) == [
        ("", "wrapped", "large-1", "ok", False, 10),
        ("", "wrapped", "small-1", "ok", False, 5),
        ("correctness", "wrapped", "judge-1", "ok", True, 10),
    ]
    steps = [json.loads(row[0]) for row in rows("select steps::varchar from outputs")]
    assert {(len(of_run), of_run[0]["name"], of_run[0]["kind"]) for of_run in steps} == {(1, "ChatOpenAI", "llm")}
