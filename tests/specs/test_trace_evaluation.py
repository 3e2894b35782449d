"""Specs of trace evaluations."""

from pathlib import Path
from typing import Any

import pytest

from evalflows.specs.errors import InputError
from evalflows.specs.traces import TraceEvaluationSpec, load_trace_evaluation


def load(folder: Path, text: str, *changes: str) -> TraceEvaluationSpec:
    path = folder / "watch.yaml"
    path.write_text(text)
    return load_trace_evaluation(path, changes)


@pytest.mark.parametrize(("changes", "seconds"), [({}, 60.0), ({"settle_s": 5}, 5.0), ({"scope": "sessions"}, 1800.0)])
def test_items_settle_before_they_are_judged(changes: dict[str, Any], seconds: float) -> None:
    spec = TraceEvaluationSpec.model_validate({"name": "watch", "evaluators": ["contains"]} | changes)
    assert spec.settles_after_s == seconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: watch\n", "evaluators: "),
        ("name: watch\nevaluators: []\n", "evaluators: "),
        ("name: watch\nevaluators: contains\ncolour: red\n", "colour"),
        ("name: watch\nevaluators: [contains, contains]\n", "two are called 'contains', wanted unique names"),
        ("name: watch\nevaluators: contains\nmapper: {answer: output}\n", "mapper: got 'answer', wanted any of input"),
        (
            "name: watch\nevaluators: contains\ncomposites: [{name: contains, weights: {contains: 1}}]\n",
            "two are called 'contains', wanted unique names",
        ),
    ],
)
def test_an_invalid_spec_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value) and "watch.yaml" in str(caught.value)
