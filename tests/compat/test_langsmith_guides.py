"""Programs as for LangSmith's guides, with other import lines."""

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import rows
from endpoint import Endpoint, Reply, Request, completion, serving

from evalflows.compat.langsmith import Client

PROGRAMS = Path(__file__).parent / "programs" / "langsmith"
ROOT = Path(__file__).parent.parent.parent
Run = Callable[[str, Callable[[Request], Reply]], list[str]]


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], without_prefect: None
) -> Run:
    """Run a program as `python NAME.py` does, in this process; return the lines that it printed."""

    def run(name: str, answer: Callable[[Request], Reply]) -> list[str]:
        monkeypatch.chdir(tmp_path)
        with asked(answer, monkeypatch):
            capsys.readouterr()
            runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


@contextmanager
def asked(answer: Callable[[Request], Reply], monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with serving(Endpoint(answer=answer)) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
        yield endpoint


def shown(request: Request) -> str:
    return " ".join(str(message.get("content")) for message in request["messages"])


MEANS = """
select experiment, metric, round(mean, 3), scored, missing from metric_summary
where metric not in ('latency', 'cost', 'tokens', 'answer_length') order by all
"""


def means() -> dict[str, tuple[Any, ...]]:
    """The mean, the count and the missing of each metric of the only experiment."""
    found = rows(MEANS)
    assert len({row[0] for row in found}) == 1
    return {row[1]: row[2:] for row in found}


@pytest.mark.slow
def test_a_rag_application(run: Run) -> None:
    def answer(request: Request) -> Reply:
        text = shown(request)
        if request["model"] == "judge-1":
            assert request["response_format"]["type"] == "json_schema"
            is_met = "painted" not in text if "FACTS have to do" in text else "Nobody knows" not in text
            return completion(json.dumps({"explanation": "So it is.", "verdict": is_met}))
        return completion("Nobody knows." if "painted" in text else "Every four hours, on mercury.")

    (name,) = run("rag", answer)
    assert name.startswith("rag-lighthouse-")
    assert means() == {
        "correctness": (0.667, 3, 0),
        "groundedness": (0.667, 3, 0),
        "relevance": (0.667, 3, 0),
        "retrieval_relevance": (0.667, 3, 0),
    }
    calls = "select coalesce(evaluator, ''), model, count(*) from calls group by all order by all"
    assert rows(calls) == [
        ("", "keeper-1", 3),
        ("correctness", "judge-1", 3),
        ("groundedness", "judge-1", 3),
        ("relevance", "judge-1", 3),
        ("retrieval_relevance", "judge-1", 3),
    ]
    found = next(Client().list_runs(project_name=name)).child_runs[0]
    assert [(step.name, step.run_type) for step in (found, *found.child_runs)] == [
        ("rag_bot", "chain"),
        ("retrieve", "retriever"),
        ("ChatOpenAI", "llm"),
    ]


@pytest.mark.slow
def test_evals_with_pytest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_environment: dict[str, str]
) -> None:
    def answer(request: Request) -> Reply:
        text = shown(request)
        if request["model"] == "judge-1":
            return completion("1" if "SELECT" in text else "0")
        return completion("SELECT * FROM ships WHERE home = 'Bergen';" if "Bergen" in text else "SELECT * FROM ships;")

    (tmp_path / "test_queries.py").write_text((PROGRAMS / "queries.py").read_text(encoding="utf-8"))
    with asked(answer, monkeypatch):
        own = {"EVALFLOWS_STORE": str(tmp_path / "store"), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "pytest", "-q", "test_queries.py"]
        env = os.environ | prefect_environment | own
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 2 passed" in done.stdout
    assert re.search(r"^Harbour refusals: 0 of 1 passed: evalflows show 'Harbour refusals-\w{8}'$", done.stdout, re.M)
    assert re.search(r"^test_queries: 2 of 3 passed: evalflows show test_queries-\w{8}$", done.stdout, re.M)
    monkeypatch.setenv("EVALFLOWS_STORE", str(tmp_path / "store"))
    found = {(row[0], row[1]): row[2:4] for row in rows(MEANS)}
    assert found["Harbour refusals", "refused"] == (0.0, 1)
    assert found["test_queries", "pass"] == (0.667, 3)
    assert found["test_queries", "valid_sql"] == (1.0, 1)
    assert found["test_queries", "expectation"] == (0.5, 2)
    judged = "select evaluator, model from calls where evaluator is not null"
    assert rows(judged) == [("valid_sql", "judge-1")]
    examples = {str(e.inputs["user_query"]): e.outputs for e in Client().list_examples(dataset_name="test_queries")}
    assert examples["Ships from Bergen"] == {"expected_sql": "SELECT * FROM ships WHERE home = 'Bergen';"}


@pytest.mark.slow
def test_attachments(run: Run) -> None:
    def answer(request: Request) -> Reply:
        content = request["messages"][-1]["content"]
        assert content[1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
        if request["model"] == "judge-1":
            return completion("yes" if content[0]["text"] == "One red pixel" else "no")
        assert content[0]["text"].endswith("fog signal sounded")
        return completion("One red pixel")

    run("attachments", answer)
    assert means() == {"valid_image_description": (1.0, 1, 0), "whole_horn": (1.0, 1, 0)}
    (example,) = Client().list_examples(dataset_name="Watch with attachments")
    assert {name: file["mime_type"] for name, file in (example.attachments or {}).items()} == {
        "flag": "image/png",
        "horn": "audio/wav",
        "log": "text/plain",
        "copy": "text/plain",
    }
