from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from evalflows.evaluators.asking import Temperature, ask, shipped
from evalflows.evaluators.conversations.messages import Conversation, conversation
from evalflows.evaluators.conversations.show import shown_whole
from evalflows.evaluators.direction import Direction, declares, zero_to_one
from evalflows.evaluators.prompt import prompt_hash
from evalflows.evaluators.score import Score
from evalflows.evaluators.sheet import verdict_schema
from evalflows.specs.errors import short
from evalflows.specs.protocols import Complete

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
    """Whether the answers use what the user said earlier, where it matters. Higher is better, 0 to 1.

    In one call over the whole conversation a model lists the facts that the user stated before one turn and that matter
    for a later one, each as used, ignored or contradicted. The score is the share that is used; `context_contradicted`
    is the share that is contradicted, for which lower is better. The metadata has the facts, the comment is the model's
    reasoning. The target's turns are judged, with `given` also those in the inputs. `instructions` are added to the
    prompt; a custom `prompt` uses {conversation}, {turns} and {instructions}.

    None if neither inputs nor outputs have messages, if only the directly preceding messages come before the turns to
    judge (no call is made), and if the model finds that nothing said earlier matters. The answer is a list, which a
    connection with `answer_form: text` cannot give. Raise ValueError if the outputs have no turn, and for a fact that
    the model places where the user says nothing. It cannot see what the assistant itself said or read earlier, facts
    that its model overlooks, nor whether what the user said is true.
    """
    dialogue = conversation(inputs, outputs)
    if dialogue is None:
        return None
    numbers = [turn.number for turn in dialogue.judged(given)]
    user_turns = _user_turns(dialogue, max(numbers))
    if not user_turns:
        return None
    reply = await ask(
        complete,
        prompt,
        {"conversation": shown_whole(dialogue), "turns": ", ".join(map(str, numbers))},
        verdict_schema("context_use", {"facts": _facts(max(user_turns))}, "before"),
        needed=["conversation"],
        temperature=temperature,
        spec_texts={"instructions": instructions},
    )
    facts = _checked(reply.verdict["facts"], user_turns)
    if not facts:
        return None
    used, contradicted = (fmean(fact["use"] == use for fact in facts) for use in ("used", "contradicted"))
    reasoning, hashed = reply.verdict.get("reasoning"), prompt_hash(prompt, instructions)
    return [
        Score(value=used, comment=reasoning, metadata={"facts": facts}, prompt_hash=hashed),
        Score(value=contradicted, key=CONTRADICTED, comment=reasoning, prompt_hash=hashed),
    ]


def _user_turns(dialogue: Conversation, last: int) -> set[int]:
    """Return the numbers of the turns, before the last one to judge, that directly follow a message of the user."""
    return {turn.number for turn in dialogue.turns if turn.number < last and dialogue.user_speaks_before(turn)}


def _facts(last: int) -> dict[str, Any]:
    fields = {
        "fact": {"type": "string"},
        "before_turn": {"type": "integer", "minimum": 1, "maximum": last},
        "use": {"type": "string", "enum": [*USES]},
    }
    fact = {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
    return {"type": "array", "items": fact}


def _checked(facts: Sequence[Mapping[str, Any]], user_turns: set[int]) -> list[dict[str, Any]]:
    for fact in facts:
        if fact["before_turn"] not in user_turns:
            where = ", ".join(map(str, sorted(user_turns)))
            got = f"{short(fact['fact'])} before turn {fact['before_turn']}"
            raise ValueError(f"facts: the judge says {got}, wanted one of the turns {where}")
        if fact["use"] not in USES:
            raise ValueError(f"facts: the judge says {short(fact['use'])}, wanted {', '.join(USES)}")
    return [dict(fact) for fact in facts]
