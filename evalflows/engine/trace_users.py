"""Users drawn from recorded conversations by a model: rows for simulated users, as drafts that a person reviews."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalflows.engine.play import recorded_trial, take_up_trials
from evalflows.evaluators.agents.transcript import entry_of, lines
from evalflows.evaluators.fence import fenced
from evalflows.evaluators.judging import ask
from evalflows.evaluators.prompt_texts import shipped
from evalflows.evaluators.scales import verdict_schema
from evalflows.llm import loop
from evalflows.llm.budget import Budget
from evalflows.llm.connect import completer
from evalflows.llm.connections import known, resolve
from evalflows.llm.ledger import Ledger
from evalflows.specs.errors import CallError
from evalflows.specs.protocols import Complete
from evalflows.store.records import new_id
from evalflows.store.store import Store

PROMPT = shipped("draw_user")
FIELDS = {
    "goal": {"type": "string"},
    "persona": {"type": "string"},
    "facts": {"type": "array", "items": {"type": "string"}},
}


def draw_users(
    store: Store, rows: Sequence[Mapping[str, Any]], connection: str, model: str | None
) -> Iterator[dict[str, Any] | str]:
    """Yield for each row of a whole conversation the row of its user, or why there is none.

    The inputs of a row are `goal`, `persona`, `facts` and `first_message`; its metadata have `draft: true`, the model,
    and the conversation as `original`. Paid calls are stored in the ledger. Raise InputError for a connection that
    cannot be used.
    """
    take_up_trials(store)
    trial, budget = new_id("trial"), Budget()
    ledger = Ledger(store, trial)
    complete = completer(connection, resolve(connection, {}), ledger, model=model, budget=budget)

    async def draw_all() -> list[dict[str, Any] | str]:
        return await asyncio.gather(*(_drawn(row, complete) for row in rows))

    with recorded_trial(store, trial, ledger, budget, [*known({}).values()]):
        drawn = loop.run(draw_all())
    yield from drawn


async def _drawn(row: Mapping[str, Any], complete: Complete) -> dict[str, Any] | str:
    messages = [*row["inputs"]["messages"], *((row["reference_outputs"] or {}).get("messages") or ())]
    texts = {"conversation": fenced(lines(entry_of(message) for message in messages))}
    schema = verdict_schema("user", FIELDS)
    try:
        reply = await ask(complete, PROMPT, texts, schema, needed=["conversation"], temperature=0.0)
    except CallError as error:
        return f"{row['id']}: {error}"
    first = next(message for message in messages if message["role"] == "user")
    inputs = {name: reply.verdict[name] for name in FIELDS} | {"first_message": first["content"]}
    metadata = {**row["metadata"], "draft": True, "drawn_by": reply.prompt_hash, "original": messages}
    return {**row, "inputs": inputs, "reference_outputs": None, "metadata": metadata}
