from typing import Any, Literal

from evaluators.agents.trajectory import answer_of
from evaluators.contains import contains
from evaluators.direction import declares, share
from evaluators.exact_match import exact_match
from evaluators.numeric_closeness import numeric_closeness
from evaluators.score import Score
from specs.errors import short

How = Literal["exact", "contains", "number"]


@declares(share)
def final_answer(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    how: How = "exact",
    ignore_case: bool = False,
    key: str | None = None,
) -> Score | None:
    """Whether the agent's final answer is the reference's: what it said in the end, whatever it did before.

    `how` is exact, as `exact_match` compares; contains: the reference, or each element of a list, occurs in the answer,
    as `contains` looks; number: the answer's last number is the reference's, as `numeric_closeness` reads. On both
    sides the answer is `final_answer`, else the assistant's last text in `messages` that comes without a call, else
    `output` or `answer`, else the only field; of the reference the field `key`, where that is given. None without an
    answer in the reference; no answer of the agent is wrong. It cannot see how the agent came by it, nor, by
    these rules, the same said in other words.
    """
    if how not in ("exact", "contains", "number"):
        raise ValueError(f"how: got {short(how)}, wanted one of exact, contains, number")
    held = reference_outputs or {}
    wanted = answer_of(held, inputs) if key is None else held.get(key)
    if wanted is None:
        return None
    answer = answer_of(outputs, inputs)
    if answer is None:
        return Score(value=False, comment="no final answer")
    made, reference = {"output": answer}, {"output": wanted}
    if how == "number":
        return numeric_closeness(made, reference)
    if how == "contains":
        found = contains(made, reference, ignore_case=ignore_case)
    else:
        found = exact_match(made, reference, ignore_case=ignore_case)
    return None if found is None else Score(value=found)
