"""Specs of comparisons: read from a file with changes, and within an experiment."""

from pathlib import Path
from typing import Any

import pytest
import yaml

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


def test_changes_are_applied_to_what_a_file_says_and_a_mistake_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "comparison.yaml"
    path.write_text(yaml.safe_dump(SPEC), encoding="utf-8")
    spec = load_comparison(path, ["both_orders=true", "experiments.1=newest", "slice_by=[metadata.topic]"])
    assert (spec.both_orders, spec.experiments, spec.slice_by) == (True, ["old", "newest"], ["metadata.topic"])
    with pytest.raises(InputError, match=rf"^{path}: repetitions: no such field"):
        load_comparison(path, ["repetitions=2"])


def test_an_experiment_may_say_how_its_targets_are_compared() -> None:
    spec = ExperimentSpec.model_validate(RUN | {"compare": {"evaluators": "app:judge", "both_orders": True}})
    assert isinstance(spec.compare, CompareSpec)
    assert (spec.compare.evaluators[0].use, spec.compare.both_orders) == ("app:judge", True)
    assert ExperimentSpec.model_validate_json(spec.model_dump_json()) == spec
