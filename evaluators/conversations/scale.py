"""What the evaluators that rest on a rubric declare of their metrics."""

from collections.abc import Mapping
from typing import Any

from evaluators.direction import Direction
from evaluators.rubric import SCALE
from evaluators.settings import is_number


def on_the_scale(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    """The evaluator's own metric, and one for each criterion: from the worst of the scale, or of the labels' numbers,
    to the best. There is no range where labels have no numbers, nor for settings that the evaluator will refuse."""
    labels, criteria = settings.get("labels"), settings.get("criteria")
    metrics = [name, *(criteria if isinstance(criteria, Mapping) else ())]
    ends = settings.get("scale", SCALE) if labels is None else _numbers(labels)
    is_range = isinstance(ends, list | tuple) and all(is_number(end) for end in ends) and len({*ends}) > 1
    declared = {"range": [float(min(ends)), float(max(ends))]} if is_range else {}
    return {metric: {"higher_is_better": True, **declared} for metric in metrics}


def _numbers(labels: Any) -> list[Any]:
    return [*labels.values()] if isinstance(labels, Mapping) else []
