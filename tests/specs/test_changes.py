"""Changes to a spec file, as `--set KEY=VALUE` makes them."""

from pathlib import Path
from typing import Any

import pytest

from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec, load_experiment

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


# Made


def test_without_changes_the_file_is_read_as_it_is(path: Path) -> None:
    assert load_experiment(path, []) == load_experiment(path)


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ("repetitions=3", "repetitions", 3),
        ("use_cache=false", "use_cache", False),
        ("confidence_level=0.9", "confidence_level", 0.9),
        ("run_key=null", "run_key", None),
        ("run_key=", "run_key", None),
        ("run_key=~", "run_key", None),
        ("name=other", "name", "other"),
        ("name=x=y==z", "name", "x=y==z"),
        ("name='a: b # c'", "name", "a: b # c"),
        ('name="3"', "name", "3"),
        ("name=café 问题", "name", "café 问题"),
        ("name= padded ", "name", "padded"),
        (" repetitions = 3", "repetitions", 3),
        ("tags=[a, 'b=c']", "tags", ["a", "b=c"]),
        ("tags=[]", "tags", []),
        ("metadata={a: {b: [1, null]}}", "metadata", {"a": {"b": [1, None]}}),
        ("metadata.a.b.c=7", "metadata", {"a": {"b": {"c": 7}}}),
        ("metadata.why=", "metadata", {"why": None}),
    ],
)
def test_a_field_is_set_to_a_value_of_yaml(path: Path, change: str, field: str, value: object) -> None:
    assert dumped(path, change) == dumped(path) | {field: value}


def test_a_field_of_an_element_is_reached_by_its_number(path: Path) -> None:
    targets = load_experiment(path, ["targets.1.model=gpt-4o", "targets.0.seed=0"]).targets
    assert [getattr(target, "model", "") for target in targets] == [None, "gpt-4o"]
    assert [getattr(target, "seed", "") for target in targets] == [0, None]


def test_a_whole_element_is_replaced(path: Path) -> None:
    spec = load_experiment(path, ["targets.1={name: ours, kind: python, function: 'app:answer'}", "evaluators.0=regex"])
    assert [target.kind for target in spec.targets] == ["chat", "python"]
    assert [evaluator.use for evaluator in spec.evaluators] == ["regex", "exact_match"]


def test_an_element_of_an_inner_list_is_set(path: Path) -> None:
    target = load_experiment(path, ["targets.1.extra.stop.1=c"]).targets[1]
    assert getattr(target, "extra", None) == {"stop": ["a", "c"]}


def test_changes_are_made_one_after_another(path: Path) -> None:
    assert load_experiment(path, ["repetitions=2", "repetitions=5"]).repetitions == 5
    assert load_experiment(path, ["tags=[a]", "tags.0=b"]).tags == ["b"]


def test_a_change_can_mend_a_spec_that_was_not_right(path: Path) -> None:
    path.write_text(SPEC.replace("name: demo", "repetitions: 0"), encoding="utf-8")
    spec = load_experiment(path, ["name=demo", "repetitions=1"])
    assert (spec.name, spec.repetitions) == ("demo", 1)


def test_the_file_stays_as_it_was(path: Path) -> None:
    load_experiment(path, ["name=other", "targets.0.model=m"])
    assert path.read_text(encoding="utf-8") == SPEC


def test_a_change_of_what_yaml_shares_changes_one_place(path: Path) -> None:
    shared = "targets: [&a {name: old, kind: chat, extra: {top_p: 0.1}}, {<<: *a, name: new}]\n"
    path.write_text(f"name: demo\ndataset: {{path: x.csv}}\n{shared}", encoding="utf-8")
    targets = load_experiment(path, ["targets.0.extra.top_p=0.9"]).targets
    assert [getattr(target, "extra", None) for target in targets] == [{"top_p": 0.9}, {"top_p": 0.1}]


def test_a_spec_that_holds_itself_is_read_or_refused(path: Path) -> None:
    path.write_text(SPEC + "metadata: &all {again: *all}\n", encoding="utf-8")
    try:
        load_experiment(path)
    except InputError as error:
        assert str(error).startswith(f"{path}: ")


# Refused


