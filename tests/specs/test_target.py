"""What a target spec may say, and that no key can be written into it."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from evalflows.specs.errors import first_problem
from evalflows.specs.target import TargetSpec

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


# HTTP


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://", "http:///path", "/answer", " http://x"])
def test_another_address_is_refused(url: str) -> None:
    assert refusal("http", url=url) == f"target: url: got {url!r}, wanted http://… or https://…"


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


# Recorded


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


@pytest.mark.parametrize(
    "taken",
    ["model", "messages", "temperature", "max_tokens", "seed", "tools", "schema", "response_format", "repeat"],
)
def test_what_has_a_field_of_its_own_is_not_extra(taken: str) -> None:
    said = refusal("chat", extra={"top_p": 1, taken: None})
    assert said == f"target: extra: got {taken!r}, wanted only parameters without a field of their own"


@pytest.mark.parametrize("url", ["http://localhost:port/", "http://[::1"])
def test_an_address_that_nobody_can_have_is_refused(url: str) -> None:
    assert "url" in refusal("http", url=url)


@pytest.mark.parametrize("source", ["column", "experiment"])
def test_columns_are_those_of_a_file(source: str) -> None:
    said = refusal("recorded", path=None, columns={"outputs": "a"}, **{source: "x"})
    assert said == "target: columns: wanted only with path"
