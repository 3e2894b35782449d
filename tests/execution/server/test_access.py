"""How a process gets at Prefect's API: the configured one with its secret, or the local server."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import prefect.context
import pytest
from homes import prepared
from local_servers import living
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, get_current_settings, temporary_settings

from evalflows import prefect_server
from evalflows.prefect_server import Home, new_secret, write_secret

URL = "http://127.0.0.1:4200/api"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A folder in which a server lives at Prefect's port; no API and no secret is configured."""
    monkeypatch.setenv("EVALFLOWS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(prefect_server._here, "settings", {})
    for name in ("NO_PROXY", "no_proxy"):  # restored after the test
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setattr(prefect.context, "GLOBAL_SETTINGS_CONTEXT", prefect.context.GLOBAL_SETTINGS_CONTEXT)
    here = Home.here()
    nothing = temporary_settings(restore_defaults=(PREFECT_API_URL, PREFECT_API_AUTH_STRING))
    with living(here, port=4200, secret="evalflows:x"), nothing:
        yield here


def access_here() -> tuple[str | None, str | None]:
    """The address and the secret that clients use."""
    api = get_current_settings().api
    return api.url, api.auth_string and api.auth_string.get_secret_value()


def test_every_secret_is_another_and_its_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    first, second = new_secret(), new_secret()
    assert first != second
    assert len(first.removeprefix("evalflows:")) >= 43
    path = tmp_path / "auth"
    path.write_text("an old one, that everybody may read")
    path.chmod(0o644)
    write_secret(path, "evalflows:x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "evalflows:x\n"


def test_the_secret_is_given_to_the_server_of_this_machine_alone(home: Home) -> None:
    for url, secret in (
        (URL, "evalflows:x"),
        ("http://localhost:4200/api", "evalflows:x"),
        ("http://127.0.0.1:4201/api", None),
        ("http://prefect.internal:4200/api", None),
        ("http://127.0.0.1.evil.test:4200/api", None),
        ("https://api.prefect.cloud/api/accounts/x", None),
        ("http://127.0.0.1:x/api", None),
    ):
        with temporary_settings({PREFECT_API_URL: url}), prefect_server.server_access():
            assert access_here() == (url, secret)
    with temporary_settings({PREFECT_API_URL: URL, PREFECT_API_AUTH_STRING: "own:y"}), prefect_server.server_access():
        assert access_here() == (URL, "own:y"), "a secret of the user's own is left as it is"


def test_a_dead_servers_secret_is_given_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALFLOWS_HOME", str(tmp_path))
    with living(Home.here(), port=4200, secret="evalflows:x"):
        pass
    assert Home.here().secret_at(URL) is None


def test_without_an_api_the_local_server_is_used(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_server, "local_server", home.find)
    with prefect_server.server_access():
        assert access_here() == (URL, "evalflows:x")
    assert access_here() == (None, None)
    everywhere = prefect.context.GLOBAL_SETTINGS_CONTEXT.settings.api  # Prefect's threads read it
    assert (everywhere.url, everywhere.auth_string.get_secret_value()) == (URL, "evalflows:x")
    assert prefect.context.GLOBAL_SETTINGS_CONTEXT.settings.ui_url == URL.removesuffix("/api")  # as Prefect derives it


def test_the_local_server_is_reached_past_a_proxy(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_server, "local_server", home.find)
    monkeypatch.setenv("NO_PROXY", "intranet.test")
    monkeypatch.delenv("no_proxy", raising=False)
    for _ in range(2):
        with prefect_server.server_access():
            assert (os.environ["NO_PROXY"], os.environ["no_proxy"]) == ("intranet.test,127.0.0.1", "127.0.0.1")


def test_a_server_that_was_started_again_is_found_at_its_new_port(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefect_server, "local_server", lambda: Home.here().find())
    with prefect_server.server_access():
        first = access_here()
    monkeypatch.setenv("EVALFLOWS_HOME", str(tmp_path / "again"))
    new = "http://127.0.0.1:4321/api"
    before = temporary_settings({PREFECT_API_URL: first[0]})
    with living(Home.here(), port=4321, secret="evalflows:z"), before, prefect_server.server_access():
        assert access_here() == (new, "evalflows:z")


PROGRAM = """
import json, urllib.error, urllib.request

import evalflows
from evalflows.prefect_server import Home

def status(path):
    request = urllib.request.Request(Home.here().find().api + path, headers={"origin": "https://evil.test"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers["access-control-allow-origin"]
    except urllib.error.HTTPError as error:
        return error.code, error.headers["access-control-allow-origin"]

def answer(question):
    return {path: status(path) for path in ("/health", "/version", "/flow_runs/count")}

result = evalflows.evaluate(answer, [{"inputs": {"question": "q"}}])
print(json.loads(next(iter(result)).output.outputs))

from prefect import flow

@flow
def mine():
    print("mine")

mine()
"""


@pytest.mark.slow
def test_the_server_of_evaluate_wants_a_secret(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"EVALFLOWS_HOME": str(prepared(tmp_path / "home")), "EVALFLOWS_STORE": str(tmp_path / "kept")}
    environment |= {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}  # which nobody serves
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    answers, *own = done.stdout.splitlines()
    assert answers == "{'/flow_runs/count': [401, None], '/health': [200, None], '/version': [401, None]}"
    assert own == ["mine"], "a program's own flows no longer run"
