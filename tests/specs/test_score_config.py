"""Score configs: what they let through, what they refuse, and which are none."""

from typing import Any

import pytest
from pydantic import ValidationError

from evalflows.specs.errors import first_problem
from evalflows.specs.running import ScoreConfigSpec

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


@pytest.mark.parametrize("value", [0.999, 5.001, -1e9])
def test_a_number_out_of_the_bounds_is_not(value: float) -> None:
    assert objection(STARS, value) == f"stars: got {value:g}, wanted 1 to 5"


def test_a_label_is_one_of_the_categories_and_never_a_number() -> None:
    assert objection(STARS, label="five") == "stars: got the label 'five', wanted 1 to 5"
    assert objection({}, label="five") == "stars: got the label 'five', wanted a number"
    assert objection(TONE, label="warm") == objection(TONE, label="cold") == ""
    assert objection(TONE, label="sour") == "stars: got 'sour', wanted one of warm, cold"
    assert objection(TONE, label="Warm") == "stars: got 'Warm', wanted one of warm, cold"
    assert objection(STARS, 3, of="tone") == "tone: its config is for 'stars', wanted a config for 'tone'"
    assert objection(TONE, label="warm", of="anything") == ""


@pytest.mark.parametrize(("value", "got"), [(0, ""), (1, ""), (0.5, "0.5"), (2, "2"), (-1, "-1")])
def test_a_yes_or_no_is_0_or_1(value: float, got: str) -> None:
    assert objection(YES_NO, value) == (f"stars: got {got}, wanted yes or no" if got else "")


# Configs


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"min_value": 5, "max_value": 1}, "it: got 5.0 to 1.0, wanted two numbers, the lower one first"),
        ({"max_value": float("inf")}, "it: got None to inf, wanted two numbers, the lower one first"),
        (YES_NO | {"min_value": 0}, "it: min_value and max_value: got data_type BOOLEAN, wanted NUMERIC"),
        ({"data_type": "CATEGORICAL"}, "it: categories: got 0 with CATEGORICAL, wanted them for CATEGORICAL only"),
        (TONE | {"categories": ["warm", {"label": "warm"}]}, "it: categories: got 'warm' twice"),
        ({"data_type": "TEXT"}, "it: data_type: Input should be 'NUMERIC', 'BOOLEAN' or 'CATEGORICAL', got 'TEXT'"),
        ({"minimum": 1}, "it: minimum: no such field"),
    ],
    ids=str,
)
def test_what_is_no_config_is_refused(content: dict[str, Any], said: str) -> None:
    assert refusal(content) == said
