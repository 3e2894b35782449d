"""Templates: placeholders are filled once, and what is filled in is never read as a template."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalflows.specs.files import fill, fill_json, placeholders, texts


def test_doubled_braces_stand_for_braces() -> None:
    assert fill('{{"answer": "{a}"}}', {"a": "x"}) == '{"answer": "x"}'
    assert fill("{{a}} {{{a}}}", {"a": "x"}) == "{a} {x}"


@given(st.text())
def test_any_text_goes_in_as_it_is(value: str) -> None:
    assert fill("{a}|{b}", {"a": value, "b": value}) == f"{value}|{value}"


@given(st.text())
def test_any_text_with_its_braces_doubled_comes_out_as_it_was(text: str) -> None:
    assert fill(text.replace("{", "{{").replace("}", "}}"), {}) == text


@pytest.mark.parametrize("value", [1, 1.5, True, None, ["é", 1], {"b": {"c": "ü"}}])
def test_anything_but_text_goes_in_as_json(value: object) -> None:
    assert fill("{a}", {"a": value}) == json.dumps(value, ensure_ascii=False)


@given(st.text(st.sampled_from("{}ab "), max_size=12))
def test_filling_needs_just_the_placeholders(template: str) -> None:
    names = placeholders(template)
    assert isinstance(fill(template, dict.fromkeys(names, "x")), str)
    for name in names:
        with pytest.raises(KeyError):
            fill(template, dict.fromkeys(names - {name}, "x"))


# JSON

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
