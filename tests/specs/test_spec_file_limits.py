"""Spec files that repeat keys, or whose aliases grow without bound, are refused in one line."""

from pathlib import Path
from typing import Any

import pytest

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


def load(tmp_path: Path, more: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(BASE + more)
    load_experiment(str(path))


@pytest.mark.parametrize("more", [BOMB, "metadata: &m {self: *m}\n", "metadata: {list: &l [*l]}\n"])
def test_aliases_that_grow_without_bound_are_refused(tmp_path: Path, more: str) -> None:
    message = "spec.yaml: got more than 1,000,000 values, or an alias that contains itself$"
    with pytest.raises(InputError, match=message):
        load(tmp_path, more)


def test_a_key_that_repeats_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"spec.yaml: not YAML: got the key 'name' twice in .*, line 6, column 1"):
        load(tmp_path, "name: b\n")


def test_metadata_that_is_no_json_is_refused() -> None:
    metadata: dict[str, Any] = {"a": 1}
    metadata["itself"] = metadata
    spec = {"name": "a", "dataset": {"rows": [{"inputs": "q"}]}, "targets": [{"kind": "recorded", "column": "a"}]}
    with pytest.raises(ValueError, match=r"metadata\n.*not JSON: .*Circular reference"):
        ExperimentSpec.model_validate({**spec, "evaluators": ["contains"], "metadata": metadata})
