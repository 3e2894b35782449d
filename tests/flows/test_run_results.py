"""What a run shows: artifacts, progress, and results in a program."""

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import rows
from planted_difference import ROWS, N, always, spec
from prefect.client.orchestration import get_client

from evalflows import aevaluate, evaluate, run
from evalflows.reports.results import results_of
from evalflows.store import Store

pytestmark = pytest.mark.usefixtures("prefect_api")

ROOT = Path(__file__).parent.parent.parent


def artifacts(key: str) -> list[Any]:
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    with get_client(sync_client=True) as client:
        found = client._client.post(
            "/artifacts/filter",
            json={
                "artifacts": ArtifactFilter(key=ArtifactFilterKey(any_=[key])).model_dump(mode="json"),
                "sort": "CREATED_DESC",
            },
        )
    return list(found.json())


def unescaped(page: str) -> str:
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", page)


@pytest.mark.slow
def test_a_run_publishes_artifacts_for_results_checks_and_progress() -> None:
    identities = run(spec(name="shown"))
    page = unescaped(artifacts("result")[0]["data"])
    assert "- seldom against often: worse in exact_match -0.50" in page
    assert re.search(
        r"\| seldom \| exact_match \| 0.25 \| \[0.14, 0.40\] \| -0.50 \[.*?\] \| [<0.]+\d+ \| [<0.]+\d+ \| worse "
        r"\| 0.0000 \| 0 \| 40 \|",
        page,
    )
    assert all(identity in page for identity in identities)
    assert "example_id: column values to be unique" in unescaped(artifacts("dataset-checks")[0]["data"])
    assert artifacts("progress")[0]["data"] == 100.0


@pytest.mark.slow
def test_watch_receives_the_progress() -> None:
    seen: list[Any] = []
    run(spec(), watch=seen.append)
    assert (seen[-1].stage, seen[-1].planned_answers) == ("computing differences", 0)
    last = [state for state in seen if state.planned_answers][-1]
    assert (last.answers, last.judgements, last.percent) == (2 * N, 2 * N, 100.0)


def test_aevaluate_runs_inside_an_event_loop() -> None:
    async def target(question: str) -> str:
        await asyncio.sleep(0)
        return question.upper()

    def best(outputs: list[Any]) -> float:
        return float(len(outputs))

    async def program() -> Any:
        other = asyncio.create_task(asyncio.sleep(0.01, "the loop goes on"))
        result = await aevaluate(target, ROWS, ["exact_match"], summary_evaluators=[best], num_repetitions=2)
        return result, await other

    result, said = asyncio.run(program())
    assert said == "the loop goes on"
    assert result.scores("exact_match") == [1.0] * (2 * N)
    assert rows("select mean from metric_summary where subject_kind = 'experiment'") == [(2.0 * N,)]


@pytest.mark.slow
def test_a_dataset_may_be_a_function_a_file_or_a_name(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(ROWS))
    first = evaluate(always, path, ["exact_match"])
    second = evaluate(always, "table", ["exact_match"])
    assert first.scores("exact_match") == second.scores("exact_match") == [1.0] * N


PUBLISHED = Path(os.environ.get("EVALFLOWS_PUBLISHED_DATA", ROOT.parent / "shared" / "data")) / "vicuna80"


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published answers are not there (EVALFLOWS_PUBLISHED_DATA)")
def test_published_answers_are_judged_by_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    from evalflows.specs import load_experiment

    monkeypatch.setenv("EVALFLOWS_PUBLISHED_DATA", str(PUBLISHED.parent))
    identities = run(load_experiment(ROOT / "examples" / "vicuna80.yaml"))
    found = {(one.target, one.metric): one for one in results_of(Store(), identities)}
    assert all(
        one.missing == 0 and one.scored == 80
        for one in found.values()
        if one.metric not in ("cost", "tokens", "latency")
    )
    assert found["vicuna-13b", "structured"].conclusion == "better"
    assert found["bard", "no_disclaimer"].conclusion == "not_enough_evidence"
