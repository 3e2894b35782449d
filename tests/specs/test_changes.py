"""Changes to a spec file, as `--set KEY=VALUE` makes them."""

from pathlib import Path
from typing import Any

import pytest

from evalflows.specs.errors import InputError
from evalflows.specs.experiment import load_experiment

SPEC = """
name: demo
dataset: {path: questions.jsonl}
targets:
  - {name: old, kind: chat, connection: local}
  - {name: new, kind: chat, connection: local, extra: {stop: [a, b]}}
evaluators: [contains, {use: exact_match, args: {strict: true}}]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


def dumped(path: Path, *changes: str) -> dict[str, Any]:
    return load_experiment(path, changes).model_dump()


def problem(path: Path, *changes: str) -> str:
    """The one line that changes are refused with; the spec's path reads FILE."""
    with pytest.raises(InputError) as caught:
        load_experiment(path, changes)
    text = str(caught.value)
    assert "\n" not in text
    return text.replace(str(path), "FILE")


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ("repetitions=3", "repetitions", 3),
        ("run_key=", "run_key", None),
        *((f"run_key={text}", "run_key", text) for text in ("1e5", "010", "123", "0x1F", "true", "2026-01-02")),
        ("name='a: b # c'", "name", "a: b # c"),
        (" repetitions = 3", "repetitions", 3),
        ("tags=[a, 'b=c']", "tags", ["a", "b=c"]),
        ("tags=[]", "tags", []),
        ("metadata={a: {b: [1, null]}}", "metadata", {"a": {"b": [1, None]}}),
        ("metadata.why=", "metadata", {"why": None}),
        ("tags=[no, on, 12:30, 010, 2026-01-02]", "tags", ["no", "on", "12:30", "010", "2026-01-02"]),
        ("metadata={a: [7, -1.5, .5, true, ~]}", "metadata", {"a": [7, -1.5, 0.5, True, None]}),
        ("use_cache=no", "use_cache", False),
    ],
)
def test_a_field_is_set_to_a_value_of_yaml(path: Path, change: str, field: str, value: object) -> None:
    assert dumped(path, change) == dumped(path) | {field: value}


def test_a_field_of_an_element_is_reached_by_its_number_one_change_after_another(path: Path) -> None:
    targets = load_experiment(path, ["targets.1.model=gpt-4o", "targets.0.seed=0"]).targets
    assert [getattr(target, "model", "") for target in targets] == [None, "gpt-4o"]
    assert [getattr(target, "seed", "") for target in targets] == [0, None]
    assert load_experiment(path, ["repetitions=2", "repetitions=5"]).repetitions == 5
    assert load_experiment(path, ["tags=[a]", "tags.0=b"]).tags == ["b"]


@pytest.mark.parametrize("change", ["", "repetitions", "=3", "=", " =3", ".=3", "a.=3", ".a=3", "a..b=3"])
def test_a_change_is_a_key_and_a_value(path: Path, change: str) -> None:
    said = f"--set {change}: wanted key=value, such as repetitions=3 or targets.0.model=gpt-4o"
    assert problem(path, change) == " ".join(said.split())


@pytest.mark.parametrize(
    "change",
    ["tags=[a", "name='open", "name=a: b: c", "name=!!python/object:os.system x", "name=\x00"],
    ids=repr,
)
def test_a_value_that_is_not_yaml_is_refused(path: Path, change: str) -> None:
    assert ": the value is not YAML: " in problem(path, change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("targets.2.model=m", "got '2', wanted a number below 2"),
        ("targets.-1.model=m", "got '-1', wanted a number below 2"),
        ("targets.².model=m", "got '²', wanted a number below 2"),
        ("name.first=x", "name is 'demo', wanted a mapping or a list"),
        ("name.first.letter=x", "got 'demo', wanted a mapping or a list at 'first'"),
        ("evaluators.1.args.strict.x=1", "evaluators.1.args.strict is True, wanted a mapping or a list"),
    ],
)
def test_a_place_that_there_is_not_is_refused(path: Path, change: str, said: str) -> None:
    assert problem(path, change) == f"--set {change}: {said}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("targets.0.modle=m", "FILE: targets.0.chat.modle: no such field, wanted one of: mode, model, name"),
        ("repetitions=many", "FILE: repetitions: got 'many', wanted a whole number"),
        ("targets.1.name=old", "FILE: targets: two are called 'old'"),
        ("baseline=none", "FILE: baseline: got 'none', wanted one of: old, new"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(path: Path, change: str, said: str) -> None:
    assert problem(path, change).startswith(said)
