"""Keys from the environment and from Secret blocks; what a spec takes from the shared file."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from endpoint import Endpoint, error, serving

from evalflows.engine.preflight import check_spec
from evalflows.engine.prepare import prepare
from evalflows.engine.secret_blocks import key_for
from evalflows.specs import EndpointConnection, ExperimentSpec, InputError, LocalConnection
from evalflows.store import Store
from evalflows.store.schemas import TABLES

KEY = "sk-proj-AbC123dEf456"


def block(name: str) -> EndpointConnection:
    return EndpointConnection(base_url="http://127.0.0.1:1/v1", api_key_block=name)


def save(name: str, value: Any) -> None:
    from prefect.blocks.system import Secret

    Secret(value=value).save(name, overwrite=True)


def refused(connection: EndpointConnection) -> str:
    with pytest.raises(InputError) as caught:
        key_for("x", connection)
    assert KEY not in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


def test_a_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", KEY)
    named = EndpointConnection(base_url="http://127.0.0.1:1/v1", api_key_env="OUR_KEY")
    assert key_for("x", named) == KEY
    assert key_for("x", named.model_copy(update={"api_key_env": None})) is None
    assert key_for("x", LocalConnection()) is None
    monkeypatch.delenv("OUR_KEY")
    assert refused(named) == "connection 'x': the environment variable OUR_KEY is not set"


@pytest.mark.usefixtures("prefect_api")
def test_a_block_holds_a_key_or_is_refused_without_showing_it() -> None:
    for name, shown in (("nowhere", "nowhere"), ("no/where", "…"), (KEY, "…")):
        assert refused(block(name)) == f"connection 'x': no Prefect Secret block called '{shown}'"
    for value, key in ((f" {KEY}\n", KEY), ("0123", "0123"), (f'"{KEY}"', KEY)):
        save("our-key", value)
        assert key_for("x", block("our-key")) == key
    for value, message in (
        ({"key": KEY}, "holds dict, wanted a key as text"),
        ("", "is empty, wanted plain characters in one line"),
        (f"{KEY}\n{KEY}", "is not a key, wanted plain characters in one line"),
    ):
        save("odd-key", value)
        assert refused(block("odd-key")) == f"connection 'x': the Prefect Secret block 'odd-key' {message}"


@pytest.mark.usefixtures("prefect_api")
def test_a_block_is_read_inside_flows_of_either_kind_and_where_a_loop_runs() -> None:
    from prefect import flow, task

    save("our-key", KEY)

    @task
    def in_task() -> bool:
        return key_for("x", block("our-key")) == KEY

    @flow
    def plain() -> bool:
        return in_task() and key_for("x", block("our-key")) == KEY

    @flow
    async def with_a_loop() -> bool:
        return key_for("x", block("our-key")) == KEY

    async def notebook() -> bool:
        return key_for("x", block("our-key")) == KEY

    assert plain() and asyncio.run(with_a_loop()) and asyncio.run(notebook())  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALFLOWS_CONNECTIONS", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path


def spec(**changes: Any) -> ExperimentSpec:
    chat = {"kind": "chat", "connection": "shared-target", "model": "m", "user": "{question}"}
    fields: dict[str, Any] = {
        "name": "x",
        "dataset": {"rows": [{"id": "1", "inputs": {"question": "q"}, "outputs": {"answer": "a"}}]},
        "targets": [chat],
    }
    return ExperimentSpec.model_validate(fields | changes)


def share(folder: Path, *names: str, base_url: str = "http://127.0.0.1:1/v1") -> None:
    (folder / "connections.yaml").write_text("".join(f"{name}: {{base_url: '{base_url}/{name}'}}\n" for name in names))


def test_what_is_named_of_the_shared_file_is_written_into_the_spec(folder: Path) -> None:
    share(folder, "shared-target", "openai", "judge", "spare", "summary", "unused", "own")
    judge = {"use": "judges:says_correct", "connection": "judge", "fallback": {"use": "judges:says_correct"}}
    second = {"use": "judges:says_correct", "name": "b", "connection": "own", "fallback": None}
    third = second | {"name": "c", "fallback": {"use": "judges:says_correct", "connection": "spare"}}
    rules = {"use": "exact_match", "connection": "unused"}
    own = {"own": {"kind": "endpoint", "base_url": "http://own/v1"}}
    settled = prepare(spec(evaluators=[judge, second, third, rules], connections=own)).spec
    assert sorted(settled.connections) == ["judge", "openai", "own", "shared-target", "spare"]
    assert settled.connections["own"] == EndpointConnection(base_url="http://own/v1")
    (folder / "connections.yaml").unlink()
    assert prepare(settled).spec == settled


@pytest.mark.usefixtures("prefect_api")
def test_a_wrong_block_is_found_before_anything_is_paid(folder: Path) -> None:
    own = {"shared-target": {"kind": "endpoint", "base_url": "http://127.0.0.1:1/v1", "api_key_block": "nowhere"}}
    with pytest.raises(
        InputError, match=r"^target 'target': connection 'shared-target': no Prefect Secret block called"
    ):
        check_spec(prepare(spec(connections=own)), [], Store())


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_a_run_uses_the_shared_connection_with_its_blocks_key_and_a_resume_needs_no_file(folder: Path) -> None:
    from evalflows import run

    save("run-key", KEY)
    with serving(Endpoint(answer=lambda request: error(401, f"no such key: {KEY}"))) as endpoint:
        text = f"shared-target: {{base_url: '{endpoint.base_url}', api_key_block: run-key}}\n"
        (folder / "connections.yaml").write_text(text)
        with pytest.raises(Exception, match="none of 1 answered: HTTP 401: no such key: …"):
            run(spec())
        (folder / "connections.yaml").unlink()
        row = Store().query("select spec, run_group from source.experiments")[0]
        endpoint.answer = Endpoint().answer
        run(ExperimentSpec.model_validate_json(row[0]), row[1])
    assert endpoint.keys == [f"bearer {KEY}".lower()] * 2
    kept = [Store().query(f"select to_json(t)::text from source.{table} t") for table in TABLES]
    assert "no such key: …" in str(kept) and KEY not in str(kept)
