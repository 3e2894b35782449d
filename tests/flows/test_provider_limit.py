"""A limit over all processes and runs: Prefect's global concurrency limit, taken once a chunk."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from endpoint import Endpoint, serving
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate

from evalflows import run
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import InputError

pytestmark = pytest.mark.usefixtures("prefect_api")

CAP, ITEMS = 20, 100


def spec(endpoint: Endpoint, name: str, limit: str) -> dict[str, object]:
    connection = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "provider_limit": limit}
    judge = {"use": "correctness", "connection": "mock", "model": "judge"}
    rows = [{"inputs": {"q": f"{name} {n}"}, "reference_outputs": {"a": "answer"}} for n in range(ITEMS)]
    return {
        "name": name,
        "dataset": {"rows": rows},
        "targets": [{"kind": "chat", "connection": "mock"}],
        "evaluators": [judge],
        "connections": {"mock": connection},
        "chunk_size": 25,
    }


def answer(request: dict[str, object]) -> object:
    from endpoint import completion

    wants_json = "response_format" in request
    return completion(json.dumps({"reasoning": "so", "correct": True}) if wants_json else "an answer")


def create(name: str, slots: int) -> None:
    with get_client(sync_client=True) as client:
        client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=name, limit=slots))


@pytest.mark.soak
def test_two_runs_in_two_processes_never_have_more_calls_under_way_than_the_limit(
    tmp_path: Path, prefect_environment: dict[str, str]
) -> None:
    create("cap-of-two", CAP)
    with serving(Endpoint(latency_s=0.05, answer=answer)) as endpoint:
        processes = []
        for name in ("one", "two"):
            path = tmp_path / f"{name}.yaml"
            path.write_text(yaml.safe_dump(spec(endpoint, name, "cap-of-two")), encoding="utf-8")
            environment = os.environ | prefect_environment | {"EVALFLOWS_STORE": str(tmp_path / name)}
            command = [sys.executable, "-m", "evalflows.cli.main", "run", str(path)]
            processes.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            )
        for process in processes:
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0, output.decode()
    assert endpoint.calls == 2 * 2 * ITEMS
    assert endpoint.peak <= CAP
    assert endpoint.peak > CAP // 2, "the limit is to be used, not only kept"


def test_a_limit_that_prefect_does_not_know_is_refused_before_anything_is_called() -> None:
    with serving(Endpoint(answer=answer)) as endpoint:
        wanted = r"provider_limit 'nowhere': Prefect has no such global concurrency limit; create it with `prefect gcl"
        with pytest.raises(InputError, match=wanted):
            run(ExperimentSpec.model_validate(spec(endpoint, "none", "nowhere")))
    assert endpoint.calls == 0


@pytest.mark.slow
def test_two_connections_that_share_a_limit_share_its_places() -> None:
    create("cap-of-shared", 6)
    with serving(Endpoint(latency_s=0.02, answer=answer)) as endpoint:
        shared = spec(endpoint, "shared", "cap-of-shared")
        connections = {"mock": shared["connections"]["mock"], "other": shared["connections"]["mock"]}  # type: ignore[index]
        judges = [
            {"use": "correctness", "name": name, "connection": name, "model": f"judge of {name}"}
            for name in connections
        ]
        run(ExperimentSpec.model_validate(shared | {"connections": connections, "evaluators": judges}))
    assert (endpoint.calls, endpoint.peak <= 6) == (3 * ITEMS + 2, True)
