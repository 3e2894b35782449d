from collections.abc import Sequence
from typing import Any

from evaluators.answer import reference_value
from evaluators.asking import Temperature, ask, numbered, question, reference, shipped
from evaluators.direction import declares, share
from evaluators.judges.context import retrieved, sides_of
from evaluators.judges.numbered import Numbered
from evaluators.score import Score
from specs.protocols import Complete

PROMPT = shipped("context_precision")

_VERDICTS = Numbered(title="context_precision", things="contexts", entries="verdicts", verdict="useful")


@declares(share)
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

    The model says of each context, in the order of their ranks, whether it was useful for the reference answer; the
    rest is reckoned by `average_precision`. The comment names the ranks of the useful ones, the metadata has all
    verdicts. What the answer says does not matter. `context` is a path as for `faithfulness`, to a list with the best
    first; `key` names the reference's field, where several are left. An empty list is 0, and nothing is called.

    None where the example has no reference or no context. Another number of verdicts than of contexts is a bad answer,
    which is asked for again; two verdicts on one context raise ValueError, and so do outputs without the field that
    `context` names. A connection with `answer_form: text` cannot give a list: each judgement fails (bad_request). It
    cannot see useful contexts that were not retrieved (that is `context_recall`), nor that several say the same, and is
    as good as its model.
    """
    found = retrieved(context, sides_of(inputs, outputs, reference_outputs, metadata))
    if found.contexts is None or reference_value(found.reference_outputs, key) is None:
        return None
    if not found.contexts:
        return Score(value=0.0, comment="there is no context")
    texts = {
        "inputs": question(found.inputs),
        "reference_outputs": reference(found.reference_outputs, key),
        "contexts": numbered("Context", found.contexts),
    }
    count = len(found.contexts)
    asked = await ask(
        complete,
        prompt,
        texts,
        _VERDICTS.schema(reasoning, count),
        needed=("reference_outputs", "contexts"),
        temperature=temperature,
    )
    verdicts = _VERDICTS.in_order(asked, count)
    useful = [bool(verdict[_VERDICTS.verdict]) for verdict in verdicts]
    return Score(
        value=average_precision(useful),
        comment=_comment(useful),
        metadata={"verdicts": [dict(verdict) for verdict in verdicts]},
        prompt_hash=_VERDICTS.hash_of(prompt, reasoning),
    )


def average_precision(useful: Sequence[bool]) -> float:
    """The mean, over the ranks k of the useful elements, of the share of useful ones among the first k.

    AP = 1/R * sum over k of P(k) * useful(k), where P(k) is the number of useful elements among the first k, by k, and
    R is the number of all useful ones in the list: 1 where they all come first, 0 where there is none. (Manning,
    Raghavan, Schuetze: Introduction to Information Retrieval, 2008, section 8.4; there R also counts what was not
    retrieved, which is not known here.)
    """
    ranks = [rank for rank, is_useful in enumerate(useful, start=1) if is_useful]
    return sum(place / rank for place, rank in enumerate(ranks, start=1)) / len(ranks) if ranks else 0.0


def _comment(useful: Sequence[bool]) -> str:
    ranks = [str(rank) for rank, is_useful in enumerate(useful, start=1) if is_useful]
    return f"useful: {', '.join(ranks) or 'none'} of {len(useful)}"
