from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from evaluators.asking import Temperature, ask, shipped
from evaluators.conversations.messages import Conversation, conversation
from evaluators.conversations.show import shown_whole
from evaluators.direction import Direction, declares, zero_to_one
from evaluators.prompt import prompt_hash
from evaluators.score import Score
from evaluators.sheet import verdict_schema
from specs.errors import short
from specs.protocols import Complete

PROMPT = shipped("context_use")
USES = ("used", "ignored", "contradicted")
CONTRADICTED = "context_contradicted"


def _metrics(name: str, settings: Mapping[str, Any]) -> dict[str, Direction]:
    return {name: zero_to_one(), CONTRADICTED: zero_to_one(higher_is_better=False)}


@declares(_metrics)
async def context_use(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    complete: Complete,
    *,
    given: bool = False,
    instructions: str = "",
    prompt: str = PROMPT,
    temperature: Temperature = 0.0,
) -> list[Score] | None:
    """Whether the answers rest on what the user said earlier, where that matters. Higher is better, 0 to 1.

    In one call over the whole conversation a model lists the facts that the user stated before one turn and that matter
    for a later one, each as used, ignored or contradicted. The score is the share that is used; `context_contradicted`
    is the share that is contradicted, of which less is better. The facts stand in the metadata, the comment is the
    model's reasoning. Judged are the turns of the target, or with `given` also those that the inputs hold.
    `instructions` are added to the prompt; a `prompt` of your own asks for {conversation}, {turns} and {instructions}.

    None where neither inputs nor outputs hold messages, where nothing comes before the turns to judge but what they
    answer directly (then nothing is asked), and where the model finds that nothing said earlier matters. The answer is
    a list, which a connection with `answer_form: text` cannot give. Raises ValueError where the outputs hold no turn,
    and for a fact that the model places where the user says nothing. It cannot see what the assistant itself said or
    read earlier, facts that its model overlooks, nor whether what the user said is true.
    """
    found = conversation(inputs, outputs)
    if found is None:
        return None
    numbers = [turn.number for turn in found.judged(given)]
    told = _told(found, max(numbers))
    if not told:
        return None
    asked = await ask(
        complete,
        prompt,
        {"conversation": shown_whole(found), "turns": ", ".join(map(str, numbers))},
        verdict_schema("context_use", {"facts": _facts(max(told))}, "before"),
        needed=["conversation"],
        temperature=temperature,
        said={"instructions": instructions},
    )
    facts = _checked(asked.verdict["facts"], told)
    if not facts:
        return None
    used, contradicted = (fmean(fact["use"] == use for fact in facts) for use in ("used", "contradicted"))
    why, hashed = asked.verdict.get("reasoning"), prompt_hash(prompt, instructions)
    return [
        Score(value=used, comment=why, metadata={"facts": facts}, prompt_hash=hashed),
        Score(value=contradicted, key=CONTRADICTED, comment=why, prompt_hash=hashed),
    ]


def _told(found: Conversation, last: int) -> set[int]:
    """The numbers of the turns, but for the last to judge, directly before which the user says something."""
    return {turn.number for turn in found.turns if turn.number < last and found.speaks_before(turn)}


def _facts(last: int) -> dict[str, Any]:
    fields = {
        "fact": {"type": "string"},
        "before_turn": {"type": "integer", "minimum": 1, "maximum": last},
        "use": {"type": "string", "enum": [*USES]},
    }
    fact = {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
    return {"type": "array", "items": fact}


def _checked(facts: Sequence[Mapping[str, Any]], told: set[int]) -> list[dict[str, Any]]:
    for fact in facts:
        if fact["before_turn"] not in told:
            where = ", ".join(map(str, sorted(told)))
            got = f"{short(fact['fact'])} before turn {fact['before_turn']}"
            raise ValueError(f"facts: the judge says {got}, wanted one of the turns {where}")
        if fact["use"] not in USES:
            raise ValueError(f"facts: the judge says {short(fact['use'])}, wanted {', '.join(USES)}")
    return [dict(fact) for fact in facts]