@pytest.mark.parametrize("change", ["", "repetitions", "=3", "=", " =3", ".=3", "a.=3", ".a=3", "a..b=3"])
def test_a_change_is_a_key_and_a_value(path: Path, change: str) -> None:
    said = f"--set {change}: wanted key=value, such as repetitions=3 or targets.0.model=gpt-4o"
    assert problem(path, change) == " ".join(said.split())


@pytest.mark.parametrize(
    "change",
    ["tags=[a", "name='open", "name=a: b: c", "name=2026-13-45", "name=!!python/object:os.system x", "name=\x00"],
    ids=repr,
)
def test_a_value_that_is_not_yaml_is_refused(path: Path, change: str) -> None:
    assert ": the value is not YAML: " in problem(path, change)


def test_a_value_nested_too_deeply_is_refused(path: Path) -> None:
    assert "not YAML" in problem(path, "tags=" + "[" * 1000)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("targets.2.model=m", "got '2', wanted a number below 2"),
        ("targets.2={}", "got '2', wanted a number below 2"),
        ("targets.-1.model=m", "got '-1', wanted a number below 2"),
        ("targets.old.model=m", "got 'old', wanted a number below 2"),
        ("targets.0x.model=m", "got '0x', wanted a number below 2"),
        ("targets.².model=m", "got '²', wanted a number below 2"),
        ("targets.1.extra.stop.2=c", "got '2', wanted a number below 2"),
        ("name.first=x", "name is 'demo', wanted a mapping or a list"),
        ("name.first.letter=x", "got 'demo', wanted a mapping or a list at 'first'"),
        ("evaluators.0.name=x", "evaluators.0 is 'contains', wanted a mapping or a list"),
        ("evaluators.1.args.strict.x=1", "evaluators.1.args.strict is True, wanted a mapping or a list"),
    ],
)
def test_a_place_that_there_is_not_is_refused(path: Path, change: str, said: str) -> None:
    assert problem(path, change) == f"--set {change}: {said}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("repetition=3", "FILE: repetition: no such field"),
        ("sample.size=3", "FILE: sample: no such field"),
        ("dataset.limit=3", "FILE: dataset.limit: no such field"),
        ("targets.0.modle=m", "FILE: targets.0.chat.modle: no such field"),
        ("repetitions=0", "FILE: repetitions: Input should be greater than or equal to 1, got 0"),
        ("repetitions=many", "FILE: repetitions: Input should be a valid integer"),
        ("name=", "FILE: name: Input should be a valid string, got None"),
        ("name=3", "FILE: name: Input should be a valid string, got 3"),
        ("name=no", "FILE: name: Input should be a valid string, got False"),
        ("targets=", "FILE: targets: Input should be a valid list, got None"),
        ("targets=[]", "FILE: targets: List should have at least 1 item"),
        ("targets.1.name=old", "FILE: targets: two are called 'old'"),
        ("dataset.rows=[{inputs: 1}]", "FILE: dataset: got path and rows, wanted just one of"),
        ("baseline=none", "FILE: baseline: got 'none', wanted one of old, new"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(path: Path, change: str, said: str) -> None:
    assert problem(path, change).startswith(said)


def test_a_field_that_the_file_leaves_empty_has_nothing_below_it(path: Path) -> None:
    path.write_text(SPEC + "metadata:\n", encoding="utf-8")
    assert problem(path, "metadata.a=1") == "--set metadata.a=1: metadata is None, wanted a mapping or a list"


@pytest.mark.parametrize("change", ["name.x=1", "name.x.y=1"])
def test_a_long_text_does_not_make_a_long_message(path: Path, change: str) -> None:
    path.write_text(SPEC.replace("demo", "x" * 10_000), encoding="utf-8")
    assert len(problem(path, change)) < 300


def test_a_changed_spec_is_as_one_that_was_written_so(path: Path) -> None:
    changed = load_experiment(path, ["dataset.sample=50", "dataset.splits=[test]", "targets.0.max_tokens=5"])
    text = SPEC.replace("questions.jsonl}", "questions.jsonl, sample: 50, splits: [test]}")
    path.write_text(text.replace("connection: local}", "connection: local, max_tokens: 5}", 1), encoding="utf-8")
    assert changed == load_experiment(path)
    assert isinstance(changed, ExperimentSpec)
