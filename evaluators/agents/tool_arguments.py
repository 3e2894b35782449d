from collections.abc import Mapping, Sequence
from typing import Any

from evalflows.evaluators.agents.arguments import Numbers, Rule, rule, tools_of
from evalflows.evaluators.agents.pairs import paired
from evalflows.evaluators.agents.trajectory import expected_calls, read_trajectory
from evalflows.evaluators.direction import declares, needs_reference, share
from evalflows.evaluators.score import Score
from evalflows.evaluators.subject import RunView
from evalflows.specs.errors import short


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
    """How correct the calls are, names and arguments, 0 to 1; the comment lists the wrong ones.

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
    return Score(value=pairing.total / most if most else 1.0, comment=pairing.faults(extra=extra))
