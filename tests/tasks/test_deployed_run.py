"""A deployment's run sends the worker's keys only to the addresses for which the worker's owner has defined them."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from endpoint import Endpoint, Reply, completion, serving
from made_traces import traces, write

from evalflows.engine.secret_blocks import key_for
from evalflows.flows.evaluate_traces import evaluate_traces
from evalflows.flows.run_experiment import run_experiment
from evalflows.llm.connect import completer
from evalflows.llm.connections import resolve
from evalflows.llm.ledger import Ledger
from evalflows.llm.loop import run
from evalflows.specs import permitted
from evalflows.specs.connections import EndpointConnection
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.store import Store
from evalflows.tasks import take_up
from evalflows.tasks.take_up import restrict_deployed_run

SECRET = "sk-secret-of-the-worker"
ROWS = {"rows": [{"inputs": {"question": "q"}}]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worker's folder, in which this process executes the run of a deployment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", SECRET)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "EVALFLOWS_CONNECTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(permitted, "_limits", None)
    context = SimpleNamespace(flow_run=SimpleNamespace(deployment_id="some"))
    monkeypatch.setattr(take_up, "FlowRunContext", SimpleNamespace(get=lambda: context))
    return tmp_path


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A model's endpoint, and an application behind HTTP."""
    with serving(
        Endpoint(answer=lambda asked: completion("A.") if "messages" in asked else Reply({"text": "A."}))
    ) as one:
        yield one


def spec(target: dict[str, Any], **fields: Any) -> ExperimentSpec:
    given = {"name": "x", "dataset": ROWS, "targets": [target], "evaluators": ["json_valid"], "chunk_retries": 0}
    return ExperimentSpec.model_validate(given | fields)


def http(endpoint: Endpoint) -> dict[str, Any]:
    return {"kind": "http", "url": endpoint.base_url, "headers": {"Authorization": "Bearer ${SECRET}"}}


def keyed(endpoint: Endpoint, **key: str) -> dict[str, Any]:
    return {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", **(key or {"api_key_env": "SECRET"})}


CHAT = {"kind": "chat", "connection": "mine", "user": "{question}"}


@pytest.mark.usefixtures("prefect_api")
def test_a_header_cannot_carry_a_variable_to_an_address_of_the_spec(folder: Path, endpoint: Endpoint) -> None:
    with pytest.raises(InputError) as refused:
        run_experiment(spec(http(endpoint)))
    assert endpoint.calls == 0
    assert str(refused.value) == (
        f"target 'target': headers: Authorization: the environment variable SECRET may not be sent to "
        f"{endpoint.base_url!r}; in a deployment's run wanted a shared connection with this key and base_url, or "
        f'SECRET = ["{endpoint.base_url}"] under allowed_environment of [tool.evalflows] in '
        f"{folder / 'pyproject.toml'}"
    )


@pytest.mark.usefixtures("prefect_api")
def test_a_connection_cannot_carry_a_key_to_an_address_of_the_spec(
    folder: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    (folder / "connections.yaml").write_text("mine: {base_url: 'https://own.example.com/v1', api_key_env: SECRET}\n")
    for key, shown in (
        ({"api_key_env": "SECRET"}, "the environment variable SECRET"),
        ({"api_key_env": "OPENAI_API_KEY"}, "the environment variable OPENAI_API_KEY"),
        ({"api_key_block": "prod"}, "the Secret block 'prod'"),
    ):
        with pytest.raises(InputError, match=f"connection 'mine': {shown} may not be sent to"):
            run_experiment(spec(CHAT, connections={"mine": keyed(endpoint, **key)}))
    assert endpoint.calls == 0


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_a_shared_connection_gets_its_key_and_so_does_an_address_that_the_owner_allows(
    folder: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"mine: {{base_url: '{endpoint.base_url}', model: m, api_key_env: SECRET}}\n"
    (folder / "connections.yaml").write_text(text)
    run_experiment(spec(CHAT))
    run_experiment(spec(http(endpoint)))
    run_experiment(spec(CHAT | {"connection": "own"}, connections={"own": keyed(endpoint)}, use_cache=False))
    assert endpoint.keys == [f"bearer {SECRET}"] * 3
    (folder / "connections.yaml").unlink()
    text = f'[tool.evalflows.allowed_environment]\nSECRET = ["{endpoint.base_url}"]\n'
    (folder / "pyproject.toml").write_text(text)
    monkeypatch.setattr(permitted, "_limits", None)
    run_experiment(spec(http(endpoint)))
    assert endpoint.keys == [f"bearer {SECRET}"] * 4


def test_openai_gets_its_key_at_its_own_address_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    restrict_deployed_run(spec(CHAT))
    assert key_for("openai", resolve("openai", {})) == key_for("auto", resolve("auto", {})) == SECRET
    elsewhere = EndpointConnection(base_url="https://evil.example.com/v1", api_key_env="OPENAI_API_KEY")
    with pytest.raises(InputError, match="OPENAI_API_KEY may not be sent to 'https://evil"):
        key_for("openai", resolve("openai", {"openai": elsewhere}))


@pytest.mark.parametrize("shared", [True, False])
def test_variables_that_the_sdk_sends_reach_only_addresses_of_the_owner(
    shared: bool, folder: Path, endpoint: Endpoint, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ORG_ID", SECRET), ("PROJECT_ID", SECRET), ("CUSTOM_HEADERS", f"X-Own: {SECRET}")):
        monkeypatch.setenv(f"OPENAI_{name}", value)
    if shared:
        (folder / "connections.yaml").write_text(f"mine: {{base_url: '{endpoint.base_url}'}}\n")
    restrict_deployed_run(spec(CHAT))
    connection = EndpointConnection(base_url=endpoint.base_url, model="m")
    run(completer(f"sdk-{shared}", connection, Ledger(store, "x"))("q"))
    assert endpoint.calls == 1
    sent = {name for name, value in endpoint.headers[0].items() if value == SECRET}
    assert sent == ({"openai-organization", "openai-project", "x-own"} if shared else set())


def test_only_a_deployments_run_is_restricted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for deployment, may in ((None, True), ("some", False)):
        run_of = SimpleNamespace(flow_run=SimpleNamespace(deployment_id=deployment))
        monkeypatch.setattr(take_up, "FlowRunContext", SimpleNamespace(get=lambda run_of=run_of: run_of))
        restrict_deployed_run(spec(CHAT))
        secret = permitted.variable("SECRET")
        assert permitted.may_receive("https://x.example.com", secret) is may


@pytest.mark.usefixtures("prefect_api", "folder")
def test_a_trace_evaluation_names_no_code_and_reads_no_file_from_elsewhere(store: Store) -> None:
    write(store, traces(1))
    for changes, message in (
        ({"mapper": "os:getcwd"}, "'os:getcwd'"),
        ({"evaluators": ["subprocess:getoutput"]}, "'subprocess:getoutput'"),
        (
            {"task_runner": {"kind": "dask", "address": "tcp://h:1"}},
            "task_runner: address: got 'tcp://h:1', in a deploy",
        ),
        ({"filter": "trace_id in (select content from read_text('/etc/hostname'))"}, "filter: "),
    ):
        given = {"name": "watch", "evaluators": ["json_valid"], "settle_s": 0} | changes
        with pytest.raises(InputError, match=message):
            evaluate_traces(TraceEvaluationSpec.model_validate(given))
    assert store.query("select count(*) from staging.scores") == [(0,)]
