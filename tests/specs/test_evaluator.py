"""What a spec says of evaluators and metrics: what a tier decides, samples, directions, score configs."""

from typing import Any

import pytest
import yaml

from evalflows.specs.evaluator import EvaluatorSpec, TierSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric_names import MEASURES
from evalflows.specs.metrics import MetricSpec, ScoreConfigSpec


def tier(text: str = "{}") -> TierSpec:
    """A tier of which a spec says this, in YAML."""
    return TierSpec.model_validate({"use": "contains"} | yaml.safe_load(text))


def evaluator(text: str) -> EvaluatorSpec:
    return EvaluatorSpec.model_validate(yaml.safe_load(text))


VALUES = (0.0, 0.25, 0.5, 0.75, 1.0)


@pytest.mark.parametrize(
    ("said", "final"),
    [
        ("{}", VALUES),
        ("decides: [true]", (1.0,)),
        ("decides: [false]", (0.0,)),
        ("decides: [1, 0.5]", (0.5, 1.0)),
        ("decides: [right]", ()),
        ("decides_from: 0.75", (0.75, 1.0)),
        ("decides_to: 0.25", (0.0, 0.25)),
        ("{decides_from: 0.75, decides_to: 0}", (0.0, 0.75, 1.0)),
        ("{decides_from: 1, decides: [0.5]}", (0.5, 1.0)),
        ("decides_from: 0", VALUES),
    ],
    ids=str,
)
def test_which_numbers_are_final(said: str, final: tuple[float, ...]) -> None:
    assert tuple(value for value in VALUES if tier(said).is_final(value, None)) == final


@pytest.mark.parametrize(
    ("said", "final"),
    [
        ("{}", ("right", "wrong", "1")),
        ("decides: [right]", ("right",)),
        ("decides: [right, wrong]", ("right", "wrong")),
        ("decides: [1]", ()),
        ('decides: ["1"]', ("1",)),
        ("decides_from: 0", ()),
        ("decides_to: 1", ()),
    ],
    ids=str,
)
def test_which_labels_are_final(said: str, final: tuple[str, ...]) -> None:
    """A label is no number, whatever its text."""
    assert tuple(label for label in ("right", "wrong", "1") if tier(said).is_final(None, label)) == final


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("high", "high"), ("1", "1"), ("1.0", "1"), ("0.5", "0.5"), ("true", "true"), ("null", "null"), ('"1"', "1"),
        ("no", "false"), ('"no"', "no"), ("2026-01-02", "2026-01-02"),
    ],
)  # fmt: skip
def test_keys_are_what_yaml_makes_of_them_as_json_has_it(key: str, text: str) -> None:
    one = evaluator(f"{{use: contains, sample_by: split, sample_rates: {{{key}: 0.5}}}}")
    assert one.sample_rates == {text: 0.5}
    assert EvaluatorSpec.model_validate_json(one.model_dump_json()) == one


LESS = MetricSpec(higher_is_better=False, range=(0, 5))


def test_what_is_said_of_a_metric_comes_before_what_is_declared_field_by_field() -> None:
    assert MetricSpec().or_else(LESS) == MetricSpec(range=None).or_else(LESS) == LESS
    assert MetricSpec(higher_is_better=True).or_else(LESS) == MetricSpec(higher_is_better=True, range=(0, 5))
    assert MetricSpec(range=(1, 2)).or_else(LESS) == MetricSpec(higher_is_better=False, range=(1, 2))
    assert MetricSpec(pass_k=[2], pass_threshold=0.5).or_else(LESS) == MetricSpec(
        higher_is_better=False, range=(0, 5), pass_k=[2], pass_threshold=0.5
    )
    spec = ExperimentSpec.model_validate({"name": "x", "dataset": {"path": "x.csv"}, "targets": [{"kind": "chat"}]})
    assert {name: spec.direction(name) for name in MEASURES} == dict.fromkeys(
        MEASURES, MetricSpec(higher_is_better=False)
    )


STARS = {"name": "stars", "data_type": "NUMERIC", "min_value": 1, "max_value": 5}
TONE = {"data_type": "CATEGORICAL", "categories": ["warm", {"label": "cold", "value": 0}]}


def test_a_score_config_allows_its_numbers_labels_or_yes_and_no() -> None:
    def objection(content: dict[str, Any], value: float | None, label: str | None = None, of: str = "stars") -> str:
        """What is said against a score; nothing where it is allowed."""
        try:
            ScoreConfigSpec.model_validate(content).check(of, value, label)
        except ValueError as error:
            assert "\n" not in str(error)
            return str(error)
        return ""

    for value in (0.999, 5.001, -1e9):
        assert objection(STARS, value) == f"stars: got {value:g}, wanted 1 to 5"
    for value in (1, 5):
        assert objection(STARS, value) == ""
    for value, got in ((0, ""), (1, ""), (0.5, "0.5"), (2, "2"), (-1, "-1")):
        assert objection({"data_type": "BOOLEAN"}, value) == (f"stars: got {got}, wanted yes or no" if got else "")
    assert objection(STARS, None, "five") == "stars: got the label 'five', wanted 1 to 5"
    assert objection({}, None, "five") == "stars: got the label 'five', wanted a number"
    assert objection(TONE, None, "warm") == objection(TONE, None, "cold") == ""
    assert objection(TONE, None, "Warm") == "stars: got 'Warm', wanted one of warm, cold"
    assert objection(STARS, 3, of="tone") == "tone: its config is for 'stars', wanted a config for 'tone'"
    assert objection(TONE, None, "warm", of="anything") == ""
