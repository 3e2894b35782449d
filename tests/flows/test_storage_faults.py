"""A spool in the way, a removed store and a server that is not there are no fault of an item: the run stops."""

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from endpoint import Endpoint, Reply, Request, echo, serving
from prefect.settings import PREFECT_API_URL, temporary_settings

from evalflows import run
from evalflows.specs import ExperimentSpec
from evalflows.specs.errors import InputError, StorageError
from evalflows.store import Store

pytestmark = pytest.mark.usefixtures("prefect_api")

ITEMS = 40


def spec_of(endpoint: Endpoint, **changes: Any) -> ExperimentSpec:
    fields: dict[str, Any] = {
        "name": "chat",
        "run_key": "one",
        "dataset": {"rows": [{"inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(ITEMS)]},
        "targets": [{"kind": "chat", "connection": "mock", "user": "{question}"}],
        "evaluators": [{"use": "judges:says_correct", "connection": "mock"}, "contains"],
        "connections": {"mock": {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "max_in_flight": 4}},
        "chunk_size": 10,
    }
    return ExperimentSpec.model_validate(fields | changes)


def test_a_spool_that_cannot_be_written_is_found_before_the_first_call(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file in the way")
    with serving(Endpoint()) as endpoint, pytest.raises(StorageError, match=r"/spool.*: (Not a directory|File exists)"):
        run(spec_of(endpoint))
    assert endpoint.calls == 0


def test_a_store_that_is_removed_meanwhile_ends_the_run(store_root: Path) -> None:
    def answer(request: Request) -> Reply:
        if endpoint.calls == ITEMS // 2:
            shutil.rmtree(store_root)
        return echo(request)

    endpoint = Endpoint(answer=answer)
    with serving(endpoint), pytest.raises(StorageError, match=str(store_root)):
        run(spec_of(endpoint))
    assert Store().query("select count(*) from source.experiments where state = 'completed'") == [(0,)]


def test_a_server_that_is_not_there_is_found_before_anything_is_paid() -> None:
    with socket.socket() as held, serving(Endpoint()) as endpoint:
        held.bind(("127.0.0.1", 0))  # nothing listens there
        url = f"http://127.0.0.1:{held.getsockname()[1]}/api"
        with temporary_settings({PREFECT_API_URL: url}), pytest.raises(InputError) as caught:
            run(spec_of(endpoint))
        assert endpoint.calls == 0
    assert str(caught.value) == f"PREFECT_API_URL={url}: Connection refused, wanted a running Prefect server"
