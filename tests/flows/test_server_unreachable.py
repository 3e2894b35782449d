"""A Prefect server that is not there is found at once, before anything is paid."""

import socket
from collections.abc import Iterator

import pytest
from endpoint import Endpoint, serving
from prefect.settings import PREFECT_API_URL, temporary_settings

from evalflows import run
from evalflows.specs import ExperimentSpec, InputError


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def spec_of(endpoint: Endpoint) -> ExperimentSpec:
    fields = {
        "name": "chat",
        "dataset": {"rows": [{"inputs": {"question": "q"}}]},
        "targets": [{"kind": "chat", "connection": "mock", "user": "{question}"}],
        "evaluators": ["json_valid"],
        "connections": {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m"}},
    }
    return ExperimentSpec.model_validate(fields)


def test_a_refused_connection_is_one_line(port: int) -> None:
    url = f"http://127.0.0.1:{port}/api"
    with serving(Endpoint()) as endpoint, temporary_settings({PREFECT_API_URL: url}):
        with pytest.raises(InputError) as caught:
            run(spec_of(endpoint))
        assert endpoint.calls == 0
    assert str(caught.value) == f"PREFECT_API_URL={url}: Connection refused, wanted a running Prefect server"
