from typing import Any

from evaluators.answer import reference_value
from evaluators.asking import Temperature, ask, numbered, question, reference, shipped
from evaluators.direction import declares, share
from evaluators.judges.context import retrieved, sides_of
from evaluators.judges.listing import Listing
from evaluators.score import Score
from specs.protocols import Complete

PROMPT = shipped("context_recall")

_STATEMENTS = Listing(title="context_recall", entries="statements", text="statement", verdict="supported")


@declares(share)
async def context_recall(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    metadata: dict[str, Any] | None,
    complete: Complete,
    *,
    context: str = "inputs.context",
    key: str | None = None,
    prompt: str = PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score | None:
    """The share of the reference's statements that the context supports: supported / all, 0 to 1.

    What the answer says does not matter: it is about what was retrieved. The model lists each statement with its
    verdict; the comment names those that are not supported, the metadata has all. `context` is a path as for
    `faithfulness`; `key` names the reference's field, where several are left. An empty list of contexts is 0, and
    nothing is called.

    None where the example has no reference or no context, and where the reference states nothing. Raises ValueError for
    outputs without the field that `context` names. A connection with `answer_form: text` cannot give a list: each
    judgement fails (bad_request). It cannot see whether the reference is right, nor how much useless text the context
    holds (that is `context_precision`), and is as good as its model.
    """
    found = retrieved(context, sides_of(inputs, outputs, reference_outputs, metadata))
    if found.contexts is None or reference_value(found.reference_outputs, key) is None:
        return None
    if not found.contexts:
        return Score(value=0.0, comment="there is no context")
    texts = {
        "inputs": question(found.inputs),
        "reference_outputs": reference(found.reference_outputs, key),
        "context": numbered("Context", found.contexts),
    }
    asked = await ask(
        complete,
        prompt,
        texts,
        _STATEMENTS.schema(reasoning),
        needed=("reference_outputs", "context"),
        temperature=temperature,
    )
    return _STATEMENTS.score(asked)
