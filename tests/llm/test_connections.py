"""Connections by name: precedence, mistakes in the shared file, and that no key is shown."""

import re
from pathlib import Path
from typing import Any

import pytest

from evalflows.llm import connections
from evalflows.llm.connections import address, key_of, key_source, known, resolve, shared, without_key
from evalflows.specs import EndpointConnection, InputError, LocalConnection

KEY = "sk-proj-AbC123dEf456"
URL = "http://127.0.0.1:1/v1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and an environment without a provider."""
    monkeypatch.chdir(tmp_path)
    for name in ("EVALFLOWS_CONNECTIONS", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def endpoint(**fields: Any) -> EndpointConnection:
    return EndpointConnection.model_validate({"base_url": URL} | fields)


def write(text: str, name: str = connections.FILE) -> None:
    Path(name).write_text(text)


def refused(text: str) -> str:
    write(text)
    with pytest.raises(InputError) as caught:
        shared()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Whose wins


def test_a_specs_own_comes_first_then_the_shared_file_then_ours() -> None:
    write(f"ours: {{base_url: {URL}, model: shared}}\nopenai: {{base_url: {URL}, model: shared}}\n")
    own = {"ours": endpoint(model="own")}
    assert [resolve(name, own).model for name in ("ours", "openai")] == ["own", "shared"]
    assert resolve("ours", {}) == endpoint(model="shared")
    assert resolve("local", own) == LocalConnection()
    assert list(known(own)) == ["ours", "openai", "auto", "local"]
    write(f"theirs: {{base_url: {URL}}}")
    with pytest.raises(InputError, match=r"^connection 'x': wanted one of ours, theirs, auto, local, openai$"):
        resolve("x", {"ours": endpoint()})


def test_auto_is_of_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    write(f"openai: {{base_url: {URL}}}")
    assert resolve("auto", {}) == LocalConnection()
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    found = resolve("auto", {})
    assert isinstance(found, EndpointConnection) and found.base_url == "https://api.openai.com/v1"
    assert (found.model, found.api_key_env) == (connections.AUTO_MODEL, "OPENAI_API_KEY")


# The shared file


def test_another_file_may_be_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(f"here: {{base_url: {URL}}}")
    write(f"there: {{base_url: {URL}}}", "other.yaml")
    monkeypatch.setenv("PLACE", str(folder))
    monkeypatch.setenv("EVALFLOWS_CONNECTIONS", "${PLACE}/other.yaml")
    assert list(shared()) == ["there"]
    monkeypatch.setenv("EVALFLOWS_CONNECTIONS", "nowhere.yaml")
    with pytest.raises(InputError, match=r"^EVALFLOWS_CONNECTIONS: no file at 'nowhere.yaml'$"):
        shared()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "connections.yaml: got list, wanted a mapping of names to connections"),
        ("a: {b: [", "connections.yaml:1: not YAML: "),
        ("1: {kind: local}", "connections.yaml: got name 1, wanted text"),
        ("x: {model: m}", "connections.yaml: x: got no base_url, wanted one, or a kind: anthropic, google, local"),
        (
            "x: {kind: [local]}",
            "connections.yaml: x: kind: got ['local'], wanted one of endpoint, anthropic, google, local",
        ),
        (
            f"x: {{base_url: {URL}, max_in_flight: 0}}",
            "connections.yaml: x: max_in_flight: Input should be greater than or equal to 1, got 0",
        ),
        (
            f"x: {{base_url: {URL}, api_key_env: A, api_key_block: b}}",
            "connections.yaml: x: got api_key_env and api_key_block, wanted one of them",
        ),
        ("x: {base_url: host/v1}", "x: base_url: got 'host/v1', wanted http://… or https://…"),
        ("x: {base_url: 'http://['}", "x: base_url: got 'http://[', wanted http://… or https://…"),
        (f"x: {{base_url: {URL}, headers: {{api-key: abc}}}}", "x: headers: api-key holds a value, wanted ${NAME} of"),
    ],
)
def test_a_broken_file_is_one_line(text: str, message: str) -> None:
    assert message in refused(text)


@pytest.mark.parametrize(
    "text",
    [
        f"x: {{base_url: {URL}, api_key: {KEY}}}",
        f"x: {{api_key: {KEY}}}",
        f"x: {{kind: openai, api_key: {KEY}}}",
        f"x: [{KEY}]",
        f"x:\n  api_key: {KEY}\n base_url: {URL}",
        f"x: {{api_key: {KEY}, : [",
    ],
)
def test_a_key_that_stands_in_the_file_by_mistake_is_not_told(text: str) -> None:
    assert KEY not in refused(text)


# Keys


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "connection 'ours': the environment variable OUR_KEY is not set"),
        (" \n", "connection 'ours': the environment variable OUR_KEY is not set"),
        (f"{KEY}\n{KEY}", "connection 'ours': the environment variable OUR_KEY is not a key, wanted plain characters"),
        (f"{KEY}é", "connection 'ours': the environment variable OUR_KEY is not a key, wanted plain characters"),
    ],
)
def test_what_can_be_no_key_is_told_without_it(
    value: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("OUR_KEY", value)
    with pytest.raises(InputError) as caught:
        key_of("ours", endpoint(api_key_env="OUR_KEY"))
    assert str(caught.value).startswith(message) and KEY not in str(caught.value)


def test_a_key_in_the_place_of_its_variables_name_is_not_told() -> None:
    slip = endpoint(api_key_env=KEY)
    with pytest.raises(InputError, match="the environment variable … is not set"):
        key_of("ours", slip)
    assert key_source(slip) == "…: not set"
    assert key_source(endpoint(api_key_block=KEY)) == "Secret block '…'"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"no such key: {KEY}, {KEY}!", "no such key: …, …!"),
        (f"a message that was cut: {KEY[:9]}", "a message that was cut: …"),
        ("nothing of it", "nothing of it"),
    ],
)
def test_a_message_is_told_without_key(text: str, wanted: str) -> None:
    assert without_key(text, KEY) == wanted


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("http://me:hunter22@host/v1", "a user or a password"),
        ("http://hunter22@host/v1", "a user or a password"),
        ("http://host/v1?region=eu&api_key=hunter22", "the query field 'api_key'"),
        ("http://host/v1?sig=hunter22", "the query field 'sig'"),
    ],
)
def test_a_secret_in_an_address_is_refused_and_not_shown(url: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    message = f"base_url: got {part} in it, wanted the key in api_key_env or api_key_block"
    with pytest.raises(ValueError, match=re.escape(message)):
        endpoint(base_url=url)
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(InputError) as caught:
        resolve("openai", {})
    assert str(caught.value) == f"OPENAI_BASE_URL: {message}"


def test_where_a_key_comes_from_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("our_key", KEY)
    assert key_source(endpoint(api_key_env="our_key")) == "our_key: set"
    assert key_source(endpoint(api_key_env="OTHER_KEY")) == "OTHER_KEY: not set"
    assert key_source(endpoint(api_key_block="openai-prod-2")) == "Secret block 'openai-prod-2'"
    assert key_source(endpoint()) == key_source(LocalConnection()) == "none needed"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("http://host:8000/v1?api-version=1#d", "http://host:8000/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("https://host/@team/v1", "https://host/@team/v1"),
    ],
)
def test_an_address_is_shown_without_its_query(url: str, shown: str) -> None:
    assert address(endpoint(base_url=url)) == shown
