"""Templates: placeholders are filled once, and what is filled in is never read as a template."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.specs.template import fill, fill_json, placeholders, texts


def test_a_placeholder_is_replaced_wherever_it_stands() -> None:
    assert fill("{a} and {b}, {a}", {"a": "one", "b": "two", "unused": "x"}) == "one and two, one"


def test_text_without_placeholders_stays() -> None:
    text = 'a JSON-like {"a": 1}, an empty {}, a { alone, a } alone, { a }, {1}, {a b}, {a.b}'
    assert fill(text, {}) == text
    assert placeholders(text) == set()


def test_doubled_braces_stand_for_braces() -> None:
    assert fill('{{"answer": "{a}"}}', {"a": "x"}) == '{"answer": "x"}'
    assert fill("{{a}} {{{a}}}", {"a": "x"}) == "{a} {x}"


@pytest.mark.parametrize("value", ["{b}", "{{b}}", "}}{{", "{", "{a}", "\\1", "\\g<0>"])
def test_braces_in_a_value_stay_as_they_are(value: str) -> None:
    assert fill("<{a}>", {"a": value, "b": "no"}) == f"<{value}>"


@given(st.text())
def test_any_text_goes_in_as_it_is(value: str) -> None:
    assert fill("{a}|{b}", {"a": value, "b": value}) == f"{value}|{value}"


@given(st.text())
def test_any_text_with_its_braces_doubled_comes_out_as_it_was(text: str) -> None:
    assert fill(text.replace("{", "{{").replace("}", "}}"), {}) == text


@pytest.mark.parametrize("value", [1, 1.5, True, None, ["é", 1], {"b": {"c": "ü"}}])
def test_anything_but_text_goes_in_as_json(value: object) -> None:
    assert fill("{a}", {"a": value}) == json.dumps(value, ensure_ascii=False)


def test_a_name_that_is_lacking_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="question"):
        fill("{question}", {"Question": "?"})


def test_a_name_in_doubled_braces_need_not_be_there() -> None:
    assert fill("{{question}}", {}) == "{question}"


def test_placeholders_are_the_names_that_are_asked_for() -> None:
    assert placeholders("{a} {b_2} {a} {{c}} {{{d}}} {_e} {größe}") == {"a", "b_2", "d", "_e"} | placeholders("{größe}")


@given(st.text(st.sampled_from("{}ab "), max_size=12))
def test_filling_needs_just_the_placeholders(template: str) -> None:
    names = placeholders(template)
    assert isinstance(fill(template, dict.fromkeys(names, "x")), str)
    for name in names:
        with pytest.raises(KeyError):
            fill(template, dict.fromkeys(names - {name}, "x"))


# JSON

VALUES = {"a": "one", "n": 7, "none": None, "yes": True, "list": [1, {"b": "x"}], "blank": "", "brace": "{n}"}


@pytest.mark.parametrize("name", VALUES)
def test_a_text_that_is_just_a_placeholder_becomes_the_field_as_it_is(name: str) -> None:
    assert fill_json(f"{{{name}}}", VALUES) == VALUES[name]
    assert fill_json([{"deep": [f"{{{name}}}"]}], VALUES) == [{"deep": [VALUES[name]]}]


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{a}!", "one!"),
        (" {n}", " 7"),
        ("{n}\n", "7\n"),
        ("{n}{n}", "77"),
        ("{list}.", '[1, {"b": "x"}].'),
        ("{{n}}", "{n}"),
        ("{{", "{"),
        ("}}", "}"),
        ("", ""),
        ("{brace}", "{n}"),
        ("<{brace}>", "<{n}>"),
        ({"{a}": "{a}"}, {"{a}": "one"}),
        ({"a": {"b": [["{n}"], "{a}-{n}"]}}, {"a": {"b": [[7], "one-7"]}}),
        ([], []),
        ({}, {}),
    ],
    ids=repr,
)
def test_every_text_inside_is_filled_and_no_key(template: object, wanted: object) -> None:
    assert fill_json(template, VALUES) == wanted


@pytest.mark.parametrize("template", [None, 0, 1.5, True, False])
def test_what_is_no_text_stays(template: object) -> None:
    assert fill_json({"x": [template]}, VALUES) == {"x": [template]}


def test_a_template_stays_as_it_was() -> None:
    template = {"q": ["{a}", {"n": "{n}"}]}
    fill_json(template, VALUES)
    assert template == {"q": ["{a}", {"n": "{n}"}]}


@pytest.mark.parametrize("template", ["{lacking}", "so {lacking}", {"x": ["{lacking}"]}])
def test_a_name_that_is_lacking_inside_is_a_key_error(template: object) -> None:
    with pytest.raises(KeyError, match="lacking"):
        fill_json(template, VALUES)


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{a}", ["{a}"]),
        ({"{key}": "{a}", "b": ["x", {"c": "{n}"}], "d": 1, "e": None}, ["{a}", "x", "{n}"]),
        (None, []),
        (7, []),
        ([], []),
    ],
    ids=repr,
)
def test_texts_are_those_that_would_be_filled(template: object, wanted: list[str]) -> None:
    assert list(texts(template)) == wanted


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
