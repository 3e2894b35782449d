"""`evalflows receive`: where it listens, what it says, and what it refuses in one line."""

import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from asking import JSON
from click.testing import CliRunner, Result
from receiving import receiving

from evalflows.cli.main import cli
from evalflows.serving import listen
from evalflows.specs.errors import InputError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["receive", *arguments])


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_that_others_reach_is_refused_without_a_token(host: str) -> None:
    done = run("--host", host, "--port", "0")
    assert (done.exit_code, done.stdout) == (2, "")
    wanted = f"evalflows: --host: got {host!r}, which other machines can reach, wanted a --token, or 127.0.0.1\n"
    assert done.stderr == wanted


def test_an_empty_token_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALFLOWS_RECEIVER_TOKEN", "")
    assert run("--host", "0.0.0.0", "--port", "0").exit_code == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_loopback_needs_no_token(host: str) -> None:
    with listen(host, 0, has_token=False) as listener:
        assert listener.getsockname()[1] > 0


@pytest.mark.parametrize("host", ["", "no host", "256.1.1.1.1", "a" * 300])
def test_a_host_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(InputError, match=r"--host: got '.*', wanted an address of this machine"):
        listen(host, 0, has_token=True)


@pytest.mark.slow
def test_it_says_where_to_send(tmp_path: Path) -> None:
    from urllib.request import Request, urlopen

    with receiving(tmp_path / "store", "--token", "secret") as running:
        headers = {"content-type": JSON, "authorization": "Bearer secret"}
        with urlopen(Request(f"{running.url}/v1/traces", data=b"{}", headers=headers)) as answer:
            assert (answer.status, answer.read(), answer.headers["server"]) == (200, b"{}", None)
        lines = running.stop().splitlines()
    assert lines == [
        "in the application's environment:",
        f"  export OTEL_EXPORTER_OTLP_ENDPOINT={running.url} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
        '  export OTEL_EXPORTER_OTLP_HEADERS="Authorization=Bearer%20TOKEN"',
        "stopped; everything accepted is in the store",
    ]
    assert running.process.returncode == 0


@pytest.mark.slow
def test_a_request_that_does_not_arrive_whole_does_not_delay_its_end(tmp_path: Path) -> None:
    with receiving(tmp_path / "store") as running:
        address = urlsplit(running.url)
        with socket.create_connection((address.hostname, address.port)) as slow:
            slow.sendall(f"POST /v1/traces HTTP/1.1\r\nhost: {address.netloc}\r\n".encode())
            slow.sendall(f"content-type: {JSON}\r\ncontent-length: 100\r\n\r\n{{".encode())
            time.sleep(0.5)
            began = time.monotonic()
            said = running.stop()
            assert time.monotonic() - began < 5
            assert slow.recv(1000).startswith(b"HTTP/1.1 503 ")
    assert said.splitlines()[-1] == "stopped; everything accepted is in the store"
    assert "Traceback" not in said
