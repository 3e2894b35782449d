"""Spec files: what is no file of a spec is refused in one line that names the file."""

from pathlib import Path
from typing import Any

import pytest

from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec, load_experiment

BASE = """
name: a
dataset: {rows: [{inputs: q, outputs: a}]}
targets: [{kind: recorded, column: reference_outputs}]
evaluators: [contains]
"""
BOMB = "metadata:\n  a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"  {name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "metadata:\n  a0: &a0 {k: 1}\n" + "".join(
    f"  a{number}: &a{number} {{<<: [*a{number - 1}, *a{number - 1}]}}\n" for number in range(1, 40)
)
WIDE = f"metadata:\n  a: &a {{{', '.join(f'k{number}: 1' for number in range(2000))}}}\n" + "".join(
    f"  m{number}: {{<<: *a}}\n" for number in range(2000)
)
GROWS = "got more than 100,000 values, or an alias that contains itself"
NO_MAPPING = "wanted a mapping with name, dataset, targets, evaluators"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "not YAML: ") for text in ("name: [1, 2", "name: 'open", "a: b: c", "\tname: x", "name: \x00")),
        *((text, f"got {got}, {NO_MAPPING}") for text, got in (("- a: x\n", "list"), ("", "NoneType"), ("7", "int"))),
        *((BASE + more, GROWS) for more in (BOMB, "metadata: &m {self: *m}\n", "metadata: {list: &l [*l]}\n")),
        *((BASE + more, GROWS) for more in (MERGES, WIDE, f"tags: [{'a, ' * 100_000}]\n")),
        (BASE + f"tags: [{'a, ' * 700_000}]\n", "got 2,100,139 characters, wanted at most 2,000,000"),
        (BASE + "name: b\n", "not YAML: line 6, column 1: got the key 'name' twice"),
        (BASE + "repetition: 3\n", "repetition: no such field"),
        (None, "cannot be read: No such file or directory"),
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_what_is_no_file_of_a_spec_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "spec.yaml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_experiment(path)
    assert str(caught.value).startswith(f"{path}: {said}") and "\n" not in str(caught.value)


def test_a_text_as_dataset_is_a_file_a_snapshot_or_a_name() -> None:
    for text, field in (("a/q.JSONL.gz", "path"), ("snap-1", "snapshot"), ("faq", "name")):
        assert DatasetSpec.model_validate(text) == DatasetSpec(**{field: text})
    for written in ("sub\\a.csv", "file://sub/a.csv"):
        assert DatasetSpec.model_validate(written).path == "sub/a.csv"
    with pytest.raises(ValueError, match=r"got \['a.csv', 'b.csv'\], wanted one file"):
        DatasetSpec.model_validate({"path": ["a.csv", "b.csv"]})


def test_metadata_that_is_no_json_is_refused() -> None:
    metadata: dict[str, Any] = {"a": 1}
    metadata["itself"] = metadata
    spec = {"name": "a", "dataset": {"rows": [{"inputs": "q"}]}, "targets": [{"kind": "recorded", "column": "a"}]}
    with pytest.raises(ValueError, match=r"metadata\n.*not JSON: .*Circular reference"):
        ExperimentSpec.model_validate({**spec, "evaluators": ["contains"], "metadata": metadata})


def test_a_gate_that_compares_with_another_baseline_does_not_decide_on_the_specs_own() -> None:
    targets = [{"kind": "recorded", "name": name, "column": name} for name in ("old", "new", "newer")]
    spec = ExperimentSpec.model_validate(
        {"name": "demo", "dataset": {"path": "rows.jsonl"}, "targets": targets, "evaluators": ["contains"]}
        | {"baseline": "old", "gates": [{"non_inferiority": {"contains": 0.1}}]}
    )
    gate = spec.gates[0].model_copy(update={"baseline": "approved"})
    assert spec.candidates(spec.gates[0]) == spec.candidates(gate) == ["new", "newer"]
    assert spec.candidates(gate.model_copy(update={"candidate": "old"})) == ["old"]
    assert spec.model_copy(update={"baseline": None}).candidates(gate) == ["old", "new", "newer"]
