"""What a spec may say of an evaluator: what a tier decides, which share is judged, what does not go together."""

import pytest
import yaml
from pydantic import ValidationError

from evalflows.specs.errors import first_problem
from evalflows.specs.evaluator import EvaluatorSpec, TierSpec


def refusal(model: type[EvaluatorSpec | TierSpec], content: object) -> str:
    """The one line that something is refused with."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(content)
    text = first_problem(caught.value, "it")
    assert "\n" not in text
    return text


def tier(text: str = "{}") -> TierSpec:
    """A tier of which a spec says this, in YAML."""
    return TierSpec.model_validate({"use": "contains"} | yaml.safe_load(text))


def evaluator(text: str) -> EvaluatorSpec:
    return EvaluatorSpec.model_validate(yaml.safe_load(text))


# What a tier decides: numbers, and labels (a number's place is None then)

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


@pytest.mark.parametrize(("high", "low"), [(0.2, 0.8), (0.5, 0.5)])
def test_bounds_between_which_nothing_is_left_open_are_refused(high: float, low: float) -> None:
    """Whoever writes so means the scores between the two, and would have every score decided."""
    said = refusal(TierSpec, {"use": "contains", "decides_from": high, "decides_to": low})
    assert said == f"it: decides_from: got {high:g} with decides_to {low:g}, which is every score"


# What goes together


@pytest.mark.parametrize(
    ("said", "beginning"),
    [
        ("use: cascade", "it: tiers: got use: cascade without, wanted"),
        ("{use: contains, tiers: [exact_match]}", "it: tiers: got use: contains with tiers, wanted"),
        ("{use: cascade, tiers: [contains], args: {key: a}}", "it: tiers: got args beside tiers"),
        ("{use: contains, decides: [1]}", "it: decides: no such field"),
        ("{use: contains, sample_rates: {high: 1}}", "it: sample_rates: got no sample_by"),
        ("{use: contains, sample_by: split, sample_rate: 0.5}", "it: sample_by: got no sample_rates"),
        ("{use: contains, timeout_s: 0}", "it: timeout_s: Input should be greater than 0"),
        ("{use: cascade, tiers: [{use: cascade, tiers: [contains]}]}", "it: tiers.0.tiers: no such field"),
        ("{use: cascade, tiers: [{use: contains, sample_rate: 0.5}]}", "it: tiers.0.sample_rate: no such field"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(said: str, beginning: str) -> None:
    assert refusal(EvaluatorSpec, yaml.safe_load(said)).startswith(beginning)


# Samples


@pytest.mark.parametrize("rate", [0, -0.1, 1.01, "some", float("nan"), float("inf")])
def test_a_rate_is_more_than_0_and_at_most_1(rate: object) -> None:
    assert refusal(EvaluatorSpec, {"use": "contains", "sample_rate": rate}).startswith("it: sample_rate: ")
    by = {"use": "contains", "sample_by": "split", "sample_rates": {"a": rate}}
    assert refusal(EvaluatorSpec, by).startswith("it: sample_rates.a: ")


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


def test_what_judges_a_sample_is_said_to() -> None:
    assert not evaluator("use: contains").is_sampled
    assert evaluator("{use: contains, sample_rate: 1}").is_sampled
    assert evaluator("{use: contains, sample_by: split, sample_rates: {test: 1}}").is_sampled
