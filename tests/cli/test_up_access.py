"""The server of `evalflows up` requires a secret, and its worker's runs name only code and files of the folder."""

import asyncio
import json
import os
import re
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from homes import prepared
from running_up import EVALFLOWS, Up, prefect_yaml, running_up, until
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from evalflows.store import connect as open_store

pytestmark = pytest.mark.slow

SPEC = {
    "name": "small",
    "description": "{{ $HOME }}, {{ spec }} and {{x}} are not templates",
    "dataset": {"path": "rows.jsonl"},
    "targets": [{"kind": "python", "function": "mine:upper"}],
    "evaluators": ["exact_match"],
}
MODULE = "from subprocess import getoutput\n\ndef upper(question):\n    return question.upper()\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("prefect"))


@pytest.fixture(scope="module")
def up(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A server and a worker in a user's folder with a deployment."""
    place = tmp_path_factory.mktemp("folder")
    (place / "rows.jsonl").write_text('{"inputs": {"question": "q"}, "outputs": {"answer": "Q"}}\n')
    (place / "mine.py").write_text(MODULE)
    (place / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    (place / "prefect.yaml").write_text(prefect_yaml("mine", changes="[repetitions=2]"))
    own = {"EVALFLOWS_HOME": str(home), "PREFECT_API_URL": "", "EVALFLOWS_STORE": str(place / "kept")}
    with running_up(place, "--port", "0", environment=own) as one:
        yield one
        assert one.interrupt() == 0
        until(lambda: not one.left(), 30)
    assert not [*home.glob("*/auth")], "the secret outlives the server"


def answered(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str]]:
    """Status and headers of an answer to a request without the secret."""
    request = urllib.request.Request(url, data=b"{}" if method != "GET" else None, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers)


def test_every_route_of_the_api_wants_the_secret(up: Up) -> None:
    with urllib.request.urlopen(f"{up.ui}/openapi.json", timeout=30) as answer:  # tells the routes, and nothing else
        paths = json.load(answer)["paths"]
    routes = {(path.removeprefix("/api"), method.upper()) for path, methods in paths.items() for method in methods}
    assert len(routes) > 150
    open_routes = {
        (path, method)
        for path, method in routes | {("/version", "GET"), ("/openapi.json", "GET"), ("/docs", "GET")}
        if answered(up.url + re.sub(r"\{\w+(:\w+)?\}", "x", path), method)[0] != 401
    }
    assert open_routes <= {("/health", "GET"), ("/ready", "GET")}


def test_another_host_name_carries_nothing(up: Up) -> None:
    for host in ("evil.test", "127.0.0.1.evil.test", "localhost:1"):
        assert answered(f"{up.url}/deployments/filter", "POST", Host=host)[0] == 401
        assert answered(f"{up.url}/csrf-token?client=x", Host=host)[0] == 401


def test_only_the_ui_may_read_answers_from_another_origin(up: Up) -> None:
    port = up.ui.rpartition(":")[2]
    for origin in (up.ui, f"http://localhost:{port}"):
        assert answered(f"{up.url}/health", Origin=origin)[1]["access-control-allow-origin"] == origin
    for origin in ("https://evil.test", "null", f"http://127.0.0.1:{port}0", "http://127.0.0.1"):
        assert "access-control-allow-origin" not in answered(f"{up.url}/health", Origin=origin)[1]


SOCKETS = (
    *("/events/in", "/events/out", "/logs/out", "/task_runs/subscriptions/scheduled"),
    "/work_pools/evalflows/workers/connect",
)


def test_every_socket_wants_the_secret(up: Up) -> None:
    async def ask(path: str, protocols: list[Any]) -> str:
        async with connect(up.url.replace("http", "ws") + path, subprotocols=protocols or None) as socket:
            await socket.send(json.dumps({"type": "auth", "token": "evalflows:guessed"}))
            return str(await socket.recv())

    for path in SOCKETS:
        for protocols in ([], ["prefect"]):
            with pytest.raises((ConnectionClosed, InvalidHandshake)):
                asyncio.run(ask(path, protocols))


def test_the_secret_is_seen_by_the_user_alone(home: Path, up: Up) -> None:
    (file,) = home.glob("*/auth")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert up.secret is not None
    assert len(up.secret) > 40
    secret = up.secret.partition(":")[2].encode()
    for pid in [up.process.pid, *up.left()]:
        assert secret not in Path(f"/proc/{pid}/cmdline").read_bytes()
    others = [path for folder in (home, up.output.parent) for path in folder.rglob("*") if path.is_file()]
    assert [path for path in others if secret in path.read_bytes()] == [file]


def test_our_commands_find_the_secret_by_the_url(home: Path, up: Up) -> None:
    there = os.environ | {"PREFECT_API_URL": up.url, "EVALFLOWS_HOME": str(home)}
    command = [EVALFLOWS, "run", "spec.yaml"]
    done = subprocess.run(command, cwd=up.output.parent, env=there, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert up.ask("/flow_runs/count") > 0


def test_without_the_secret_they_say_what_they_want(tmp_path: Path, up: Up) -> None:
    there = os.environ | {"PREFECT_API_URL": up.url, "EVALFLOWS_HOME": str(tmp_path)}
    done = subprocess.run([EVALFLOWS, "deploy"], cwd=up.output.parent, env=there, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "access denied, wanted PREFECT_API_AUTH_STRING" in done.stderr


def ended(up: Up, **changes: Any) -> tuple[str, str]:
    """The last state, with its message, of a run of the deployment, with a changed spec if there are changes."""
    (deployment,) = up.ask("/deployments/filter")
    spec = SPEC | {"evaluators": [{"use": "exact_match"}]} | changes
    given = {"parameters": {"spec": spec, "resume": None}} if changes else {}
    run = up.ask(f"/deployments/{deployment['id']}/create_flow_run", **given)

    def state() -> dict[str, Any] | None:
        (found,) = up.ask("/flow_runs/filter", flow_runs={"id": {"any_": [run["id"]]}})
        return found["state"] if found["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED") else None

    last = until(state, 120)
    return last["type"], last["message"] or ""


def test_a_run_has_the_spec_of_its_deployment_as_it_is(up: Up) -> None:
    assert ended(up)[0] == "COMPLETED"
    query = "select description, repetitions, state from experiments where repetitions = 2"
    with open_store(up.output.parent / "kept") as catalog:
        assert catalog.execute(query).fetchall() == [(SPEC["description"], 2, "completed")]


COMMAND = {"rows": [{"inputs": {"cmd": "touch pwned"}}]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"dataset": COMMAND, "targets": [{"kind": "python", "function": "subprocess:getoutput"}]},
            "'subprocess:getoutput': the module 'subprocess' is not in",
        ),
        pytest.param({"dataset": {"path": "/etc/passwd.csv"}}, "/etc/passwd.csv: not below", marks=pytest.mark.soak),
    ],
)
def test_a_run_that_names_other_code_or_files_fails(changes: dict[str, Any], message: str, up: Up) -> None:
    state, why = ended(up, **changes)
    assert state == "FAILED"
    assert message in why, why
    assert not (up.output.parent / "pwned").exists()
