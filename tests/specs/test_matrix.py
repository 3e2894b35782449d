"""A matrix makes a target of each cell, or says in one line why it does not."""

import re
from typing import Any

import pytest

from evalflows.engine.spec_targets import target_version
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec, change_experiment
from evalflows.specs.files import make_spec

CHAT = {"kind": "chat"}


def expand(matrix: object, target: dict[str, Any] = CHAT, *changes: str, **fields: Any) -> ExperimentSpec:
    content = {"name": "e", "dataset": {"path": "d.jsonl"}, "targets": [target], "matrix": matrix, **fields}
    return make_spec(ExperimentSpec, content, changes, "spec.yaml")


def fields(spec: ExperimentSpec) -> dict[str, dict[str, Any]]:
    return {target.name: target.model_dump(exclude_defaults=True, exclude={"name", "kind"}) for target in spec.targets}


def test_each_combination_that_is_not_excluded_is_a_target_that_knows_its_cell() -> None:
    matrix = {"prompt": ["p/a.md", "p/b.md"], "model": ["x", "y"], "temperature": [0, 0.7]}
    excluded = [{"prompt": "b", "model": "y"}, {"prompt": "p/a.md", "temperature": [0.7]}]
    spec = expand({**matrix, "exclude": excluded}, {**CHAT, "name": "bot", "seed": 5}, baseline="b-x-0.7")
    assert [*fields(spec)] == ["a-x-0", "a-y-0", "b-x-0", "b-x-0.7"]
    cell = {"prompt": "b", "model": "x", "temperature": "0.7"}
    last = {"system": {"file": "p/b.md"}, "model": "x", "temperature": 0.7, "seed": 5, "factors": cell}
    assert fields(spec)["b-x-0.7"] == last
    alone = ExperimentSpec.model_validate(
        {"name": "e", "dataset": {"path": "d.jsonl"}, "targets": [{**CHAT, **last, "factors": {}}]}
    )
    assert target_version(spec.targets[-1], {}) == target_version(alone.targets[0], {})
    assert "factors" not in alone.model_dump_json() and "matrix" not in spec.model_dump_json()
    assert ExperimentSpec.model_validate_json(spec.model_dump_json()) == spec == change_experiment(spec, ["tags=[]"])
    assert len(expand(matrix, CHAT, "matrix.model=x").targets) == 4, "one level, set before the matrix is expanded"


def test_levels_have_names_of_their_own_or_by_their_values_and_may_set_several_fields() -> None:
    llm = [{"connection": "a", "model": "x"}, {"connection": "b", "model": "y", "extra.effort": "low"}]
    spec = expand({"llm": llm, "prompt": {"short": "Be short.", "long": "q.md"}}, {**CHAT, "system": "s"})
    assert [*fields(spec)] == ["a-x-short", "a-x-long", "b-y-low-short", "b-y-low-long"]
    found = fields(spec)["b-y-low-long"]
    assert (found["system"], found["user"], found["extra"]) == ("s", {"file": "q.md"}, {"effort": "low"})
    named = expand({"model": {"gpt": "m1", 2: "m2"}, "extra.top_p": [1.0, 0.5], "name": "{model} at {extra.top_p}"})
    assert [*fields(named)] == ["gpt at 1", "gpt at 0.5", "2 at 1", "2 at 0.5"]
    inner = expand({"model": ["x"], "prompt": ["v1/a.md", "v2/a.md"]}, {"kind": "conversation", "target": CHAT})
    assert [(each.name, each.target.model) for each in inner.targets] == [("v1/a", "x"), ("v2/a", "x")]  # type: ignore[union-attr]
    posted = expand({"body.model": ["x"]}, {"kind": "http", "url": "http://a/b", "body": {"q": "{q}"}})
    assert fields(posted)["x"]["body"] == {"q": "{q}", "model": "x"}
    answers = expand({"function": ["app:a", "app:b"]}, {"kind": "python"})
    assert [*fields(answers)] == ["app:a", "app:b"]
    assert len(expand({"seed": [*range(61)], "cells": 61}).targets) == 61


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        (
            {"temprature": [0]},
            "matrix: temprature: no field of a chat target, wanted temperature; or levels with fields of it",
        ),
        ({"llm": [{"a": 1}]}, "matrix: llm: 'a' is not a field of a chat target, wanted "),
        ({"model": []}, "matrix: model: got no level"),
        ({"model": ["x", "x"]}, "matrix: model: two levels are called 'x'"),
        ({"tools": [[{}]]}, "matrix: tools: got [[{}]], wanted levels by names: {NAME: level}"),
        ({"exclude": []}, "matrix: got no factor"),
        ({"model": ["x"], "exclude": {"model": "x"}}, "matrix: exclude: got every cell"),
        ({"model": ["x"], "exclude": {"model": "z"}}, "matrix: exclude: model: got 'z', wanted one of: x"),
        ({"model": ["x"], "exclude": {"mdel": "z"}}, "matrix: exclude: got 'mdel', wanted model"),
        (
            {"model": ["x", "y"], "name": "a"},
            "matrix: name: got 'a', which names two targets 'a', wanted a name such as {model}",
        ),
        ({"model": ["x"], "name": "{mod}"}, "matrix: name: got {mod}, wanted model"),
        ({"seed": [*range(61)]}, "matrix: got 61 cells, wanted at most 60; cells: 61 allows them"),
        ({"seed": [*range(400)], "max_tokens": [*range(1, 400)]}, "matrix: got 159,600 cells, wanted at most 60"),
        ({"model.a": ["x"]}, "targets.0.chat.model: got {'a': 'x'}, wanted a text"),
        ({"extra.a.b": ["x"]}, "matrix: extra.a.b: got 1 at a, wanted a mapping"),
        ({"temperature": ["x"]}, "targets.0.chat.temperature: got 'x', wanted a number"),
        ({"model": ["x"], "cells": 0}, "matrix: cells: "),
        (5, "matrix: got 5, wanted a mapping"),
    ],
)
def test_a_matrix_that_makes_no_targets_says_why(matrix: object, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"spec.yaml: {said}")):
        expand(matrix, {**CHAT, "extra": {"a": 1}})


def test_a_matrix_varies_one_target_and_a_baseline_is_one_of_its_cells() -> None:
    with pytest.raises(InputError, match="matrix: got 2 targets, wanted one target, whose fields it varies"):
        expand({"model": ["x"]}, targets=[CHAT, CHAT])
    with pytest.raises(InputError, match=r"targets\.0: kind: got none, wanted one of: chat"):
        expand({"model": ["x"]}, {})
    with pytest.raises(InputError, match="baseline: got 'z', wanted one of: x, y"):
        expand({"model": ["x", "y"]}, baseline="z")
