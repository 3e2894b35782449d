from collections import Counter
from collections.abc import Mapping
from typing import Any

from evaluators.agents.trajectory import expected_calls, read_trajectory
from evaluators.direction import Direction, declares, zero_to_one
from evaluators.score import Score
from evaluators.subject import RunView


def _metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    return {metric: zero_to_one() for metric in (name, "tool_precision", "tool_recall")}


@declares(_metrics)
def tool_selection(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    run: RunView | None = None,
    *,
    key: str | None = None,
) -> list[Score] | None:
    """F1 of the tools that were called against those that were wanted, 0 to 1; the comment has what differs.

    Beside it `tool_precision` (of the calls that were made, the share that was wanted) and `tool_recall` (of the calls
    that were wanted, the share that was made). A tool that is wanted twice counts twice. None without wanted calls in
    the reference (its `tool_calls`, `messages`, or the field `key`). Where none are wanted and none are made, all three
    are 1; where there are calls on one side only, all three are 0. It cannot see what the tools were called with, nor
    in which order, nor what they gave.
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
    lacks, extra = wanted - made, made - wanted
    says = [f"not called: {', '.join(lacks.elements())}"] if lacks else []
    says += [f"not wanted: {', '.join(extra.elements())}"] if extra else []
    return "; ".join(says) or None
