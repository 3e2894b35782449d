from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from evalflows.evaluators.asking import Temperature, ask, shipped
from evalflows.evaluators.conversations.messages import conversation
from evalflows.evaluators.conversations.show import shown_whole
from evalflows.evaluators.conversations.weights import checked_weight, weights_of
from evalflows.evaluators.direction import declares, share
from evalflows.evaluators.prompt import prompt_hash
from evalflows.evaluators.score import Score
from evalflows.evaluators.sheet import verdict_schema
from evalflows.specs.conversation import Turn
from evalflows.specs.errors import short
from evalflows.specs.protocols import Complete

PROMPT = shipped("turn_errors")
GOOD, OWN_FAULT = "good", "own fault"
MOST_TURNS = 40
"""The maximum number of turns: each turn can follow every earlier turn, and providers allow about 1000 enum values per
schema."""


@declares(share)
async def turn_errors(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    early_weight: float = 1.5,
    following_weight: float = 0.5,
    given: bool = False,
    instructions: str = "",
    prompt: str = PROMPT,
    temperature: Temperature = 0.0,
) -> list[Score] | None:
    """Which turns of the assistant are wrong, and whether by their own fault or by following an earlier error.

    A model sees the whole conversation with numbered turns in one call. Each turn has a score with its number: `good`
    is 1, `own fault` is 0, `follows turn N` is 1 - `following_weight`. The run's score is

        sum(w * score) / sum(w),  w = `early_weight` for a turn of the first half (number <= turns / 2), else 1

    over the target's turns, with `given` also those in the inputs; an error can follow from any turn. 1 is a
    conversation without errors, 0 one with an own fault in every turn; early errors cost more, and errors that only
    follow cost less. The comment is the model's reasoning. `instructions` are added to the prompt; a custom `prompt`
    uses {conversation} and {instructions}.

    None if neither inputs nor outputs have messages. Raise ValueError for an invalid setting, if the outputs have no
    turn, for more than 40 turns, and if the model says that a turn follows one that is good or not earlier. It cannot
    see an error if its model lacks the knowledge to recognise it; and since it knows how the conversation continued, it
    may fault what was reasonable at the time.
    """
    early = checked_weight("early_weight", early_weight)
    following = checked_weight("following_weight", following_weight, 1.0)
    dialogue = conversation(inputs, outputs)
    if dialogue is None:
        return None
    turns = dialogue.judged(given)
    if len(dialogue.turns) > MOST_TURNS:
        raise ValueError(f"messages: got {len(dialogue.turns)} turns of the assistant, wanted at most {MOST_TURNS}")
    reply = await ask(
        complete,
        prompt,
        {"conversation": shown_whole(dialogue)},
        verdict_schema("turn_errors", {_field(turn.number): _choice(turn.number) for turn in dialogue.turns}, "before"),
        needed=["conversation"],
        temperature=temperature,
        spec_texts={"instructions": instructions},
    )
    hashed = prompt_hash(prompt, instructions)
    labels = _checked(reply.verdict, dialogue.turns)
    values = {GOOD: 1.0, OWN_FAULT: 0.0}
    numbers = [values.get(labels[turn.number], 1 - following) for turn in turns]
    mean = fmean(numbers, weights_of(turns, len(dialogue.turns), early))
    turn_scores = [
        Score(value=value, label=labels[turn.number], turn=turn.number, prompt_hash=hashed)
        for turn, value in zip(turns, numbers, strict=True)
    ]
    return [Score(value=mean, comment=reply.verdict.get("reasoning"), prompt_hash=hashed), *turn_scores]


def _field(number: int) -> str:
    return f"turn_{number}"


def _follows(number: int) -> str:
    return f"follows turn {number}"


def _choice(number: int) -> dict[str, Any]:
    return {"type": "string", "enum": [GOOD, OWN_FAULT, *map(_follows, range(1, number))]}


def _checked(verdict: Mapping[str, Any], turns: Sequence[Turn]) -> dict[int, str]:
    """Return the label of each turn by number. Raise ValueError for an answer that contradicts itself."""
    labels = {turn.number: verdict.get(_field(turn.number)) for turn in turns}
    wrong = {_follows(number) for number, label in labels.items() if label != GOOD}
    for number, label in labels.items():
        earlier = {_follows(earlier_number) for earlier_number in range(1, number)}
        if label not in (GOOD, OWN_FAULT) and label not in earlier:
            raise ValueError(f"turn {number}: the judge says {short(label)}, wanted one of its choices")
        if label in earlier and label not in wrong:
            raise ValueError(f"turn {number}: the judge says {label!r}, but rates that turn good")
    return {number: str(label) for number, label in labels.items()}
