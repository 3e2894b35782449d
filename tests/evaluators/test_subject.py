"""What evaluators are shown: scores that look up by name, and Langfuse's view of a value."""

import pytest

from evalflows.evaluators.views import Evaluation, Evaluations, with_attributes

FIRST, SECOND = Evaluation(name="length", value=3.0), Evaluation(name="tone", value="polite", comment="kind")


def test_scores_look_up_by_name_and_index() -> None:
    scores = Evaluations([FIRST, SECOND])
    assert scores["tone"] is SECOND
    assert scores.get("length") is FIRST
    scores = Evaluations([FIRST, SECOND])
    assert scores[0] is FIRST
    assert scores[-1] is SECOND
    assert scores[1:] == [SECOND]
    with pytest.raises(KeyError, match=r"'accuracy': wanted one of length, tone"):
        Evaluations([FIRST, SECOND])["accuracy"]
    with pytest.raises(KeyError, match="there are no scores"):
        Evaluations()["accuracy"]
    assert (SECOND.key, SECOND.score, SECOND.comment, SECOND.status) == ("tone", "polite", "kind", "scored")


def test_mappings_have_attributes_at_any_depth_by_either_way() -> None:
    output = with_attributes({"calls": [{"function": {"name": "search"}}], "none": None})
    assert output.calls[0].function.name == output["calls"][0]["function"].name == "search"
    assert output["calls"][0]["function"]["name"] == output.get("calls")[0].function["name"] == "search"
    assert output.none is None and output == {"calls": [{"function": {"name": "search"}}], "none": None}
    with pytest.raises(AttributeError, match=r"^'colour': wanted one of calls, none$"):
        output.colour  # noqa: B018
