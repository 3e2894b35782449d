from collections.abc import Sequence
from typing import Any, Literal, get_args

from evalflows.evaluators.agents.arguments import CallScore, rule
from evalflows.evaluators.agents.calls import Call
from evalflows.evaluators.agents.pairs import paired
from evalflows.evaluators.agents.trajectory import expected_calls, read_trajectory
from evalflows.evaluators.direction import declares, needs_reference, share
from evalflows.evaluators.score import Score
from evalflows.evaluators.subject import RunView
from evalflows.specs.errors import short

Mode = Literal["strict", "unordered", "subset", "superset"]


@declares(share)
@needs_reference
def tool_order(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    run: RunView | None = None,
    *,
    mode: Mode = "strict",
    arguments: Literal["ignored", "exact", "types", "allowed"] = "ignored",
    key: str | None = None,
) -> Score | None:
    """Whether the actual calls match the expected calls in the given mode; if not, the comment lists both.

    `mode` is strict: the same calls in the same order; unordered: the same calls, each as often; subset: no call that
    is not expected; superset: all expected calls, and possibly others. If calls are expected but none is made, the
    score is false, also for subset. Calls are compared by name and, with `arguments`, also by their arguments: exact,
    types or allowed, as in `tool_arguments`. None without calls in the reference. It cannot see how close a wrong order
    is (one extra call makes strict false), nor whether the order matters.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode: got {short(mode)}, wanted one of {', '.join(get_args(Mode))}")
    same = _same(arguments)
    expected = expected_calls(reference_outputs, key, inputs)
    if expected is None:
        return None
    actual = read_trajectory(outputs, inputs, run).tool_calls
    holds = _holds(mode, expected, actual, same) and not (expected and not actual)
    return Score(value=holds, comment=None if holds else f"wanted {_names(expected)}; got {_names(actual)}")


def _same(arguments: str) -> CallScore:
    if arguments == "ignored":
        return lambda expected, actual: float(expected.name == actual.name)
    if arguments == "per_argument":
        raise ValueError("arguments: got 'per_argument', wanted one of ignored, exact, types, allowed")
    score_call = rule(arguments)
    return lambda expected, actual: float(score_call(expected, actual) == 1)


def _holds(mode: Mode, expected: Sequence[Call], actual: Sequence[Call], same: CallScore) -> bool:
    if mode == "strict":
        return len(expected) == len(actual) and all(map(same, expected, actual))
    pairs = len(paired(expected, actual, same).pairs)
    enough = {
        "unordered": pairs == len(expected) == len(actual),
        "subset": pairs == len(actual),
        "superset": pairs == len(expected),
    }
    return enough[mode]


def _names(calls: Sequence[Call]) -> str:
    return ", ".join(call.name for call in calls) or "no call"
