from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from evaluators.asking import Temperature, ask, shipped
from evaluators.conversations.messages import conversation
from evaluators.conversations.show import shown_whole
from evaluators.conversations.weights import a_weight, weights_of
from evaluators.direction import declares, share
from evaluators.prompt import prompt_hash
from evaluators.score import Score
from evaluators.sheet import verdict_schema
from specs.conversation import Turn
from specs.errors import short
from specs.protocols import Complete

PROMPT = shipped("turn_errors")
GOOD, OWN_FAULT = "good", "own fault"
MOST_TURNS = 40
"""Of a conversation: each turn may follow every earlier one, and providers take about 1000 values of enums a schema."""


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

    A model sees the whole conversation, its turns numbered, in one call. Each turn has a score with its number: `good`
    is 1, `own fault` is 0, `follows turn N` is 1 - `following_weight`. The run has

        sum(w * score) / sum(w),  w = `early_weight` for a turn of the first half (number <= turns / 2), else 1

    over the turns of the target, or with `given` also over those that the inputs hold; an error may follow from any
    turn. So 1 is a conversation without errors, 0 one of nothing but faults; an error early on costs more, and one
    that only follows costs less. The comment is the model's reasoning. `instructions` are added to the prompt; a
    `prompt` of your own asks for {conversation} and {instructions}.

    None where neither inputs nor outputs hold messages. Raises ValueError for a setting that cannot be used, where the
    outputs hold no turn, for more than 40 turns, and where the model says of a turn that it follows one that is good,
    or not earlier. It cannot see an error that takes knowledge which its model lacks; and as it knows how the
    conversation went on, it may find fault with what was reasonable at the time.
    """
    early, following = a_weight("early_weight", early_weight), a_weight("following_weight", following_weight, 1.0)
    found = conversation(inputs, outputs)
    if found is None:
        return None
    turns = found.judged(given)
    if len(found.turns) > MOST_TURNS:
        raise ValueError(f"messages: got {len(found.turns)} turns of the assistant's, wanted at most {MOST_TURNS}")
    asked = await ask(
        complete,
        prompt,
        {"conversation": shown_whole(found)},
        verdict_schema("turn_errors", {_field(turn.number): _choice(turn.number) for turn in found.turns}, "before"),
        needed=["conversation"],
        temperature=temperature,
        said={"instructions": instructions},
    )
    hashed = prompt_hash(prompt, instructions)
    labels = _checked(asked.verdict, found.turns)
    values = {GOOD: 1.0, OWN_FAULT: 0.0}
    numbers = [values.get(labels[turn.number], 1 - following) for turn in turns]
    mean = fmean(numbers, weights_of(turns, len(found.turns), early))
    each = [
        Score(value=value, label=labels[turn.number], turn=turn.number, prompt_hash=hashed)
        for turn, value in zip(turns, numbers, strict=True)
    ]
    return [Score(value=mean, comment=asked.verdict.get("reasoning"), prompt_hash=hashed), *each]


def _field(number: int) -> str:
    return f"turn_{number}"


def _follows(number: int) -> str:
    return f"follows turn {number}"


def _choice(number: int) -> dict[str, Any]:
    return {"type": "string", "enum": [GOOD, OWN_FAULT, *map(_follows, range(1, number))]}


def _checked(verdict: Mapping[str, Any], turns: Sequence[Turn]) -> dict[int, str]:
    """The label of each turn by its number. Raises ValueError for an answer that contradicts itself."""
    labels = {turn.number: verdict.get(_field(turn.number)) for turn in turns}
    wrong = {_follows(number) for number, label in labels.items() if label != GOOD}
    for number, label in labels.items():
        earlier = {_follows(one) for one in range(1, number)}
        if label not in (GOOD, OWN_FAULT) and label not in earlier:
            raise ValueError(f"turn {number}: the judge says {short(label)}, wanted one of its choices")
        if label in earlier and label not in wrong:
            raise ValueError(f"turn {number}: the judge says {label!r}, which it finds good")
    return {number: str(label) for number, label in labels.items()}
