"""Specs of comparisons: what is right is read, and what is wrong is said in one line."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from evalflows.specs.comparison import CompareSpec, load_comparison
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec

SPEC: dict[str, Any] = {"experiments": ["old", "new"], "evaluators": ["pairwise_preference"]}
RUN: dict[str, Any] = {
    "name": "demo",
    "dataset": {"path": "questions.jsonl"},
    "targets": [{"name": name, "kind": "recorded", "column": name} for name in ("a", "b")],
    "evaluators": ["exact_match"],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "comparison.yaml"


def problem(path: Path, content: object) -> str:
    """The one line that a file is refused with; its path reads FILE."""
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_comparison(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    return text.replace(str(path), "FILE")


# Read


def test_changes_are_applied_to_what_a_file_says(path: Path) -> None:
    path.write_text(yaml.safe_dump(SPEC), encoding="utf-8")
    spec = load_comparison(path, ["both_orders=true", "experiments.1=newest", "slice_by=[metadata.topic]"])
    assert (spec.both_orders, spec.experiments, spec.slice_by) == (True, ["old", "newest"], ["metadata.topic"])


def test_an_experiment_may_say_how_its_targets_are_compared() -> None:
    spec = ExperimentSpec.model_validate(RUN | {"compare": {"evaluators": "app:judge", "both_orders": True}})
    assert isinstance(spec.compare, CompareSpec)
    assert (spec.compare.evaluators[0].use, spec.compare.both_orders) == ("app:judge", True)
    assert ExperimentSpec.model_validate_json(spec.model_dump_json()) == spec


# Refused


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"experiments": []}, "FILE: experiments: "),
        ({"evaluators": ["app:judge", {"use": "app:judge"}]}, "two are called 'judge', wanted unique names"),
        ({"evaluators": ["a:judge", {"use": "x", "name": "judge"}]}, "two are called 'judge'"),
        ({"repetitions": 2}, "FILE: repetitions: "),
        ({"dataset": "questions.jsonl"}, "FILE: dataset: "),
        ({"evaluators": [{"use": "app:judge", "tiers": ["exact_match"]}]}, "FILE: evaluators.0."),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_in_one_line(path: Path, changes: dict[str, Any], said: str) -> None:
    assert said in problem(path, SPEC | changes)


def test_one_target_has_nothing_to_be_compared_with() -> None:
    one = RUN | {"targets": RUN["targets"][:1], "compare": {"evaluators": "app:judge"}}
    with pytest.raises(ValidationError, match="compare: got one target, wanted at least two"):
        ExperimentSpec.model_validate(one)
