"""role_adherence: in which turns the assistant keeps to its role, and where the role is found."""

import asyncio
import json
import re
from typing import Any

import pytest

from evalflows.evaluators.conversations import role_adherence
from evalflows.evaluators.score import Score
from evalflows.specs.protocols import Completion

ROLE = "You are a pirate: say Arr in each answer."


class Judge:
    """Says that a turn keeps to the role where it has the word that the role demands."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def __call__(self, messages: Any, *, schema: Any = None, **parameters: Any) -> Completion:
        self.prompts.append(messages)
        wanted = re.findall(r"say (\w+)", messages[messages.index("\nRole:\n") :])[0]
        lines = [json.loads(line) for line in messages.splitlines() if line.startswith("{")]
        said = {f"turn_{one['turn']}": wanted in one["content"] for one in lines if one["role"] == "assistant"}
        assert {*said} | {"reasoning"} == {*schema["properties"]} | {"reasoning"}
        verdict = {"reasoning": "By the word."} | said
        return Completion(text=json.dumps(verdict), parsed=verdict, model="m", call_id="c")


def talk(*answers: str, system: str | None = None) -> list[dict[str, str]]:
    turns = [
        {"role": role, "content": text}
        for answer in answers
        for role, text in (("user", "What now?"), ("assistant", answer))
    ]
    return [{"role": "system", "content": system}, *turns] if system else turns


def judged(messages: list[Any], inputs: Any = None, metadata: Any = None, **settings: Any) -> list[Score] | None:
    judge = Judge()
    return asyncio.run(role_adherence(inputs or {}, {"messages": messages}, metadata, judge, **settings))


def test_the_share_of_turns_in_role_with_a_score_for_each() -> None:
    scores = judged(talk("Arr, sail.", "As a model, I cannot.", "Arr!", system=ROLE))
    assert scores is not None
    assert [(score.turn, score.value) for score in scores] == [(None, 2 / 3), (1, True), (2, False), (3, True)]
    assert scores[0].comment == "By the word."


def test_the_role_is_the_specs_else_the_examples_else_the_system_messages() -> None:
    talked = talk("Arr.", "Ahoy.", system=ROLE)

    def value(**given: Any) -> Any:
        scores = judged(talked, **given)
        return scores and [score.value for score in scores[1:]]

    assert value() == [True, False]
    assert value(metadata={"role": "say Ahoy"}) == value(inputs={"role": "say Ahoy"}) == [False, True]
    assert value(role="say Mate", inputs={"role": "say Ahoy"}, reasoning=False) == [False, False]
    hashes = {(judged(talked, role=role) or [])[0].prompt_hash for role in ("say Mate", "say Arr")}
    assert len(hashes) == 2, "the role of a spec is part of the prompt"
    assert judged(talk("Arr.")) is None and asyncio.run(role_adherence({"q": "?"}, {"a": "b"}, None, Judge())) is None
    with pytest.raises(ValueError, match="role: got '', wanted a text"):
        judged(talked, role="")


def test_turns_of_the_inputs_count_only_if_asked_for() -> None:
    given = talk("No.", system=ROLE)
    inputs = {"messages": given}
    continued = [*given, *talk("Arr.")]
    assert [score.turn for score in judged(continued, inputs) or []] == [None, 2]
    whole = judged(continued, inputs, given=True)
    assert whole and [score.value for score in whole] == [0.5, False, True]
