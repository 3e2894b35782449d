"""Composites with the user's own function, and versions of composites."""

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from composites_of_parts import (
    LOWER,
    PARTS,
    WITHOUT,
    composite_of,
)
from user_places import without_places

from evalflows.evaluators.composite import Combined, Part
from evalflows.execution.resolve import composite_version
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric import CompositeSpec

# The user's own function


def composite_by(function: Any, parts: dict[str, Part | float] | None = None) -> Combined:
    return composite_of({"weights": ["a", "b"], "function": "m:f"}, parts or PARTS, function)


def test_a_function_gets_the_scaled_parts_and_returns_the_value() -> None:
    seen: list[Mapping[str, float]] = []

    def product(parts: Mapping[str, float]) -> float:
        seen.append(parts)
        return math.prod(parts.values())

    result = composite_of(
        {"weights": ["a", "b"], "function": "m:f"}, {"a": 2.0, "b": 0.5}, product, a={"range": [0, 8], **LOWER}
    )
    assert (result.status, result.value, result.parts) == ("scored", 0.375, {"a": 0.75, "b": 0.5})
    assert seen == [{"a": 0.75, "b": 0.5}]


@pytest.mark.parametrize(
    ("value", "kept"),
    [(0.25, 0.25), (0, 0.0), (1, 1.0), (True, 1.0), (False, 0.0), (np.float32(0.5), 0.5), (np.int64(1), 1.0)],
)
def test_a_function_can_return_any_number_from_0_to_1(value: object, kept: float) -> None:
    result = composite_by(lambda parts: value)
    assert (result.status, result.value) == ("scored", kept) and type(result.value) is float


def test_a_function_can_return_none_for_not_applicable() -> None:
    assert composite_by(lambda parts: None) == Combined(status="not_applicable", parts={"a": 0.25, "b": 0.5})


@pytest.mark.parametrize("value", [1.2, -0.1, math.nan, math.inf, "0.5", "good", [0.5], {}, 1j], ids=repr)
def test_an_invalid_return_value_makes_the_composite_fail(value: object) -> None:
    result = composite_by(lambda parts: value)
    assert (result.status, result.value) == ("failed", None)
    assert result.error == f"the composite's function returned {value!r}, wanted 0 to 1, or None"


def test_a_function_that_raises_makes_the_composite_fail() -> None:
    result = composite_by(lambda parts: parts["c"])
    assert result.status == "failed"
    assert without_places(result.error) == "the composite's function raised KeyError: 'c'"


def test_a_function_cannot_change_the_stored_parts() -> None:
    def greedy(parts: dict[str, float]) -> float:
        parts["a"] = 1.0
        return parts["a"]

    result = composite_by(greedy)
    assert (result.value, result.parts) == (1.0, {"a": 0.25, "b": 0.5})


def test_a_function_is_not_called_if_a_requirement_is_unmet_or_nothing_applies() -> None:
    def never(parts: object) -> float:
        raise AssertionError

    said = {"weights": ["a"], "function": "m:f", "requirements": {"b": 1}}
    assert composite_of(said, {"a": 1.0, "b": 0.0}, never).value == 0.0
    assert composite_of(said, {"a": WITHOUT, "b": 1.0}, never).status == "not_applicable"


# Versions


def version(change: dict[str, Any] | None = None, **fields: Any) -> str:
    composite = CompositeSpec.model_validate({"name": "quality", "weights": {"a": 1, "b": 2}} | (change or {}))
    spec = {"name": "demo", "dataset": {"path": "x.csv"}, "targets": [{"kind": "chat"}]}
    return composite_version(composite, ExperimentSpec.model_validate(spec | fields))


@pytest.mark.parametrize(
    "change",
    [
        {"weights": {"a": 1, "b": 3}},
        {"aggregation": "minimum"},
        {"aggregation": "geometric_mean"},
        {"missing": "worst"},
        {"requirements": {"c": 1}},
        {"requirements": {"c": 0.5}},
        {"function": "odd_evaluators:steep"},
    ],
    ids=str,
)
def test_a_change_of_the_composite_changes_its_version(change: dict[str, Any]) -> None:
    assert version(change) != version()
    assert version(change) == version(change)


def test_the_directions_and_ranges_of_parts_and_requirements_are_part_of_the_version() -> None:
    strict = {"requirements": {"c": 1}}
    assert version(strict) != version({"requirements": {"c": 0.5}})
    assert version(strict) != version(strict, metrics={"c": LOWER})
    assert version(strict) != version(strict, metrics={"a": {"range": [0, 5]}})
    assert version(strict) == version(strict, metrics={"other": LOWER}) == version(strict | {"name": "another"})


def test_the_source_of_the_users_function_is_part_of_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for module, value in (("one_way", 0.5), ("same_way", 0.5), ("other_way", 0.25)):
        source = f"""
            def own(parts):
                return {value}
        """
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
    assert version({"function": "one_way:own"}) == version({"function": "same_way:own"})
    assert version({"function": "one_way:own"}) != version({"function": "other_way:own"})
