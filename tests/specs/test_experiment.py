"""Spec files: what is right is read, and what is wrong is said in one line."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from evalflows.specs.connection import EndpointConnection, LocalConnection
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec, load_experiment
from evalflows.specs.target import ChatTarget, PythonTarget, RecordedTarget

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


def test_a_spec_is_read_with_its_defaults(path: Path) -> None:
    path.write_text(yaml.safe_dump(SPEC), encoding="utf-8")
    spec = load_experiment(path)
    assert (spec.name, spec.repetitions, spec.use_cache, spec.run_key) == ("demo", 1, True, None)
    assert spec.dataset.path == "questions.jsonl"
    assert isinstance(spec.targets[0], ChatTarget)
    assert [(evaluator.use, evaluator.metric) for evaluator in spec.evaluators] == [("exact_match", "exact_match")]


@pytest.mark.parametrize("file", sorted((ROOT / "data" / "experiments").glob("*.yaml")), ids=lambda path: path.name)
def test_the_specs_that_ship_are_read(file: Path) -> None:
    assert load_experiment(file).targets


def test_a_spec_comes_back_from_json_as_it_was() -> None:
    spec = ExperimentSpec.model_validate(
        SPEC
        | {
            "targets": [
                {"name": "a", "kind": "chat", "system": "{x}", "extra": {"top_p": 0.5}},
                {"name": "b", "kind": "python", "function": "app:answer"},
                {"name": "c", "kind": "recorded", "path": "answers.jsonl"},
            ],
            "evaluators": [{"use": "app:judge", "name": "fair", "args": {"limit": [1, None]}}],
            "connections": {
                "mine": {"kind": "endpoint", "base_url": "http://localhost"},
                "own": {"kind": "local", "gguf": "x.gguf"},
            },
            "metadata": {"ticket": 7},
            "run_key": "k",
        }
    )
    assert ExperimentSpec.model_validate_json(spec.model_dump_json()) == spec
    assert [type(target) for target in spec.targets] == [ChatTarget, PythonTarget, RecordedTarget]
    assert isinstance(spec.connections["mine"], EndpointConnection)
    assert isinstance(spec.connections["own"], LocalConnection)


@pytest.mark.parametrize("one", ["exact_match", {"use": "exact_match"}])
def test_one_evaluator_need_not_stand_in_a_list(one: object) -> None:
    assert ExperimentSpec.model_validate(SPEC | {"evaluators": one}).evaluators[0].use == "exact_match"


@pytest.mark.parametrize(
    ("evaluator", "metric"),
    [
        ("contains", "contains"),
        ("app.judges:polite", "polite"),
        ("app.judges:Polite.score", "score"),
        ({"use": "app:polite", "name": "manners"}, "manners"),
    ],
)
def test_a_score_is_called_after_its_function_unless_it_is_given_a_name(evaluator: object, metric: str) -> None:
    assert ExperimentSpec.model_validate(SPEC | {"evaluators": [evaluator]}).evaluators[0].metric == metric


def test_of_several_targets_each_experiment_bears_its_name() -> None:
    one = ExperimentSpec.model_validate(SPEC)
    two = ExperimentSpec.model_validate(SPEC | {"targets": [{"name": n, "kind": "chat"} for n in ("a", "b")]})
    assert one.experiment_name("small") == "demo"
    assert [two.experiment_name(target.name) for target in two.targets] == ["demo-a", "demo-b"]


def test_a_dataset_may_be_named_beside_its_source() -> None:
    spec = ExperimentSpec.model_validate(SPEC | {"dataset": {"name": "questions", "rows": [{"inputs": 1}]}})
    assert (spec.dataset.name, spec.dataset.rows) == ("questions", [{"inputs": 1}])


def test_a_spec_does_not_change() -> None:
    spec = ExperimentSpec.model_validate(SPEC)
    with pytest.raises(ValidationError):
        spec.name = "other"  # type: ignore[misc]


# Refused


def test_a_missing_file_is_refused(path: Path) -> None:
    assert problem(path) == "FILE: cannot be read: No such file or directory"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert problem(tmp_path) == "FILE: cannot be read: Is a directory"


def test_a_file_that_is_not_utf8_is_refused(path: Path) -> None:
    path.write_bytes(b"name: caf\xe9\n")
    assert problem(path).startswith("FILE: cannot be read: 'utf-8' codec can't decode")


@pytest.mark.parametrize(
    "text", ["name: [1, 2", "name: 'open", "a: b: c", "\tname: x", "name: \x00", "- a\nb: c"], ids=repr
)
def test_what_is_not_yaml_is_refused(path: Path, text: str) -> None:
    assert problem(path, text).startswith("FILE: not YAML: ")


@pytest.mark.parametrize("text", ["name: 2026-13-45\n", "{[1]: 2}\n", "name: !!python/object:os.system x\n"], ids=repr)
def test_what_yaml_cannot_build_is_refused(path: Path, text: str) -> None:
    assert problem(path, text).startswith("FILE: ")


@pytest.mark.parametrize(
    ("text", "got"),
    [("- name: demo\n", "list"), ("", "NoneType"), ("# nothing\n", "NoneType"), ("demo", "str"), ("7", "int")],
)
def test_anything_but_a_mapping_is_refused(path: Path, text: str, got: str) -> None:
    path.write_text(text, encoding="utf-8")
    assert problem(path) == f"FILE: got {got}, wanted a mapping with name, dataset, targets, evaluators"


@pytest.mark.parametrize("field", ["name", "dataset", "targets"])
def test_a_missing_field_is_named(path: Path, field: str) -> None:
    content = {key: value for key, value in SPEC.items() if key != field}
    assert problem(path, content) == f"FILE: {field}: Field required"


@pytest.mark.parametrize(
    ("change", "beginning"),
    [
        ({"repetition": 3}, "FILE: repetition: no such field"),
        ({"dataset": {"file": "x"}}, "FILE: dataset.file: no such field"),
        (
            {"dataset": {"path": "x", "snapshot": "y"}},
            "FILE: dataset: got path and snapshot, wanted just one of",
        ),
        (
            {"dataset": {}},
            "FILE: dataset: got no source, wanted one of path, function, name, snapshot, rows and traces",
        ),
        (
            {"dataset": {}},
            "FILE: dataset: got no source, wanted one of path, function, name, snapshot, rows and traces",
        ),
        ({"targets": []}, "FILE: targets: List should have at least 1 item"),
        ({"targets": [{"kind": "chatt"}]}, "FILE: targets.0: Input tag 'chatt' found using 'kind' does not match any"),
        ({"targets": [{"name": "x"}]}, "FILE: targets.0: Unable to extract tag using discriminator 'kind'"),
        ({"targets": [{"kind": "python"}]}, "FILE: targets.0.python.function: Field required"),
        ({"targets": [{"kind": "chat", "modle": "x"}]}, "FILE: targets.0.chat.modle: no such field"),
        ({"targets": [{"kind": "chat", "name": ""}]}, "FILE: targets.0.chat.name: String should have at least 1"),
        ({"evaluators": [{"name": "x"}]}, "FILE: evaluators.0.use: Field required"),
        ({"evaluators": [7]}, "FILE: evaluators.0: Input should be"),
        ({"evaluators": [{"use": "x", "arg": 1}]}, "FILE: evaluators.0.arg: no such field"),
        ({"connections": {"x": {"kind": "endpoint"}}}, "FILE: connections.x.endpoint.base_url: Field required"),
        ({"connections": {"x": {"kind": "cloud"}}}, "FILE: connections.x: Input tag 'cloud'"),
        ({"repetitions": 0}, "FILE: repetitions: Input should be greater than or equal to 1, got 0"),
        ({"max_concurrency": 0}, "FILE: max_concurrency: Input should be greater than or equal to 1, got 0"),
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


def test_two_targets_without_a_name_are_two_of_one_name(path: Path) -> None:
    assert "two are called 'target'" in problem(path, SPEC | {"targets": [{"kind": "chat"}, {"kind": "chat"}]})


@pytest.mark.parametrize(
    "second", ["exact_match", {"use": "app:exact_match"}, {"use": "contains", "name": "exact_match"}]
)
def test_two_evaluators_of_one_name_are_refused(path: Path, second: object) -> None:
    assert problem(path, SPEC | {"evaluators": ["exact_match", second]}).startswith(
        "FILE: evaluators: two are called 'exact_match', wanted unique names"
    )


def test_a_long_value_does_not_make_a_long_message(path: Path) -> None:
    assert len(problem(path, SPEC | {"repetitions": "x" * 10_000})) < 300
