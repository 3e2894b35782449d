from collections import Counter
from collections.abc import Mapping
from typing import Any

from evalflows.evaluators.agents.trajectory import expected_calls, read_trajectory
from evalflows.evaluators.direction import Direction, declares, needs_reference, zero_to_one
from evalflows.evaluators.score import Score
from evalflows.evaluators.subject import RunView


def _metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    return {metric: zero_to_one() for metric in (name, "tool_precision", "tool_recall")}


@declares(_metrics)
@needs_reference
def tool_selection(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    run: RunView | None = None,
    *,
    key: str | None = None,
) -> list[Score] | None:
    """F1 of the called tools against the expected tools, 0 to 1; the comment lists the differences.

    Two more metrics are `tool_precision` (the share of actual calls that were expected) and `tool_recall` (the share of
    expected calls that were made). A tool that is expected twice counts twice. None without calls in the reference (its
    `tool_calls`, `messages`, or the field `key`). If no call is expected and none is made, all three are 1; with calls
    on one side only, all three are 0. It cannot see the arguments, the order, or what the tools returned.
    """
    reference_calls = expected_calls(reference_outputs, key, inputs)
    if reference_calls is None:
        return None
    actual = Counter(call.name for call in read_trajectory(outputs, inputs, run).tool_calls)
    expected = Counter(call.name for call in reference_calls)
    hits, n_actual, n_expected = (actual & expected).total(), actual.total(), expected.total()
    f1 = 2 * hits / (n_actual + n_expected) if n_actual + n_expected else 1.0
    both_empty = float(n_actual == n_expected == 0)
    return [
        Score(value=f1, comment=_difference(expected, actual)),
        Score(key="tool_precision", value=hits / n_actual if n_actual else both_empty),
        Score(key="tool_recall", value=hits / n_expected if n_expected else both_empty),
    ]


def _difference(expected: Counter[str], actual: Counter[str]) -> str | None:
    missing, extra = expected - actual, actual - expected
    parts = [f"not called: {', '.join(missing.elements())}"] if missing else []
    parts += [f"not wanted: {', '.join(extra.elements())}"] if extra else []
    return "; ".join(parts) or None
