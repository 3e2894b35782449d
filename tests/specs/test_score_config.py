"""Score configs: what they let through, what they refuse, and which are none."""

from typing import Any

import pytest
from pydantic import ValidationError

from evalflows.specs.errors import first_problem
from evalflows.specs.score_config import ScoreConfigSpec

STARS = {"name": "stars", "data_type": "NUMERIC", "min_value": 1, "max_value": 5}
YES_NO = {"data_type": "BOOLEAN"}
TONE = {"data_type": "CATEGORICAL", "categories": ["warm", {"label": "cold", "value": 0}]}


def config(content: dict[str, Any]) -> ScoreConfigSpec:
    return ScoreConfigSpec.model_validate(content)


def refusal(content: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        config(content)
    return first_problem(caught.value, "it")


def objection(content: dict[str, Any], value: float | None = None, label: str | None = None, of: str = "stars") -> str:
    """What is said against a score; nothing where it is allowed."""
    try:
        config(content).check(of, value, label)
    except ValueError as error:
        assert "\n" not in str(error)
        return str(error)
    return ""


# Scores


@pytest.mark.parametrize("value", [1, 5, 3.5])
def test_a_number_within_the_bounds_is_allowed(value: float) -> None:
    assert objection(STARS, value) == ""


@pytest.mark.parametrize("value", [0.999, 5.001, -1e9])
def test_a_number_out_of_the_bounds_is_not(value: float) -> None:
    assert objection(STARS, value) == f"stars: got {value:g}, wanted 1 to 5"


def test_a_bound_may_be_on_one_side_alone() -> None:
    assert objection({"min_value": 0}, 1e300) == objection({"max_value": 0}, -1e300) == objection({}, 1e300) == ""
    assert objection({"min_value": 0}, -1) == "stars: got -1, wanted 0 to inf"
    assert objection({"max_value": 0}, 1) == "stars: got 1, wanted -inf to 0"


def test_a_label_where_a_number_is_wanted_is_not_allowed() -> None:
    assert objection(STARS, label="five") == "stars: got the label 'five', wanted 1 to 5"
    assert objection({}, label="five") == "stars: got the label 'five', wanted a number"


@pytest.mark.parametrize(("value", "got"), [(0, ""), (1, ""), (0.5, "0.5"), (2, "2"), (-1, "-1")])
def test_a_yes_or_no_is_0_or_1(value: float, got: str) -> None:
    assert objection(YES_NO, value) == (f"stars: got {got}, wanted yes or no" if got else "")


def test_a_label_is_one_of_the_categories() -> None:
    assert objection(TONE, label="warm") == objection(TONE, label="cold") == ""
    assert objection(TONE, label="sour") == "stars: got 'sour', wanted one of warm, cold"
    assert objection(TONE, label="Warm") == "stars: got 'Warm', wanted one of warm, cold"


def test_a_number_does_not_stand_for_the_category_that_it_is_the_value_of() -> None:
    assert objection(TONE, 0) == "stars: got the number 0, wanted one of warm, cold"


def test_a_config_with_a_name_is_of_that_metric_alone() -> None:
    assert objection(STARS, 3, of="tone") == "tone: its config is for 'stars', wanted a config for 'tone'"
    assert objection(TONE, label="warm", of="anything") == ""


# Configs


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"min_value": 5, "max_value": 1}, "it: got 5.0 to 1.0, wanted two numbers, the lower one first"),
        ({"max_value": float("inf")}, "it: got None to inf, wanted two numbers, the lower one first"),
        ({"min_value": float("nan")}, "it: got nan to None, wanted two numbers, the lower one first"),
        (YES_NO | {"min_value": 0}, "it: min_value and max_value: got data_type BOOLEAN, wanted NUMERIC"),
        ({"data_type": "CATEGORICAL"}, "it: categories: got 0 with CATEGORICAL, wanted them for CATEGORICAL only"),
        ({"categories": ["warm"]}, "it: categories: got 1 with NUMERIC, wanted them for CATEGORICAL only"),
        (TONE | {"categories": ["warm", {"label": "warm"}]}, "it: categories: got 'warm' twice"),
        (TONE | {"categories": [""]}, "it: categories.0.label: String should have at least 1 character, got ''"),
        ({"data_type": "TEXT"}, "it: data_type: Input should be 'NUMERIC', 'BOOLEAN' or 'CATEGORICAL', got 'TEXT'"),
        ({"minimum": 1}, "it: minimum: no such field"),
    ],
    ids=str,
)
def test_what_is_no_config_is_refused(content: dict[str, Any], said: str) -> None:
    assert refusal(content) == said


@pytest.mark.parametrize("content", [STARS, YES_NO, TONE, {"min_value": 2, "max_value": 2}], ids=str)
def test_a_config_comes_back_from_json_as_it_was(content: dict[str, Any]) -> None:
    assert (
        config(content).categories == ScoreConfigSpec.model_validate_json(config(content).model_dump_json()).categories
    )
    assert ScoreConfigSpec.model_validate_json(config(content).model_dump_json()) == config(content)
