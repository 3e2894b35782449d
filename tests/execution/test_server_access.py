"""The secret of the servers that evalflows starts: where it is kept, and when it is used."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import prefect.context
import pytest
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_HOME,
    PREFECT_SERVER_API_AUTH_STRING,
    PREFECT_SERVER_CORS_ALLOWED_ORIGINS,
    get_current_settings,
    temporary_settings,
)

from evalflows.execution import server_access as access
from evalflows.specs.errors import InputError

URL = "http://127.0.0.1:4200/api"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Prefect home in which no API and no secret is configured."""
    monkeypatch.setattr(access, "_temporary", {})
    monkeypatch.setattr(prefect.context, "GLOBAL_SETTINGS_CONTEXT", prefect.context.GLOBAL_SETTINGS_CONTEXT)
    nothing = (PREFECT_API_URL, PREFECT_API_AUTH_STRING, PREFECT_SERVER_API_AUTH_STRING)
    with temporary_settings({PREFECT_HOME: tmp_path}, restore_defaults=nothing):
        yield tmp_path


def secrets_here() -> tuple[str | None, str | None]:
    """The secret of clients, and that of a temporary server."""
    settings = get_current_settings()
    client, server = settings.api.auth_string, settings.server.api.auth_string
    return client and client.get_secret_value(), server and server.get_secret_value()


def test_every_secret_is_another() -> None:
    first, second = access.new_secret(), access.new_secret()
    assert first != second
    assert len(first.removeprefix("evalflows:")) >= 43


def test_the_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = access.secret_file(tmp_path, 4200)
    path.parent.mkdir()
    path.write_text("an old one, that everybody may read")
    path.chmod(0o644)
    access.write_secret(path, "evalflows:x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "evalflows:x\n"


def test_a_folder_that_cannot_be_written_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "evalflows").touch()
    with pytest.raises(InputError, match="auth-4200: cannot be written: "):
        access.write_secret(access.secret_file(tmp_path, 4200), "evalflows:x")


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        (URL, "evalflows:x"),
        ("http://localhost:4200/api", "evalflows:x"),
        ("http://127.0.0.1:4201/api", None),
        ("http://prefect.internal:4200/api", None),
        ("http://127.0.0.1.evil.test:4200/api", None),
        ("https://api.prefect.cloud/api/accounts/x", None),
        ("http://127.0.0.1:x/api", None),
    ],
)
def test_a_secret_is_given_to_the_server_of_this_machine_alone(url: str, secret: str | None, home: Path) -> None:
    access.write_secret(access.secret_file(home, 4200), "evalflows:x")
    with temporary_settings({PREFECT_API_URL: url}), access.server_access():
        assert secrets_here() == (secret, None)


def test_a_secret_of_the_users_own_is_left_as_it_is(home: Path) -> None:
    access.write_secret(access.secret_file(home, 4200), "evalflows:x")
    with temporary_settings({PREFECT_API_URL: URL, PREFECT_API_AUTH_STRING: "own:y"}), access.server_access():
        assert secrets_here() == ("own:y", None)
    for setting in (PREFECT_API_AUTH_STRING, PREFECT_SERVER_API_AUTH_STRING):
        with temporary_settings({setting: "own:y"}), access.server_access():
            assert secrets_here() == ("own:y", "own:y")


def test_a_temporary_server_has_one_secret_as_long_as_the_process(home: Path) -> None:
    with access.server_access():
        client, server = secrets_here()
        assert client == server
        assert client is not None
        assert PREFECT_SERVER_CORS_ALLOWED_ORIGINS.value() == access.NO_ORIGIN
    with access.server_access():
        assert secrets_here() == (client, client)
    assert prefect.context.GLOBAL_SETTINGS_CONTEXT.settings.api.auth_string.get_secret_value() == client


PROGRAM = """
import json, threading, urllib.error, urllib.request

import evalflows.flows
from prefect import flow
from prefect.server.api.server import SubprocessASGIServer

def status(path):
    request = urllib.request.Request(SubprocessASGIServer().api_url + path, headers={"origin": "https://evil.test"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers["access-control-allow-origin"]
    except urllib.error.HTTPError as error:
        return error.code, error.headers["access-control-allow-origin"]

def answer(question):
    return {path: status(path) for path in ("/health", "/version", "/flow_runs/count")}

@flow
def mine():
    print("mine")

result = evalflows.evaluate(answer, [{"inputs": {"question": "q"}}])
print(json.loads(next(iter(result)).output.outputs))
mine()
thread = threading.Thread(target=mine)
thread.start()
thread.join()
"""


@pytest.mark.slow
def test_the_temporary_server_of_evaluate_wants_a_secret(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"PREFECT_HOME": str(tmp_path / "home"), "EVALFLOWS_STORE": str(tmp_path / "kept")}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    answers, *own = done.stdout.splitlines()
    assert answers == "{'/flow_runs/count': [401, None], '/health': [200, None], '/version': [401, None]}"
    assert own == ["mine", "mine"], "a program's own flows no longer run"
