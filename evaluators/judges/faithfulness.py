from dataclasses import replace
from typing import Any

from evaluators.answer import answer_text
from evaluators.asking import Asked, Temperature, answer, ask, numbered, question, shipped
from evaluators.direction import declares, share
from evaluators.judges.context import retrieved, sides_of
from evaluators.judges.listing import Listing
from evaluators.score import Score
from specs.protocols import Complete

PROMPT = shipped("faithfulness")

_CLAIMS = Listing(title="faithfulness", entries="claims", text="claim", verdict="supported")


@declares(share)
async def faithfulness(
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
    """The share of the answer's claims that the context supports: supported / all, 0 to 1.

    The model lists each claim with its verdict; the comment names those that are not supported, the metadata has all.
    `context` is a dotted path into inputs, outputs, reference_outputs or metadata, to a text or a list of texts (into a
    list of mappings, `outputs.documents.text` takes the field of each, and the whole list is context); what it names is
    left out of the question and the answer. `key` names the answer's field, where several are left.

    None where the example has no context, and where the answer makes no claim ("I do not know"). By an empty list of
    contexts no claim is supported, whatever the model says: it is asked for the claims. Raises ValueError for outputs
    without the field that `context` names. A connection with `answer_form: text` cannot give a list: each judgement
    fails (bad_request). It cannot see whether the context is right, nor what the answer leaves out, and is as good as
    its model.
    """
    found = retrieved(context, sides_of(inputs, outputs, reference_outputs, metadata))
    if found.contexts is None or not found.outputs or not answer_text(found.outputs, key).strip():
        return None
    texts = {
        "inputs": question(found.inputs),
        "outputs": answer(found.outputs, key),
        "context": numbered("Context", found.contexts),
    }
    asked = await ask(
        complete,
        prompt,
        texts,
        _CLAIMS.schema(reasoning),
        needed=("outputs", "context"),
        temperature=temperature,
    )
    return _CLAIMS.score(asked if found.contexts else _unsupported(asked))


def _unsupported(asked: Asked) -> Asked:
    """The claims as the model lists them; that nothing supports them is known."""
    claims = [{**claim, _CLAIMS.verdict: False} for claim in asked.verdict[_CLAIMS.entries]]
    return replace(asked, verdict={**asked.verdict, _CLAIMS.entries: claims})
