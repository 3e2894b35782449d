from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.asking import Temperature, shipped
from evaluators.conversations.messages import conversation
from evaluators.conversations.show import in_place_of, shown_within
from evaluators.direction import declares, on_the_scale
from evaluators.rubric import rubric as by_rubric
from evaluators.score import Score
from evaluators.settings import a_count
from evaluators.sheet import SCALE, Combine, Reasoning
from specs.protocols import Complete

PROMPT = shipped("conversation")
GOOD_CONVERSATION = (
    "In a good conversation the user gets in the end what he or she came for, in no more turns than that takes. The "
    "assistant keeps to one line from beginning to end, does not contradict itself, takes up what the user said and "
    "corrected, keeps what it promised, and owns up to what it cannot do."
)
_WHOLE = "the whole conversation"


@declares(on_the_scale)
async def conversation_quality(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    rubric: str = GOOD_CONVERSATION,
    criteria: Mapping[str, Mapping[str, Any] | str | None] | None = None,
    scale: Sequence[int] = SCALE,
    labels: Sequence[str] | Mapping[str, float] | None = None,
    prompt: str = PROMPT,
    budget_tokens: int | None = None,
    reasoning: Reasoning = "before",
    temperature: Temperature = "auto",
    repeats: int = 1,
    combine: Combine | None = None,
) -> Score | list[Score] | None:
    """How well a model finds that a whole conversation meets a rubric. Higher is better.

    It is the evaluator `rubric` on the conversation as one: `rubric`, `criteria`, `scale`, `labels`, `reasoning`,
    `temperature`, `repeats` and `combine` are the same. A `prompt` of your own asks for {outputs}, the conversation,
    and for {rubric} and {scale}. With `budget_tokens` only the system messages and the newest exchanges that fit are
    shown, and the prompt says how many messages are left out; without, all of it.

    None where neither inputs nor outputs hold messages. Raises ValueError for a setting that cannot be used, and where
    the outputs hold no turn. It cannot see which turns the inputs held already: these are judged with the others, so a
    conversation that is only continued is better judged by `turn_quality`. Nor can it see the system message of a
    target that keeps it to itself, images and files, nor what the user would have said to other answers.
    """
    found = conversation(inputs, outputs)
    if found is None:
        return None
    found.judged(given=False)
    budget = None if budget_tokens is None else a_count("budget_tokens", budget_tokens)
    return await by_rubric(
        {},
        {"output": _WHOLE},
        None,
        None,
        in_place_of(complete, {_WHOLE: shown_within(found, len(found.messages), budget)}),
        rubric=rubric,
        prompt=prompt,
        criteria=criteria,
        scale=scale,
        labels=labels,
        reasoning=reasoning,
        temperature=temperature,
        repeats=repeats,
        combine=combine,
    )
