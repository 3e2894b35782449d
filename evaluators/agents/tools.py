"""Rules about an agent's tools: which it called, with which arguments, in which order, and in how many steps."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from evalflows.evaluators.agents.trajectory import (
    Call,
    CallScore,
    Numbers,
    Rule,
    expected_calls,
    paired,
    read_trajectory,
    rule,
    tools_of,
)
from evalflows.evaluators.declarations import Direction, declares, needs_reference, share, zero_to_one
from evalflows.evaluators.score import Score
from evalflows.evaluators.views import RunView
from evalflows.specs.errors import short

Mode = Literal["strict", "unordered", "subset", "superset"]


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


@declares(share)
@needs_reference
def tool_arguments(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    run: RunView | None = None,
    metadata: dict[str, Any] | None = None,
    *,
    arguments: Rule = "exact",
    tools: Sequence[Mapping[str, Any]] | str | None = None,
    numbers: Numbers = "equal",
    extra_calls: str = "wrong",
    key: str | None = None,
) -> Score | None:
    """How correct the calls are, names and arguments, 0 to 1; the comment lists what is wrong.

    Each expected call is paired with an actual call of the same tool so that the total score is largest, whatever the
    order. The total is divided by the number of expected or of actual calls, whichever is larger; with `extra_calls`
    "ignored" by the number of expected calls, if there are any. `arguments` says how a pair is scored:

    - exact: 1 if all arguments are equal, else 0. 1 equals 1.0, but not "1"; lists and mappings are compared deeply.
    - per_argument: the share of all arguments of either call that both have and that are equal.
    - types: the same share for arguments with equal JSON types. With `tools` (name and parameters, or OpenAI's format;
      or the path to the example's own, such as inputs.tools or metadata.tools) the types and the required arguments
      come from the schema, and if the reference has no calls, all actual calls are judged.
    - allowed: 1 or 0; the reference has a list of allowed values for each argument, as published by the Berkeley
      Function Calling Leaderboard (BFCL). "" or null in the list makes the argument optional. Nested mappings have
      lists of allowed values too. Texts are compared without case, kind of quotes, spaces and , . / - _ * ^

    `numbers` "strict" tells integers from floats inside arrays, as BFCL does: [1, 2] is then neither [1.0, 2.0] nor an
    array of floats in a tool's schema. An argument that is itself a number is compared by value.

    None without calls in the reference, and without the field that `tools` names. If no call is expected and none is
    made, the score is 1. Arguments that are not a JSON object match nothing. It cannot see the order, nor what a call
    returned, nor that another value is also right; `types` ignores the content of lists (unless strict) and mappings,
    and `allowed` treats the texts "-1.5" and "15" as equal.
    """
    given = tools_of(tools, inputs, metadata)
    if given is None and tools is not None:
        return None
    score_call = rule(arguments, given, numbers)
    if extra_calls not in ("wrong", "ignored"):
        raise ValueError(f"extra_calls: got {short(extra_calls)}, wanted wrong or ignored")
    actual = read_trajectory(outputs, inputs, run).tool_calls
    expected = expected_calls(reference_outputs, key, inputs)
    if expected is None:
        if given is None or not actual:
            return None
        expected = actual
    pairing = paired(expected, actual, score_call)
    extra = extra_calls == "wrong" or not expected
    most = max(len(expected), len(actual)) if extra else len(expected)
    comment = pairing.faults(None if given is not None else arguments, extra=extra)
    return Score(value=pairing.total / most if most else 1.0, comment=comment)


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
