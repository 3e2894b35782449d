"""Spec files: what is right is read, and what is wrong is said in one line."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec, load_experiment

ROOT = Path(__file__).parents[2]
SPEC: dict[str, Any] = {
    "name": "demo",
    "dataset": {"path": "questions.jsonl"},
    "targets": [{"name": "small", "kind": "chat", "connection": "local"}],
    "evaluators": ["exact_match"],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spec.yaml"


def problem(path: Path, content: object = None) -> str:
    """The one line that a file is refused with; its path reads FILE."""
    if content is not None:
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_experiment(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    return text.replace(str(path), "FILE")


# Read


@pytest.mark.parametrize("file", sorted((ROOT / "data" / "experiments").glob("*.yaml")), ids=lambda path: path.name)
def test_the_specs_that_ship_are_read(file: Path) -> None:
    assert load_experiment(file).targets


def test_of_several_targets_each_experiment_bears_its_name() -> None:
    one = ExperimentSpec.model_validate(SPEC)
    two = ExperimentSpec.model_validate(SPEC | {"targets": [{"name": n, "kind": "chat"} for n in ("a", "b")]})
    assert one.experiment_name("small") == "demo"
    assert [two.experiment_name(target.name) for target in two.targets] == ["demo-a", "demo-b"]


# Refused


@pytest.mark.parametrize(
    "text", ["name: [1, 2", "name: 'open", "a: b: c", "\tname: x", "name: \x00", "- a\nb: c"], ids=repr
)
def test_what_is_not_yaml_is_refused(path: Path, text: str) -> None:
    assert problem(path, text).startswith("FILE: not YAML: ")


@pytest.mark.parametrize(
    ("change", "beginning"),
    [
        ({"repetition": 3}, "FILE: repetition: no such field"),
        ({"targets": []}, "FILE: targets: List should have at least 1 item"),
        ({"targets": [{"kind": "chatt"}]}, "FILE: targets.0: Input tag 'chatt' found using 'kind' does not match any"),
        ({"targets": [{"kind": "python"}]}, "FILE: targets.0.python.function: Field required"),
        ({"evaluators": [{"name": "x"}]}, "FILE: evaluators.0.use: Field required"),
        ({"evaluators": [{"use": "x", "arg": 1}]}, "FILE: evaluators.0.arg: no such field"),
        ({"connections": {"x": {"kind": "endpoint"}}}, "FILE: connections.x.endpoint.base_url: Field required"),
        ({"name": ""}, "FILE: name: String should have at least 1 character, got ''"),
        ({"name": 7}, "FILE: name: Input should be a valid string, got 7"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_with_its_place(path: Path, change: dict[str, Any], beginning: str) -> None:
    assert problem(path, SPEC | change).startswith(beginning)


def test_two_targets_of_one_name_are_refused(path: Path) -> None:
    targets = [{"name": "same", "kind": "chat"}, {"name": "same", "kind": "python", "function": "a:b"}]
    assert problem(path, SPEC | {"targets": targets}).startswith(
        "FILE: targets: two are called 'same', wanted unique names"
    )


@pytest.mark.parametrize(
    "second", ["exact_match", {"use": "app:exact_match"}, {"use": "contains", "name": "exact_match"}]
)
def test_two_evaluators_of_one_name_are_refused(path: Path, second: object) -> None:
    assert problem(path, SPEC | {"evaluators": ["exact_match", second]}).startswith(
        "FILE: evaluators: two are called 'exact_match', wanted unique names"
    )


@pytest.mark.parametrize(
    ("text", "got"),
    [("- name: demo\n", "list"), ("", "NoneType"), ("# nothing\n", "NoneType"), ("demo", "str"), ("7", "int")],
)
def test_anything_but_a_mapping_is_refused(path: Path, text: str, got: str) -> None:
    path.write_text(text, encoding="utf-8")
    assert problem(path) == f"FILE: got {got}, wanted a mapping with name, dataset, targets, evaluators"


def test_a_missing_file_is_refused(path: Path) -> None:
    assert problem(path) == "FILE: cannot be read: No such file or directory"
