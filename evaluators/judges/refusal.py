from typing import Any

from evaluators.asking import Temperature, answer, ask, question, shipped
from evaluators.direction import declares, fault
from evaluators.score import Score
from evaluators.sheet import verdict_schema
from specs.protocols import Complete

PROMPT = shipped("refusal")


@declares(fault)
async def refusal(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    key: str | None = None,
    prompt: str = PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score:
    """Whether the answer declines to do what was asked: 1 is a refusal, and less is better.

    An answer that does a part of it, with caveats or an apology, is none, and an empty one neither. The comment is the
    model's reasoning. `key` names the answer's field. Always applies. Where refusing is right (questions that should
    not be answered), declare `higher_is_better: true` under `metrics`. It cannot see whether a refusal was called for,
    nor that a question was answered badly on purpose, and is as good as its model.
    """
    schema = verdict_schema("refusal", {"refuses": {"type": "boolean"}}, "before" if reasoning else "none")
    texts = {"inputs": question(inputs), "outputs": answer(outputs, key)}
    asked = await ask(complete, prompt, texts, schema, needed=["inputs", "outputs"], temperature=temperature)
    return Score(value=asked.verdict["refuses"], comment=asked.verdict.get("reasoning"), prompt_hash=asked.prompt_hash)
