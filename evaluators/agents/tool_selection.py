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
    wanted_calls = expected_calls(reference_outputs, key, inputs)
    if wanted_calls is None:
        return None
    made = Counter(call.name for call in read_trajectory(outputs, inputs, run).tool_calls)
    wanted = Counter(call.name for call in wanted_calls)
    hits, n_made, n_wanted = (made & wanted).total(), made.total(), wanted.total()
    agree = float(n_made == n_wanted == 0)
    return [
        Score(value=2 * hits / (n_made + n_wanted) if n_made + n_wanted else 1.0, comment=_differs(wanted, made)),
        Score(key="tool_precision", value=hits / n_made if n_made else agree),
        Score(key="tool_recall", value=hits / n_wanted if n_wanted else agree),
    ]


def _differs(wanted: Counter[str], made: Counter[str]) -> str | None:
    missing, extra = wanted - made, made - wanted
    parts = [f"not called: {', '.join(missing.elements())}"] if missing else []
    parts += [f"not wanted: {', '.join(extra.elements())}"] if extra else []
    return "; ".join(parts) or None
