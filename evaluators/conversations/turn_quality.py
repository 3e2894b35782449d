import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from evalflows.evaluators.asking import Temperature, shipped
from evalflows.evaluators.conversations.messages import Conversation, conversation
from evalflows.evaluators.conversations.show import shown_messages, shown_within, with_texts_replaced
from evalflows.evaluators.conversations.weights import checked_weight, weights_of
from evalflows.evaluators.direction import declares, on_the_scale
from evalflows.evaluators.rubric import rubric as by_rubric
from evalflows.evaluators.score import Score
from evalflows.evaluators.settings import checked_count
from evalflows.evaluators.sheet import SCALE
from evalflows.specs.conversation import Turn
from evalflows.specs.protocols import Complete

PROMPT = shipped("turns")
GOOD_TURN = (
    "A good turn does what the user has just asked for, is right as far as that can be seen, agrees with all that was "
    "said before, and asks back where something that it needs is missing. It leaves nothing out that the user needs "
    "now, and adds nothing that the user does not."
)
_BEFORE, _TURN = "what came before", "the turn to judge"


@declares(on_the_scale)
async def turn_quality(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    rubric: str = GOOD_TURN,
    criteria: Mapping[str, Mapping[str, Any] | str | None] | None = None,
    scale: Sequence[int] = SCALE,
    prompt: str = PROMPT,
    segments: bool = False,
    given: bool = False,
    budget_tokens: int = 6000,
    early_weight: float = 1.0,
    temperature: Temperature = 0.0,
) -> list[Score] | None:
    """How well each turn of the assistant meets a rubric, given what came before it, as judged by a model.

    Higher is better. Each turn is judged in its own call, without what comes after it. Each turn has a score with
    its number; the run has their weighted mean, with the comment of the worst turn. A turn of the first half (number <=
    turns / 2) has the weight `early_weight`, the others 1. `rubric`, `criteria`, `scale` and `temperature` are those of
    the evaluator `rubric`; a custom `prompt` uses {outputs} (the turn), {inputs} (what came before), {rubric} and
    {scale}.

    The target's turns are judged, with `given` also those in the inputs. With `segments` only the user's messages
    directly before a turn are shown with it: nothing earlier, and no system message. Otherwise the system messages and
    the newest exchanges that fit into `budget_tokens` (estimated at 3 bytes per token) are shown. The turn itself is
    always shown whole.

    None if neither inputs nor outputs have messages. If one turn's call fails, the judgement fails. Raise ValueError
    for an invalid setting, and if the outputs have no turn. It cannot see the target's own system message, images and
    files, nor whether what a turn says about the world is true, unless its model knows.
    """
    dialogue = conversation(inputs, outputs)
    if dialogue is None:
        return None
    turns = dialogue.judged(given)
    weights = weights_of(turns, len(dialogue.turns), checked_weight("early_weight", early_weight))
    checked_count("budget_tokens", budget_tokens)

    async def judged(turn: Turn) -> list[Score]:
        before = _before(dialogue, turn, segments, budget_tokens)
        texts = {_BEFORE: before, _TURN: shown_messages(dialogue, range(turn.begins, turn.ends))}
        scores = await by_rubric(
            {"input": _BEFORE},
            {"output": _TURN},
            None,
            None,
            with_texts_replaced(complete, texts),
            rubric=rubric,
            prompt=prompt,
            criteria=criteria,
            scale=scale,
            temperature=temperature,
        )
        return [replace(score, turn=turn.number) for score in (scores if isinstance(scores, list) else [scores])]

    by_turn = await _all([judged(turn) for turn in turns])
    by_metric = list(zip(*by_turn, strict=True))
    return [
        *(_of_the_run(scores, weights) for scores in by_metric),
        *(score for scores in by_metric for score in scores),
    ]


def _before(dialogue: Conversation, turn: Turn, segments: bool, budget_tokens: int) -> str:
    if segments:
        return shown_messages(dialogue, dialogue.user_messages_before(turn))
    return shown_within(dialogue, turn.begins, budget_tokens)


async def _all(judgements: Sequence[Coroutine[Any, Any, list[Score]]]) -> list[list[Score]]:
    """Wait for all, even if one fails, so that their cost counts for this judgement; then raise the first failure."""
    results = await asyncio.gather(*judgements, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _of_the_run(scores: Sequence[Score], weights: Sequence[float]) -> Score:
    """Return the weighted mean of one metric's scores, with the comment of the first worst turn."""
    values = [float(score.value or 0) for score in scores]
    worst = scores[values.index(min(values))]
    comment = f"turn {worst.turn}: {worst.comment}" if worst.comment else None
    return replace(worst, value=fmean(values, weights), turn=None, comment=comment)
