from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.agents.arguments import Rule, rule
from evaluators.agents.pairs import paired
from evaluators.agents.trajectory import expected_calls, read_trajectory
from evaluators.direction import declares, share
from evaluators.score import Score
from evaluators.subject import RunView
from specs.errors import short


@declares(share)
def tool_arguments(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    run: RunView | None = None,
    *,
    arguments: Rule = "exact",
    tools: Sequence[Mapping[str, Any]] | None = None,
    extra_calls: str = "wrong",
    key: str | None = None,
) -> Score | None:
    """How right the calls are, names and arguments, 0 to 1; the comment has those that are not.

    Each wanted call is paired with a made one of its name, so that the pairs are right the most together, whatever the
    order. Their sum is divided by the number of the wanted calls or of the made ones, whichever is larger; with
    `extra_calls` "ignored" by that of the wanted ones, where there are any. How right a pair is, `arguments` says:

    - exact: 1 where all arguments are equal, else 0. 1 is 1.0, and not "1"; lists and mappings are compared deeply.
    - per_argument: of all arguments that either has, the share that both have, and equal.
    - types: the same share, of arguments whose JSON types are equal. With `tools` (name and parameters, or OpenAI's
      form) the types are the schema's and its required arguments are the needed ones, and without wanted calls in the
      reference all that were made are judged.
    - allowed: 1 or 0, where the reference has a list of allowed values for each argument, as the Berkeley Function
      Calling Leaderboard (BFCL) publishes it. "" or null in the list: the argument may be left out. Mappings within
      have lists of allowed values too. Texts are equal but for case, kind of quotes, spaces and , . / - _ * ^

    None without wanted calls in the reference. No call where none is wanted is 1. Arguments that are no JSON object
    match nothing. It cannot see the order, nor what a call gave, nor that another value would have done as well; by
    types it sees nothing within lists and mappings, and by allowed values it takes "-1.5" for "15", the texts.
    """
    right = rule(arguments, tools)
    if extra_calls not in ("wrong", "ignored"):
        raise ValueError(f"extra_calls: got {short(extra_calls)}, wanted wrong or ignored")
    made = read_trajectory(outputs, inputs, run).tool_calls
    wanted = expected_calls(reference_outputs, key, inputs)
    if wanted is None:
        if tools is None or not made:
            return None
        wanted = made
    found = paired(wanted, made, right)
    extra = extra_calls == "wrong" or not wanted
    most = max(len(wanted), len(made)) if extra else len(wanted)
    return Score(value=found.total / most if most else 1.0, comment=found.faults(extra=extra))
