from typing import Any

from evaluators.answer import reference_value
from evaluators.asking import Temperature, ask, shipped, shown
from evaluators.direction import declares, share
from evaluators.score import Score
from evaluators.sheet import verdict_schema
from specs.protocols import Complete

PROMPT = shipped("correctness")


@declares(share)
async def correctness(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    complete: Complete,
    *,
    prompt: str = PROMPT,
    instructions: str = "",
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score | None:
    """Whether a model finds that the answer says what the reference says; the comment is its reasoning.

    None without a reference. `instructions` are added to the prompt; a `prompt` of your own asks for {inputs},
    {outputs}, {reference_outputs}, {instructions}. Without `reasoning` the verdict alone is asked for: quicker,
    cheaper, and worse. A `temperature` of None leaves it to the model. What it says is as good as the model: compare it
    with people before you rely on it. It cannot see whether the reference is right, and an answer may still talk a
    weak model round.
    """
    if reference_value(reference_outputs, None) is None:
        return None
    asked = await ask(
        complete,
        prompt,
        shown(inputs, outputs, reference_outputs),
        verdict_schema("correctness", {"correct": {"type": "boolean"}}, "before" if reasoning else "none"),
        needed=("outputs", "reference_outputs"),
        temperature=temperature,
        said={"instructions": instructions},
    )
    verdict = asked.verdict
    return Score(value=verdict["correct"], comment=verdict.get("reasoning"), prompt_hash=asked.prompt_hash)
