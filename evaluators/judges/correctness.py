"""Judge whether an answer says what its reference says."""

from typing import Any

from evalflows.evaluators.declarations import declares, needs_reference, share
from evalflows.evaluators.judging import Temperature, ask
from evalflows.evaluators.paths import reference_value
from evalflows.evaluators.prompt_texts import prompt_texts, shipped
from evalflows.evaluators.scales import verdict_schema
from evalflows.evaluators.score import Score
from evalflows.specs.protocols import Complete

PROMPT = shipped("correctness")


@declares(share)
@needs_reference
async def correctness(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    complete: Complete,
    *,
    key: str | None = None,
    prompt: str = PROMPT,
    instructions: str = "",
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score | None:
    """Whether the answer says what the reference says, as judged by a model; the comment is its reasoning.

    None without a reference. `key` is the field of the answer that is judged, and of a reference with several fields;
    by default the only field, else all of them. `instructions` are added to the prompt; a custom `prompt` uses
    {inputs}, {outputs}, {reference_outputs} and {instructions}. Without `reasoning` the model gives only the verdict,
    which is faster and cheaper but less accurate. A `temperature` of None uses the model's default. The judge is only
    as good as its model: validate it against people before you rely on it. It cannot see whether the reference is
    right, and an answer can still mislead a weak model.
    """
    if reference_value(reference_outputs, key) is None:
        return None
    reply = await ask(
        complete,
        prompt,
        prompt_texts(inputs, outputs, reference_outputs, key),
        verdict_schema("correctness", {"correct": {"type": "boolean"}}, "before" if reasoning else "none"),
        needed=("outputs", "reference_outputs"),
        temperature=temperature,
        spec_texts={"instructions": instructions},
    )
    verdict = reply.verdict
    return Score(value=verdict["correct"], comment=verdict.get("reasoning"), prompt_hash=reply.prompt_hash)
