"""Judge whether a simulated user behaved as it was told, so that a conversation says something about the target."""

from typing import Any

from evalflows.evaluators.agents.transcript import entry_of, lines
from evalflows.evaluators.declarations import declares, share
from evalflows.evaluators.fence import fenced
from evalflows.evaluators.judging import Temperature, ask
from evalflows.evaluators.prompt_texts import shipped
from evalflows.evaluators.scales import verdict_schema
from evalflows.evaluators.score import Score
from evalflows.specs.columns import checked_messages
from evalflows.specs.dialogue import USER_FIELDS
from evalflows.specs.protocols import Complete

PROMPT = shipped("user_kept_to_goal")

KEPT = "kept"
VERDICTS = (KEPT, "told_too_much", "left_persona", "gave_up", "contradicted_facts", "ended_too_early")


@declares(share)
async def user_kept_to_goal(
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    metadata: dict[str, Any] | None,
    complete: Complete,
    *,
    prompt: str = PROMPT,
    reasoning: bool = True,
    temperature: Temperature = 0.0,
) -> Score | None:
    """Whether the simulated user of a conversation kept to its persona, goal and facts: 1, or 0 with a label that says
    how it did not (told_too_much, left_persona, gave_up, contradicted_facts, ended_too_early).

    What the user was told are the fields persona, goal, facts, must_not_tell and first_message of the inputs or the
    metadata. The comment is the model's reasoning. A custom `prompt` uses {user}, {conversation} and {ended}. None
    without any of these fields, and without messages in the outputs. It cannot see whether the goal was reached, nor
    tell a user who gives up from one who has lost, where the conversation leaves that open; it is only as good as its
    model.
    """
    told = {name: value for name in USER_FIELDS if (value := inputs.get(name, (metadata or {}).get(name))) is not None}
    if not told or not outputs.get("messages"):
        return None
    spoken = [message for message in checked_messages(outputs["messages"]) if message["role"] in ("user", "assistant")]
    texts = {
        "user": fenced(told),
        "conversation": fenced(lines(entry_of(message) for message in spoken)),
        "ended": str(outputs.get("ended", "unknown")),
    }
    fields = {"verdict": {"type": "string", "enum": [*VERDICTS]}}
    schema = verdict_schema("user_kept_to_goal", fields, "before" if reasoning else "none")
    reply = await ask(complete, prompt, texts, schema, needed=["conversation"], temperature=temperature)
    verdict = reply.verdict["verdict"]
    return Score(
        value=verdict == KEPT, label=verdict, comment=reply.verdict.get("reasoning"), prompt_hash=reply.prompt_hash
    )
