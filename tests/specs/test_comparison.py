"""Specs of comparisons: what is right is read, and what is wrong is said in one line."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from evalflows.specs.comparison import CompareSpec, ComparisonSpec, load_comparison
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


def test_a_spec_is_read_with_its_defaults(path: Path) -> None:
    path.write_text(yaml.safe_dump(SPEC), encoding="utf-8")
    spec = load_comparison(path)
    assert (spec.pairs, spec.randomize_order, spec.both_orders, spec.seed) == ("all", True, False, 0)
    assert (spec.failed_output, spec.load_nested, spec.slice_by, spec.max_concurrency) == ("loses", False, [], 5)
    assert (spec.confidence_level, spec.baseline, spec.run_key, spec.max_calls, spec.use_cache) == (
        0.95,
        None,
        None,
        None,
        True,
    )
    assert [(one.use, one.metric) for one in spec.evaluators] == [("pairwise_preference", "pairwise_preference")]


def test_changes_are_applied_to_what_a_file_says(path: Path) -> None:
    path.write_text(yaml.safe_dump(SPEC), encoding="utf-8")
    spec = load_comparison(path, ["both_orders=true", "experiments.1=newest", "slice_by=[metadata.topic]"])
    assert (spec.both_orders, spec.experiments, spec.slice_by) == (True, ["old", "newest"], ["metadata.topic"])


@pytest.mark.parametrize(
    "one", ["app:judge", {"use": "app:judge"}, ["app:judge"], [{"use": "app:judge"}]], ids=lambda one: str(one)
)
def test_one_evaluator_need_not_be_a_list(one: object) -> None:
    assert [e.use for e in ComparisonSpec.model_validate(SPEC | {"evaluators": one}).evaluators] == ["app:judge"]


def test_a_spec_comes_back_from_json_as_it_was() -> None:
    spec = ComparisonSpec.model_validate(
        SPEC
        | {
            "evaluators": [{"use": "app:judge", "name": "fair", "args": {"limit": [1, None]}, "timeout_s": 3}],
            "connections": {"mine": {"kind": "endpoint", "base_url": "http://localhost"}},
            "metadata": {"ticket": 7},
            "pairs": "baseline",
            "baseline": "new",
            "failed_output": "left_out",
            "budget_usd": 1.5,
            "run_key": "k",
        }
    )
    assert ComparisonSpec.model_validate_json(spec.model_dump_json()) == spec


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
        ({"evaluators": []}, "FILE: evaluators: "),
        ({"evaluators": ["app:judge", {"use": "app:judge"}]}, "two are called 'judge', wanted unique names"),
        ({"evaluators": ["a:judge", {"use": "x", "name": "judge"}]}, "two are called 'judge'"),
        ({"pairs": "some"}, "FILE: pairs: "),
        ({"failed_output": "wins"}, "FILE: failed_output: "),
        ({"max_concurrency": 0}, "FILE: max_concurrency: "),
        ({"confidence_level": 1.0}, "FILE: confidence_level: "),
        ({"max_calls": -1}, "FILE: max_calls: "),
        ({"run_key": ""}, "FILE: run_key: "),
        ({"repetitions": 2}, "FILE: repetitions: "),
        ({"dataset": "questions.jsonl"}, "FILE: dataset: "),
        ({"evaluators": [{"use": "app:judge", "tiers": ["exact_match"]}]}, "FILE: evaluators.0."),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_in_one_line(path: Path, changes: dict[str, Any], said: str) -> None:
    assert said in problem(path, SPEC | changes)


def test_a_file_without_what_is_needed_says_what_is_needed(path: Path) -> None:
    assert "experiments and evaluators" in problem(path, "- old\n- new\n")
    assert problem(path, {"experiments": ["a", "b"]}).startswith("FILE: evaluators: ")
    assert problem(path, {"evaluators": ["a:b"]}).startswith("FILE: experiments: ")


def test_one_target_has_nothing_to_be_compared_with() -> None:
    one = RUN | {"targets": RUN["targets"][:1], "compare": {"evaluators": "app:judge"}}
    with pytest.raises(ValidationError, match="compare: got one target, wanted at least two"):
        ExperimentSpec.model_validate(one)


def test_what_an_experiment_says_itself_it_does_not_say_again_of_its_comparison() -> None:
    with pytest.raises(ValidationError, match=r"compare.experiments"):
        ExperimentSpec.model_validate(RUN | {"compare": {"evaluators": "app:judge", "experiments": ["a", "b"]}})
