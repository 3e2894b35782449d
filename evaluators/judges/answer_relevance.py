"""Judge whether an answer keeps to the question."""

from dataclasses import replace
from typing import Any

from evalflows.evaluators.declarations import declares, share
from evalflows.evaluators.judged_items import Listing
from evalflows.evaluators.judging import Temperature, ask
from evalflows.evaluators.paths import answer_text
from evalflows.evaluators.prompt_texts import answer, question, shipped
from evalflows.evaluators.score import Score
from evalflows.specs.protocols import Complete

PROMPT = shipped("answer_relevance")

_STATEMENTS = Listing(title="answer_relevance", entries="statements", text="statement", verdict="relevant")


@declares(share)
async def answer_relevance(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    key: str | None = None,
    prompt: str = PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score:
    """The share of the answer's statements that address the question, 0 to 1; an evasive answer is 0.

    The model lists the statements and whether each is relevant, then says whether the answer as a whole evades the
    question. The comment names the irrelevant statements; the metadata has all of them, and `evasive`. An answer that
    states nothing is 0; an answer without text is 0 without a call. `key` names the answer's field. A connection with
    `answer_form: text` cannot give a list: each judgement fails (bad_request). It cannot see whether the answer is
    right, nor which part of the question is left open, and is only as good as its model.
    """
    if not answer_text(outputs, key).strip():
        return Score(value=0.0, comment="the answer is empty")
    reply = await ask(
        complete,
        prompt,
        {"inputs": question(inputs), "outputs": answer(outputs, key)},
        _STATEMENTS.schema(reasoning, evasive={"type": "boolean"}),
        needed=("inputs", "outputs"),
        temperature=temperature,
    )
    score = _STATEMENTS.score(reply) or Score(
        value=0.0, comment="the answer states nothing", prompt_hash=reply.prompt_hash
    )
    evasive = bool(reply.verdict["evasive"])
    score = replace(score, metadata={**(score.metadata or {}), "evasive": evasive})
    return replace(score, value=0.0, comment=f"evasive; {score.comment}") if evasive else score
