import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from evaluators.asking import Temperature, shipped
from evaluators.conversations.messages import Conversation, conversation
from evaluators.conversations.show import in_place_of, shown_messages, shown_within
from evaluators.conversations.weights import a_weight, weights_of
from evaluators.direction import declares, on_the_scale
from evaluators.rubric import rubric as by_rubric
from evaluators.score import Score
from evaluators.settings import a_count
from evaluators.sheet import SCALE
from specs.conversation import Turn
from specs.protocols import Complete

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
    """How well a model finds that each turn of the assistant meets a rubric, by what came before it. Higher is better.

    Each turn is asked about by itself and sees nothing that comes after it; it has a score of its own, with its number,
    and the run has their weighted mean, with the comment of the worst turn. A turn of the first half (number <= turns
    / 2) weighs `early_weight`, the others 1. `rubric`, `criteria`, `scale` and `temperature` are those of the
    evaluator `rubric`; a `prompt` of your own asks for {outputs}, the turn, {inputs}, what came before, {rubric} and
    {scale}.

    Judged are the turns of the target; with `given` those too that the inputs hold. With `segments` a turn is shown
    only the user's messages directly before it: nothing earlier, and no system message. Else it is shown the system
    messages and the newest exchanges that fit into `budget_tokens` (estimated: a token for 3 bytes); the turn itself
    is shown whole.

    None where neither inputs nor outputs hold messages. If one turn's call fails, so does the judgement. Raises
    ValueError for a setting that cannot be used, and where the outputs hold no turn. It cannot see the system message
    of a target that keeps it to itself, images and files, nor whether what a turn says of the world is true, unless
    its model knows.
    """
    found = conversation(inputs, outputs)
    if found is None:
        return None
    turns = found.judged(given)
    weights = weights_of(turns, len(found.turns), a_weight("early_weight", early_weight))
    a_count("budget_tokens", budget_tokens)

    async def judged(turn: Turn) -> list[Score]:
        before = _before(found, turn, segments, budget_tokens)
        shown = {_BEFORE: before, _TURN: shown_messages(found, range(turn.begins, turn.ends))}
        said = await by_rubric(
            {"input": _BEFORE},
            {"output": _TURN},
            None,
            None,
            in_place_of(complete, shown),
            rubric=rubric,
            prompt=prompt,
            criteria=criteria,
            scale=scale,
            temperature=temperature,
        )
        return [replace(score, turn=turn.number) for score in (said if isinstance(said, list) else [said])]

    each = await _all([judged(turn) for turn in turns])
    by_metric = list(zip(*each, strict=True))
    return [
        *(_of_the_run(scores, weights) for scores in by_metric),
        *(score for scores in by_metric for score in scores),
    ]


def _before(found: Conversation, turn: Turn, segments: bool, budget_tokens: int) -> str:
    if segments:
        return shown_messages(found, found.asked(turn))
    return shown_within(found, turn.begins, budget_tokens)


async def _all(judgements: Sequence[Coroutine[Any, Any, list[Score]]]) -> list[list[Score]]:
    """All are waited for, also where one fails: what they cost is this judgement's."""
    done = await asyncio.gather(*judgements, return_exceptions=True)
    for one in done:
        if isinstance(one, BaseException):
            raise one
    return [one for one in done if not isinstance(one, BaseException)]


def _of_the_run(scores: Sequence[Score], weights: Sequence[float]) -> Score:
    """The weighted mean of one metric's scores; it says which turn is the worst, the first of several."""
    values = [float(score.value or 0) for score in scores]
    worst = scores[values.index(min(values))]
    comment = f"turn {worst.turn}: {worst.comment}" if worst.comment else None
    return replace(worst, value=fmean(values, weights), turn=None, comment=comment)
