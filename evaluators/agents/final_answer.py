"""Whether an agent's last answer is that of the reference."""

from typing import Any, Literal

from evalflows.evaluators.agents.trajectory import answer_of
from evalflows.evaluators.declarations import declares, needs_reference, share
from evalflows.evaluators.numbers import numeric_closeness
from evalflows.evaluators.score import Score
from evalflows.evaluators.text import contains, exact_match, why_not_contained, why_not_equal
from evalflows.specs.errors import short

How = Literal["exact", "contains", "number"]


@declares(share)
@needs_reference
def final_answer(
    inputs: dict[str, Any] | None,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    how: How = "exact",
    ignore_case: bool = False,
    key: str | None = None,
) -> Score | None:
    """Whether the agent's final answer matches the reference's, whatever the agent did before.

    `how` is exact, as in `exact_match`; contains: the reference, or each element of a list, occurs in the answer, as in
    `contains`; number: the answer's last number is the reference's, as in `numeric_closeness`. On both sides the answer
    is `final_answer`, else the assistant's last text without a call in `messages`, else `output` or `answer`, else the
    only field; with `key`, the reference's answer is that field. None if the reference has no answer; a missing answer
    of the agent is wrong. It cannot see how the agent reached its answer, nor recognise a paraphrase.
    """
    if how not in ("exact", "contains", "number"):
        raise ValueError(f"how: got {short(how)}, wanted one of exact, contains, number")
    fields = reference_outputs or {}
    expected = answer_of(fields, inputs) if key is None else fields.get(key)
    if expected is None:
        return None
    answer = answer_of(outputs, inputs)
    if answer is None:
        return Score(value=False, comment="no final answer")
    output, reference = {"output": answer}, {"output": expected}
    if how == "number":
        return numeric_closeness(output, reference)
    if how == "contains":
        matches = contains(output, reference, ignore_case=ignore_case)
        comment = None if matches else why_not_contained(output, reference, ignore_case=ignore_case)
    else:
        matches = exact_match(output, reference, ignore_case=ignore_case)
        comment = None if matches else why_not_equal(output, reference)
    return None if matches is None else Score(value=matches, comment=comment)
