"""One score of an agent from several of its rules."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evalflows.evaluators.agents.final_answer import How, final_answer
from evalflows.evaluators.agents.tools import Mode, step_efficiency, tool_arguments, tool_order, tool_selection
from evalflows.evaluators.agents.trajectory import Numbers, Rule
from evalflows.evaluators.declarations import Direction, declares, zero_to_one
from evalflows.evaluators.score import Score
from evalflows.evaluators.views import RunView
from evalflows.specs.errors import short

PARTS = ("selection", "arguments", "order", "efficiency", "answer")


def _metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    parts = settings.get("weights") or PARTS
    return {metric: zero_to_one() for metric in [name, *(f"agent_{part}" for part in PARTS if part in parts)]}


@declares(_metrics)
def agent(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    run: RunView | None = None,
    metadata: dict[str, Any] | None = None,
    *,
    weights: Mapping[str, float] | None = None,
    arguments: Rule = "exact",
    tools: Sequence[Mapping[str, Any]] | str | None = None,
    numbers: Numbers = "equal",
    extra_calls: str = "wrong",
    order: Mode = "strict",
    answer: How = "exact",
    ignore_case: bool = False,
    key: str | None = None,
    answer_key: str | None = None,
) -> list[Score] | None:
    """The weighted mean of the parts that apply, 0 to 1; each part is also a metric, named `agent_` and the part.

    The parts are the scores of other evaluators: selection (`tool_selection`'s F1), arguments (`tool_arguments`, with
    `arguments`, `tools`, `numbers`, `extra_calls`), order (`tool_order`, with `order` as its mode), efficiency
    (`step_efficiency`), answer (`final_answer`, with `answer` as its how, `ignore_case`, and `answer_key` as its key).
    `weights` maps parts to weights: by default all are 1; if set, only the named parts are judged, and a part with
    weight 0 is reported but not counted. A part that does not apply is left out with its weight. None if no part
    applies. It cannot see more than its parts do, and a mean hides which part is bad, so look at the parts.
    """
    part_weights = _weights(weights)
    fields: Any = {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs}
    call_fields: Any = fields | {"run": run, "key": key}
    judged: dict[str, Callable[[], Score | list[Score] | None]] = {
        "selection": lambda: tool_selection(**call_fields),
        "arguments": lambda: tool_arguments(
            **call_fields,
            metadata=metadata,
            arguments=arguments,
            tools=tools,
            numbers=numbers,
            extra_calls=extra_calls,
        ),
        "order": lambda: tool_order(**call_fields, mode=order),
        "efficiency": lambda: step_efficiency(**call_fields),
        "answer": lambda: final_answer(**fields, how=answer, ignore_case=ignore_case, key=answer_key),
    }
    parts = {part: _first(judged[part]()) for part in PARTS if part in part_weights}
    return _combined(parts, part_weights)


def _first(returned: Score | list[Score] | None) -> Score:
    score = returned[0] if isinstance(returned, list) else returned
    return score or Score()


def _combined(parts: Mapping[str, Score], weights: Mapping[str, float]) -> list[Score] | None:
    known = {part: float(score.value) for part, score in parts.items() if score.value is not None}
    if not known:
        return None
    total = sum(weights[part] for part in known)
    mean = sum(weights[part] * value for part, value in known.items()) / total if total else None
    comment = ", ".join(f"{part} {value:.2f}" for part, value in known.items())
    metrics = [Score(key=f"agent_{part}", value=score.value, comment=score.comment) for part, score in parts.items()]
    return [Score(value=mean, comment=comment), *metrics]


def _weights(weights: Mapping[str, float] | None) -> Mapping[str, float]:
    if weights is None:
        return dict.fromkeys(PARTS, 1.0)
    if not isinstance(weights, Mapping) or not weights:
        raise ValueError(f"weights: got {short(weights)}, wanted a mapping from parts to weights")
    for part, weight in weights.items():
        if part not in PARTS:
            raise ValueError(f"weights: got {short(part)}, wanted any of {', '.join(PARTS)}")
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool) and math.isfinite(weight)
        if not is_number or weight < 0:
            raise ValueError(f"weights: {part}: got {short(weight)}, wanted a number of at least 0")
    if not any(weights.values()):
        raise ValueError("weights: got weights that are all 0, wanted one above 0")
    return weights
