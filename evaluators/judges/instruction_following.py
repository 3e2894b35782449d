"""Judge whether an answer follows its instructions."""

from collections.abc import Sequence
from typing import Any

from evalflows.evaluators.declarations import declares, share
from evalflows.evaluators.judged_items import Item, Listing, Numbered
from evalflows.evaluators.judging import Temperature, ask
from evalflows.evaluators.prompt_texts import answer, question, shipped
from evalflows.evaluators.score import Score
from evalflows.evaluators.settings import checked_text
from evalflows.specs.errors import short
from evalflows.specs.protocols import Complete

PROMPT = shipped("instruction_following")

_INSTRUCTIONS = Listing(title="instruction_following", entries="instructions", text="instruction", verdict="followed")
_GIVEN = Numbered(
    title="instruction_following", noun="instructions", entries="instructions", verdict=_INSTRUCTIONS.verdict
)


@declares(share)
async def instruction_following(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    instructions: str | Sequence[str] | None = None,
    key: str | None = None,
    prompt: str = PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score | None:
    """The share of the instructions that the answer follows completely, 0 to 1; the comment names the others.

    The model lists the instructions of the input, each with its verdict; the metadata has all. With `instructions` (a
    text, or a list of texts) only these are judged, by number, instead of those in the input. `key` names the answer's
    field. None if the input gives no instruction. If the number of verdicts is not that of `instructions`, the model is
    asked again. Raise ValueError for two verdicts on one instruction.

    A connection with `answer_form: text` cannot give a list: each judgement fails (bad_request). It cannot count words
    or lines reliably (a rule such as `length_between` or `regex` can), cannot see whether the answer is right, and is
    only as good as its model.
    """
    given = _given(instructions)
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(given, start=1))
    of_the_input = "Those that the input gives: find and list them all. If it gives none, the list is empty."
    reply = await ask(
        complete,
        prompt,
        {"inputs": question(inputs), "outputs": answer(outputs, key)},
        _GIVEN.schema(reasoning, len(given)) if given else _INSTRUCTIONS.schema(reasoning),
        needed=("outputs", "instructions"),
        temperature=temperature,
        spec_texts={"instructions": listed or of_the_input},
    )
    if not given:
        return _INSTRUCTIONS.score(reply)
    entries = [_named(*pair) for pair in zip(given, _GIVEN.in_order(reply, len(given)), strict=True)]
    return _INSTRUCTIONS.score_of(entries, _GIVEN.hash_of(prompt, reasoning, listed))


def _named(instruction: str, verdict: Item) -> Item:
    """Add the text of the instruction to a verdict."""
    return {"number": verdict["number"], _INSTRUCTIONS.text: instruction, **verdict}


def _given(instructions: Any) -> list[str]:
    if instructions is None:
        return []
    listed = instructions if isinstance(instructions, list | tuple) else [instructions]
    if not listed:
        raise ValueError(f"instructions: got {short(instructions)}, wanted a text, or a list of at least one")
    return [checked_text("instructions", instruction) for instruction in listed]
