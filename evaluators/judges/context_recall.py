"""Judge whether what the reference says was retrieved."""

from typing import Any

from evalflows.evaluators.declarations import declares, needs_reference, share
from evalflows.evaluators.judged_items import Listing
from evalflows.evaluators.judging import Temperature, ask
from evalflows.evaluators.paths import path_roots, reference_value, retrieved
from evalflows.evaluators.prompt_texts import numbered, question, reference, shipped
from evalflows.evaluators.score import Score
from evalflows.specs.protocols import Complete

PROMPT = shipped("context_recall")

_STATEMENTS = Listing(title="context_recall", entries="statements", text="statement", verdict="supported")


@declares(share)
@needs_reference
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

    It judges the retrieval; the answer itself does not matter. The model lists each statement with its verdict; the
    comment names the unsupported statements, the metadata has all. `context` is a path as for `faithfulness`; `key`
    names the reference's field if several are left. An empty list of contexts is 0 without a call.

    None if the example has no reference or no context, and if the reference states nothing. Raise ValueError for
    outputs without the field that `context` names. A connection with `answer_form: text` cannot give a list: each
    judgement fails (bad_request). It cannot see whether the reference is right, nor how much useless text the context
    contains (see `context_precision`), and is only as good as its model.
    """
    material = retrieved(context, path_roots(inputs, outputs, reference_outputs, metadata))
    if material.contexts is None or reference_value(material.reference_outputs, key) is None:
        return None
    if not material.contexts:
        return Score(value=0.0, comment="there is no context")
    texts = {
        "inputs": question(material.inputs),
        "reference_outputs": reference(material.reference_outputs, key),
        "context": numbered("Context", material.contexts),
    }
    reply = await ask(
        complete,
        prompt,
        texts,
        _STATEMENTS.schema(reasoning),
        needed=("reference_outputs", "context"),
        temperature=temperature,
    )
    return _STATEMENTS.score(reply)
