"""Judge whether what an answer claims is in the context."""

from dataclasses import replace
from typing import Any

from evalflows.evaluators.declarations import declares, share
from evalflows.evaluators.judged_items import Listing
from evalflows.evaluators.judging import JudgeReply, Temperature, ask
from evalflows.evaluators.paths import answer_text, path_roots, retrieved
from evalflows.evaluators.prompt_texts import answer, numbered, question, shipped
from evalflows.evaluators.score import Score
from evalflows.specs.protocols import Complete

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

    The model lists each claim with its verdict; the comment names the unsupported claims, the metadata has all.
    `context` is a dotted path into inputs, outputs, reference_outputs or metadata, to a text or a list of texts (for a
    list of mappings, `outputs.documents.text` takes the field of each, and the whole list is context); it is left out
    of the question and the answer. `key` names the answer's field if several are left.

    None if the example has no context, and if the answer makes no claim ("I do not know"). With an empty list of
    contexts no claim is supported; the model only lists the claims. Raise ValueError for outputs without the field that
    `context` names. A connection with `answer_form: text` cannot give a list: each judgement fails (bad_request). It
    cannot see whether the context is right, nor what the answer leaves out, and is only as good as its model.
    """
    material = retrieved(context, path_roots(inputs, outputs, reference_outputs, metadata))
    if material.contexts is None or not material.outputs or not answer_text(material.outputs, key).strip():
        return None
    texts = {
        "inputs": question(material.inputs),
        "outputs": answer(material.outputs, key),
        "context": numbered("Context", material.contexts),
    }
    reply = await ask(
        complete,
        prompt,
        texts,
        _CLAIMS.schema(reasoning),
        needed=("outputs", "context"),
        temperature=temperature,
    )
    return _CLAIMS.score(reply if material.contexts else _unsupported(reply))


def _unsupported(reply: JudgeReply) -> JudgeReply:
    """Return the claims that the model lists, all marked as unsupported, since there is no context."""
    claims = [{**claim, _CLAIMS.verdict: False} for claim in reply.verdict[_CLAIMS.entries]]
    return replace(reply, verdict={**reply.verdict, _CLAIMS.entries: claims})
