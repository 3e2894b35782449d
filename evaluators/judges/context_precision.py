"""Judge whether the retrieved passages that are of use stand first."""

from collections.abc import Sequence
from typing import Any

from evalflows.evaluators.declarations import declares, needs_reference, share
from evalflows.evaluators.judged_items import Numbered
from evalflows.evaluators.judging import Temperature, ask
from evalflows.evaluators.paths import path_roots, reference_value, retrieved
from evalflows.evaluators.prompt_texts import numbered, question, reference, shipped
from evalflows.evaluators.score import Score
from evalflows.specs.protocols import Complete

PROMPT = shipped("context_precision")

_VERDICTS = Numbered(title="context_precision", noun="contexts", entries="verdicts", verdict="useful")


@declares(share)
@needs_reference
async def context_precision(
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
    """Whether the useful contexts come first: their average precision, 0 to 1.

    The model says for each context, in rank order, whether it was useful for the reference answer; the score is their
    `average_precision`. The comment names the ranks of the useful contexts, the metadata has all verdicts. The answer
    itself does not matter. `context` is a path as for `faithfulness`, to a list with the best first; `key` names the
    reference's field if several are left. An empty list is 0 without a call.

    None if the example has no reference or no context. If the number of verdicts is not the number of contexts, the
    model is asked again. Raise ValueError for two verdicts on one context, and for outputs without the field that
    `context` names. A connection with `answer_form: text` cannot give a list: each judgement fails (bad_request). It
    cannot see useful contexts that were not retrieved (see `context_recall`), nor that several say the same, and is
    only as good as its model.
    """
    material = retrieved(context, path_roots(inputs, outputs, reference_outputs, metadata))
    if material.contexts is None or reference_value(material.reference_outputs, key) is None:
        return None
    if not material.contexts:
        return Score(value=0.0, comment="there is no context")
    texts = {
        "inputs": question(material.inputs),
        "reference_outputs": reference(material.reference_outputs, key),
        "contexts": numbered("Context", material.contexts),
    }
    count = len(material.contexts)
    reply = await ask(
        complete,
        prompt,
        texts,
        _VERDICTS.schema(reasoning, count),
        needed=("reference_outputs", "contexts"),
        temperature=temperature,
    )
    verdicts = _VERDICTS.in_order(reply, count)
    useful = [bool(verdict[_VERDICTS.verdict]) for verdict in verdicts]
    return Score(
        value=average_precision(useful),
        comment=_comment(useful),
        metadata={"verdicts": [dict(verdict) for verdict in verdicts]},
        prompt_hash=_VERDICTS.hash_of(prompt, reasoning),
    )


def average_precision(useful: Sequence[bool]) -> float:
    """Return the mean, over the ranks k of the useful elements, of the precision at k.

    AP = 1/R * sum over k of P(k) * useful(k), where P(k) is the share of useful elements among the first k, and R is
    the number of useful elements in the list. It is 1 if they all come first, and 0 if there are none. (Manning,
    Raghavan, Schuetze: Introduction to Information Retrieval, 2008, section 8.4; there R also counts useful elements
    that were not retrieved, which are not known here.)
    """
    ranks = [rank for rank, is_useful in enumerate(useful, start=1) if is_useful]
    return sum(count / rank for count, rank in enumerate(ranks, start=1)) / len(ranks) if ranks else 0.0


def _comment(useful: Sequence[bool]) -> str:
    ranks = [str(rank) for rank, is_useful in enumerate(useful, start=1) if is_useful]
    return f"useful: {', '.join(ranks) or 'none'} of {len(useful)}"
