from collections import Counter
from typing import Any

from evalflows.evaluators.agents.trajectory import expected_calls, read_trajectory
from evalflows.evaluators.direction import declares, needs_reference, share
from evalflows.evaluators.score import Score
from evalflows.evaluators.subject import RunView


@declares(share)
@needs_reference
def step_efficiency(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    run: RunView | None = None,
    *,
    key: str | None = None,
) -> Score | None:
    """The expected number of steps divided by the actual number, at most 1; a step is a tool call.

    The expected number is that of the reference's calls (`tool_calls`, `messages`, or the field `key`), or the field
    `key` itself if it is a whole number. None without it. The score is 0 if none of the expected tools was called,
    since doing nothing is not efficient, and if calls were made but none was expected. It is 1 if no call was expected
    and none was made. It cannot see whether the task was done: an agent that stops half way has taken few steps. Read
    it together with `tool_selection` and `final_answer`.
    """
    actual = Counter(call.name for call in read_trajectory(outputs, inputs, run).tool_calls)
    count = None if key is None else (reference_outputs or {}).get(key)
    if isinstance(count, int) and not isinstance(count, bool):
        n_expected, any_expected = _counted(key, count), actual.total() > 0
    else:
        calls = expected_calls(reference_outputs, key, inputs)
        if calls is None:
            return None
        expected = Counter(call.name for call in calls)
        n_expected, any_expected = expected.total(), (actual & expected).total() > 0
    comment = f"{actual.total()} steps, {n_expected} wanted"
    if n_expected == actual.total() == 0:
        return Score(value=1.0, comment=comment)
    return Score(value=min(1.0, n_expected / actual.total()) if any_expected else 0.0, comment=comment)


def _counted(key: str | None, count: int) -> int:
    if count < 0:
        raise ValueError(f"reference: {key}: got {count}, wanted at least 0 steps")
    return count
