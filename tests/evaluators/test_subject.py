"""What evaluators are shown: scores that look up by name, and Langfuse's view of a value."""

from typing import Any

import pytest

from evalflows.evaluators.subject import Evaluation, Evaluations, ExampleView, unwrapped, with_attributes

FIRST, SECOND = Evaluation(name="length", value=3.0), Evaluation(name="tone", value="polite", comment="kind")


def test_scores_look_up_by_name() -> None:
    scores = Evaluations([FIRST, SECOND])
    assert scores["tone"] is SECOND
    assert scores.get("length") is FIRST


def test_scores_look_up_by_index_and_from_the_end() -> None:
    scores = Evaluations([FIRST, SECOND])
    assert scores[0] is FIRST
    assert scores[-1] is SECOND
    assert scores[1:] == [SECOND]


def test_a_name_that_was_not_scored_is_told_with_those_that_were() -> None:
    with pytest.raises(KeyError, match=r"'accuracy': wanted one of length, tone"):
        Evaluations([FIRST, SECOND])["accuracy"]
    with pytest.raises(KeyError, match="there are no scores"):
        Evaluations()["accuracy"]


def test_get_gives_none_for_a_name_that_was_not_scored() -> None:
    assert Evaluations([FIRST]).get("tone") is None


def test_an_index_past_the_end_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        Evaluations([FIRST])[1]


def test_a_score_has_langsmiths_names_too() -> None:
    assert (SECOND.key, SECOND.score, SECOND.comment, SECOND.status) == ("tone", "polite", "kind", "scored")


def test_an_examples_outputs_are_its_reference() -> None:
    example = ExampleView(id="e", inputs={}, reference_outputs={"output": 1})
    assert example.outputs is example.reference_outputs


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"output": "text"}, "text"),
        ({"output": None}, None),
        ({"output": {"output": 1}}, {"output": 1}),
        ({"input": "text"}, {"input": "text"}),
        ({"output": "text", "tokens": 3}, {"output": "text", "tokens": 3}),
        ({}, {}),
        (None, None),
    ],
)
def test_a_value_that_was_wrapped_is_unwrapped_once_and_nothing_else(value: Any, wanted: object) -> None:
    assert unwrapped(value, "output") == wanted


def test_mappings_have_attributes_at_any_depth_by_either_way() -> None:
    output = with_attributes({"calls": [{"function": {"name": "search"}}], "none": None})
    assert output.calls[0].function.name == output["calls"][0]["function"].name == "search"
    assert output["calls"][0]["function"]["name"] == output.get("calls")[0].function["name"] == "search"
    assert output.none is None and output == {"calls": [{"function": {"name": "search"}}], "none": None}
    with pytest.raises(AttributeError, match=r"^'colour': wanted one of calls, none$"):
        output.colour  # noqa: B018
