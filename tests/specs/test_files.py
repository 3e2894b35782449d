"""Templates that are filled once, JSON schemas, and environment variables in paths and headers."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.specs.errors import InputError
from evalflows.specs.files import located, texts
from evalflows.specs.json_schemas import schema_errors
from evalflows.specs.placeholders import fill, fill_json, filled, placeholders


def test_doubled_braces_stand_for_braces() -> None:
    assert fill('{{"answer": "{a}"}}', {"a": "x"}) == '{"answer": "x"}'
    assert fill("{{a}} {{{a}}}", {"a": "x"}) == "{a} {x}"


@given(st.text())
def test_any_text_goes_in_as_it_is(value: str) -> None:
    assert fill("{a}|{b}", {"a": value, "b": value}) == f"{value}|{value}"


def test_null_adds_no_word() -> None:
    assert fill("{a}|{b}", {"a": None, "b": "c"}) == "|c"


@given(st.text(st.sampled_from("{}ab "), max_size=12))
def test_filling_needs_just_the_placeholders(template: str) -> None:
    names = placeholders(template)
    assert isinstance(fill(template, dict.fromkeys(names, "x")), str)
    for name in names:
        with pytest.raises(KeyError):
            fill(template, dict.fromkeys(names - {name}, "x"))


VALUES = {"a": "one", "n": 7, "none": None, "yes": True, "list": [1, {"b": "x"}], "blank": "", "brace": "{n}"}


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{a}!", "one!"),
        ("{list}.", '[1, {"b": "x"}].'),
        ("{{n}}", "{n}"),
        ("{{", "{"),
        ("<{brace}>", "<{n}>"),
        ({"{a}": "{a}"}, {"{a}": "one"}),
        ({"a": {"b": [["{n}"], "{a}-{n}"]}}, {"a": {"b": [[7], "one-7"]}}),
    ],
    ids=repr,
)
def test_every_text_inside_is_filled_and_no_key(template: object, wanted: object) -> None:
    assert fill_json(template, VALUES) == wanted


json_templates = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from("{}ab "), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from("{}ab"), max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(json_templates)
def test_filling_json_needs_just_the_placeholders_of_its_texts(template: object) -> None:
    names = {name for text in texts(template) for name in placeholders(text)}
    fill_json(template, dict.fromkeys(names, 7))
    for name in names:
        with pytest.raises(KeyError):
            fill_json(template, dict.fromkeys(names - {name}, 7))


def errors(value: Any, schema: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in schema_errors(value, json.dumps(schema))]


def test_all_violations_are_returned_with_their_paths() -> None:
    schema = {"properties": {"b": {"type": "string"}, "a": {"minimum": 2}}, "required": ["c"]}
    assert errors({"a": 1, "b": 2, "c": 3}, schema) == [
        "$.b: 2 is not of type 'string'",
        "$.a: 1 is less than the minimum of 2",
    ]
    assert errors({}, schema) == ["$: 'c' is a required property"]
    assert errors({"c": 3}, schema) == []


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PLACE": "/data", "KEY_1": "sk-secret", "BLANK": "", "TRICKY": r"${PLACE} \1 \g<0>"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("UNSET", raising=False)


@pytest.mark.usefixtures("variables")
def test_each_variable_is_replaced_by_its_value_and_what_only_looks_like_one_stays() -> None:
    for text, wanted in (
        ("${PLACE}/rows.csv", "/data/rows.csv"),
        ("${PLACE}${KEY_1}${PLACE}", "/datask-secret/data"),
        ("[${BLANK}]", "[]"),
        ("${TRICKY}", r"${PLACE} \1 \g<0>"),
    ):
        assert filled(text, "where") == wanted
    for text in ("$PLACE", "${}", "${ PLACE }", "${UN-SET}", "${PLACE", "{PLACE}", "%PLACE%", ""):
        assert filled(text, "where") == text
    with pytest.raises(InputError) as caught:
        filled("${KEY_1} ${UNSET}", "target 'x': headers: Authorization")
    assert str(caught.value) == "target 'x': headers: Authorization: the environment variable UNSET is not set"


@pytest.mark.usefixtures("variables")
def test_a_path_fills_variables_and_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("PLACE", "~/data")
    assert located("~/rows.csv") == Path("/home/me/rows.csv")
    assert located("${PLACE}/rows.csv") == Path("/home/me/data/rows.csv")
    assert located("a/~/rows.csv") == Path("a/~/rows.csv")
    with pytest.raises(InputError) as caught:
        located("${UNSET}/rows.csv")
    assert str(caught.value) == "${UNSET}/rows.csv: the environment variable UNSET is not set"
