from collections.abc import Mapping, Sequence
from typing import Any

from evalflows.evaluators.asking import Temperature, shipped
from evalflows.evaluators.conversations.messages import conversation
from evalflows.evaluators.conversations.show import shown_within, with_texts_replaced
from evalflows.evaluators.direction import declares, on_the_scale
from evalflows.evaluators.rubric import rubric as by_rubric
from evalflows.evaluators.score import Score
from evalflows.evaluators.settings import checked_count
from evalflows.evaluators.sheet import SCALE, Combine, Reasoning
from evalflows.specs.protocols import Complete

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
    """How well a whole conversation meets a rubric, as judged by a model. Higher is better.

    This is the evaluator `rubric` applied to the whole conversation, with the same settings `rubric`, `criteria`,
    `scale`, `labels`, `reasoning`, `temperature`, `repeats` and `combine`. A custom `prompt` uses {outputs} (the
    conversation), {rubric} and {scale}. With `budget_tokens` only the system messages and the newest exchanges that fit
    are shown, and the prompt says how many messages are left out; without it, everything is shown.

    None if neither inputs nor outputs have messages. Raise ValueError for an invalid setting, and if the outputs have
    no turn. It cannot see which turns were already in the inputs: they are judged with the others, so use
    `turn_quality` for conversations that the target only continues. Nor can it see the target's own system message,
    images and files, or what the user would have said to other answers.
    """
    dialogue = conversation(inputs, outputs)
    if dialogue is None:
        return None
    dialogue.judged(given=False)
    budget = None if budget_tokens is None else checked_count("budget_tokens", budget_tokens)
    return await by_rubric(
        {},
        {"output": _WHOLE},
        None,
        None,
        with_texts_replaced(complete, {_WHOLE: shown_within(dialogue, len(dialogue.messages), budget)}),
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
