"""What a target spec may say, and that no key can be written into it."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from evalflows.specs.errors import first_problem
from evalflows.specs.target import ChatTarget, HttpTarget, PythonTarget, RecordedTarget, TargetSpec

ANY: TypeAdapter[TargetSpec] = TypeAdapter(TargetSpec)
MINIMAL: dict[str, dict[str, Any]] = {
    "chat": {"kind": "chat"},
    "python": {"kind": "python", "function": "app:answer"},
    "http": {"kind": "http", "url": "http://localhost:8000/answer"},
    "recorded": {"kind": "recorded", "path": "answers.jsonl"},
}


def read(kind: str, **settings: Any) -> Any:
    return ANY.validate_python(MINIMAL[kind] | settings)


def refusal(kind: str, **settings: Any) -> str:
    """The one line that a target is refused with."""
    with pytest.raises(ValidationError) as caught:
        read(kind, **settings)
    text = first_problem(caught.value, "target")
    assert "\n" not in text
    return text.replace(f"target: {kind}", "target", 1)


# Any


@pytest.mark.parametrize(
    ("kind", "model"),
    [("chat", ChatTarget), ("python", PythonTarget), ("http", HttpTarget), ("recorded", RecordedTarget)],
)
def test_the_kind_says_which_target_it_is(kind: str, model: type) -> None:
    assert type(read(kind)) is model
    assert read(kind).name == "target"


@pytest.mark.parametrize("kind", MINIMAL)
def test_a_field_of_another_kind_is_refused(kind: str) -> None:
    other = {"chat": "url", "python": "url", "http": "model", "recorded": "model"}[kind]
    assert refusal(kind, **{other: "x"}) == f"target.{other}: no such field"


@pytest.mark.parametrize("kind", MINIMAL)
def test_a_target_has_a_name(kind: str) -> None:
    assert refusal(kind, name="").startswith("target.name: String should have at least 1 character")


@pytest.mark.parametrize("kind", MINIMAL)
def test_a_target_does_not_change(kind: str) -> None:
    with pytest.raises(ValidationError):
        read(kind).name = "other"


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("chat", {"messages": "turns", "tools": [{"type": "function"}], "response_schema": {"type": "object"}}),
        ("chat", {"system": "", "user": "{q}", "temperature": 0, "seed": 0, "extra": {"top_p": None}}),
        ("python", {"name": "ours"}),
        ("http", {"body": {"q": ["{q}", None, 1.5, {"x": True}]}, "answer": "a.-1", "headers": {"X-A": "b"}}),
        ("http", {"body": "{q}", "timeout_s": 0.5, "attempts": 1, "max_in_flight": 1}),
        ("recorded", {"columns": {"outputs": ["a"], "id": "n"}}),
    ],
    ids=str,
)
def test_a_target_comes_back_from_json_as_it_was(kind: str, settings: dict[str, Any]) -> None:
    spec = read(kind, **settings)
    assert ANY.validate_json(ANY.dump_json(spec)) == spec


# Chat


@pytest.mark.parametrize(
    "taken",
    ["model", "messages", "temperature", "max_tokens", "seed", "tools", "schema", "response_format", "repeat"],
)
def test_what_has_a_field_of_its_own_is_not_extra(taken: str) -> None:
    said = refusal("chat", extra={"top_p": 1, taken: None})
    assert said == f"target: extra: got {taken!r}, wanted only parameters without a field of their own"


@pytest.mark.parametrize(
    ("setting", "value"),
    [("temperature", -0.1), ("max_tokens", 0), ("seed", "x"), ("tools", {"type": "function"}), ("messages", ["q"])],
)
def test_a_setting_of_a_chat_out_of_its_bounds_is_refused(setting: str, value: object) -> None:
    assert refusal("chat", **{setting: value}).startswith(f"target.{setting}")


@pytest.mark.parametrize("setting", [{"max_tokens": 1}, {"temperature": 0}, {"seed": -1}, {"user": ""}])
def test_the_least_of_a_setting_will_do(setting: dict[str, Any]) -> None:
    assert read("chat", **setting).model_dump(include={*setting}) == setting


# HTTP


@pytest.mark.parametrize(
    "url", ["http://localhost", "https://app.example:8443/v1/answer?x=1", "http://127.0.0.1:1/", "http://[::1]:80/"]
)
def test_an_address_is_http(url: str) -> None:
    assert read("http", url=url).url == url


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://", "http:///path", "/answer", " http://x"])
def test_another_address_is_refused(url: str) -> None:
    assert refusal("http", url=url) == f"target: url: got {url!r}, wanted http://… or https://…"


@pytest.mark.parametrize("url", ["http://localhost:port/", "http://[::1"])
def test_an_address_that_nobody_can_have_is_refused(url: str) -> None:
    assert "url" in refusal("http", url=url)


@pytest.mark.parametrize(
    "url", ["https://me:hunter2@app.example/", "https://hunter2@app.example/", "https://a/?x=1&token=hunter2"]
)
def test_an_address_with_a_password_is_refused_without_telling_it(url: str) -> None:
    assert "hunter2" not in refusal("http", url=url)


SECRET = "sk-123456"


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "authorization",
        "Proxy-Authorization",
        "X-Api-Key",
        "api_key",
        "X-Auth-Token",
        "Cookie",
        "X-Client-Secret",
        "APIKEY",
        "token",
    ],
)
@pytest.mark.parametrize("value", [SECRET, f"Bearer {SECRET}", f"$KEY {SECRET}", f"${{}}{SECRET}"])
def test_a_key_that_is_written_down_is_refused_and_not_told(name: str, value: str) -> None:
    said = refusal("http", headers={"X-Version": "1", name: value})
    assert said == f"target: headers: {name} holds a value, wanted ${{NAME}} of an environment variable"
    assert SECRET not in said


@pytest.mark.parametrize("value", ["${KEY}", "Bearer ${KEY}", "Basic ${A}:${B}"])
def test_a_key_may_be_named_by_its_variable(value: str) -> None:
    assert read("http", headers={"Authorization": value}).headers == {"Authorization": value}


def test_other_headers_may_hold_anything() -> None:
    headers = {"X-Version": "2", "Accept": "application/json", "X-Tenant": "${TENANT}", "X-Empty": ""}
    assert read("http", headers=headers).headers == headers


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("timeout_s", 0),
        ("timeout_s", -1),
        ("timeout_s", float("nan")),
        ("attempts", 0),
        ("max_in_flight", 0),
        ("answer", ["choices", 0]),
        ("headers", ["X-A: b"]),
        ("headers", {"X-A": 1}),
    ],
)
def test_a_setting_of_http_out_of_its_bounds_is_refused(setting: str, value: object) -> None:
    assert refusal("http", **{setting: value}).startswith(f"target.{setting}")


def test_what_goes_without_saying_of_http() -> None:
    spec = read("http")
    assert (spec.timeout_s, spec.attempts, spec.max_in_flight) == (60.0, 4, 16)
    assert (spec.body, spec.answer, spec.headers) == (None, None, {})


@pytest.mark.parametrize("body", [{}, [], "", 0, False])
def test_an_empty_body_is_one(body: object) -> None:
    assert read("http", body=body).body == body


def test_an_address_may_hold_an_at_sign_in_its_query() -> None:
    url = "https://app.example?user=me@home.example"
    assert read("http", url=url).url == url


# Recorded


@pytest.mark.parametrize("source", ["path", "column", "experiment"])
def test_a_recording_has_one_source(source: str) -> None:
    spec = RecordedTarget.model_validate({"kind": "recorded", source: "x"})
    assert [name for name in ("path", "column", "experiment") if getattr(spec, name)] == [source]


@pytest.mark.parametrize(
    ("settings", "got"),
    [
        ({}, "no source"),
        ({"path": "x", "column": "y"}, "path and column"),
        ({"column": "x", "experiment": "y"}, "column and experiment"),
        ({"path": "x", "column": "y", "experiment": "z"}, "path and column and experiment"),
    ],
    ids=str,
)
def test_none_or_several_sources_are_refused(settings: dict[str, str], got: str) -> None:
    said = refusal("recorded", **({"path": None} | settings))
    assert said == f"target: got {got}, wanted one of path, column and experiment"


@pytest.mark.parametrize("source", ["column", "experiment"])
def test_columns_are_those_of_a_file(source: str) -> None:
    said = refusal("recorded", path=None, columns={"outputs": "a"}, **{source: "x"})
    assert said == "target: columns: wanted only with path"
