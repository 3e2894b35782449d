"""Calls of the evaluator `rubric` with a scripted model."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import jsonschema

from evalflows.evaluators.rubric import rubric
from evalflows.evaluators.score import Score
from evalflows.specs.protocols import Completion


class ScriptedJudge:
    """A model with one reply per repeat, which records its requests. A reply that is an exception is raised."""

    def __init__(self, *says: Any) -> None:
        self.says: Sequence[Any] = says or ({"reasoning": "Fine.", "score": 4},)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.finished = 0

    async def __call__(self, messages: Any, *, repeat: int = 0, **parameters: Any) -> Completion:
        self.requests.append((messages, {"repeat": repeat} | parameters))
        await asyncio.sleep(0.001 * (len(self.says) - repeat))  # the first asked answers last
        self.finished += 1
        says = self.says[repeat]
        if isinstance(says, Exception):
            raise says
        jsonschema.validate(says, parameters["schema"])
        return Completion(text=json.dumps(says), parsed=says, model="m", call_id=f"c{repeat}")


QUESTION, ANSWER, REFERENCE = {"question": "Capital of France?"}, {"output": "It is Paris."}, {"answer": "Paris"}
RUBRIC = "The answer is short and friendly."


def judged(
    judge: ScriptedJudge | None = None,
    *,
    inputs: dict[str, Any] = QUESTION,
    outputs: dict[str, Any] = ANSWER,
    reference: dict[str, Any] | None = REFERENCE,
    metadata: dict[str, Any] | None = None,
    **settings: Any,
) -> list[Score]:
    settings = {"rubric": RUBRIC} | settings
    scores = asyncio.run(rubric(inputs, outputs, reference, metadata, judge or ScriptedJudge(), **settings))
    return scores if isinstance(scores, list) else [scores]


def prompt_sent(judge: ScriptedJudge | None = None, **given: Any) -> str:
    """Return the prompt that is sent to the model."""
    judge = judge or ScriptedJudge()
    judged(judge, **given)
    return judge.requests[0][0]


def scoring(*scores: int) -> ScriptedJudge:
    return ScriptedJudge(*({"reasoning": f"repeat {i}", "score": score} for i, score in enumerate(scores)))


def labelling(*labels: str) -> ScriptedJudge:
    return ScriptedJudge(*({"reasoning": f"repeat {i}", "label": label} for i, label in enumerate(labels)))


CRITERIA = {"faithful": {"weight": 3, "description": "Says nothing that is not so."}, "kind": "Is friendly."}


def scoring_criteria(*pairs: tuple[int, int]) -> ScriptedJudge:
    return ScriptedJudge(*({"reasoning": f"repeat {i}", "faithful": a, "kind": b} for i, (a, b) in enumerate(pairs)))
