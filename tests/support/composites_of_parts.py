"""Parts and composites as the tests of composites write them."""

from typing import Any, Literal

from hypothesis import strategies as st

from evalflows.evaluators.composite import Combined, Function, Part, combined
from evalflows.specs.metric import CompositeSpec, MetricSpec

LOWER = {"higher_is_better": False}


def scored(value: float | None) -> Part:
    return Part(value=value, status="scored")


FAILED = Part(value=None, status="failed", error="HTTP 500")
SKIPPED = Part(value=None, status="not_attempted")
WITHOUT = Part(value=None, status="not_applicable")
UNDRAWN = Part(value=None, status="sampled_out")


def weighted(
    weights: dict[str, float],
    parts: dict[str, Part | float],
    missing: Literal["fail", "leave_out", "worst"] = "fail",
    **declared: dict[str, Any],
) -> Combined:
    return composite_of({"weights": weights, "missing": missing}, parts, **declared)


def composite_of(
    fields: dict[str, Any], parts: dict[str, Part | float], function: Function | None = None, **declared: dict[str, Any]
) -> Combined:
    """Return the composite of a spec with the given fields."""
    composite = CompositeSpec.model_validate({"name": "quality"} | fields)
    given_parts = {metric: part if isinstance(part, Part) else scored(part) for metric, part in parts.items()}
    metrics = {metric: MetricSpec.model_validate(declared.get(metric, {})) for metric in composite.metrics}
    return combined(composite, given_parts, metrics, function)


def composite_of_one(value: float | None, metric: str = "a", **declared: Any) -> Combined:
    """Return the composite of a single part."""
    return weighted({metric: 1}, {metric: scored(value)}, **{metric: declared})


shares = st.floats(0, 1)
weights = st.floats(1e-3, 1e3)
PARTS: dict[str, Part | float] = {"a": 0.25, "b": 0.5}
