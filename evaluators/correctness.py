from pathlib import Path
from typing import Any

from evaluators.answer import answer_text, reference_value
from evaluators.fence import fenced
from evaluators.prompt import check_prompt, prompt_hash
from evaluators.score import Score
from specs.protocols import Complete
from specs.template import fill

PROMPT = (Path(__file__).parent / "prompts" / "correctness.md").read_text(encoding="utf-8")


async def correctness(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    complete: Complete,
    *,
    prompt: str = PROMPT,
    instructions: str = "",
    reasoning: bool = True,
    temperature: float | None = 0.0,
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
    sides = {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs}
    parts = {name: fenced(answer_text(side or {}, None)) for name, side in sides.items()}
    check_prompt(prompt, [*parts, "instructions"], needed=[["outputs"], ["reference_outputs"]])
    request = fill(prompt, parts | {"instructions": instructions})
    parameters: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    schema = _schema(reasoning)
    verdict = (await complete(request, schema=schema, **parameters)).parsed
    asked_with = prompt_hash(prompt, instructions, schema)
    return Score(value=verdict["correct"], comment=verdict.get("reasoning"), prompt_hash=asked_with)


def _schema(reasoning: bool) -> dict[str, Any]:
    """The reasoning comes first, so that the verdict follows from it."""
    fields = ({"reasoning": {"type": "string"}} if reasoning else {}) | {"correct": {"type": "boolean"}}
    return {
        "title": "correctness",
        "type": "object",
        "properties": fields,
        "required": [*fields],
        "additionalProperties": False,
    }
