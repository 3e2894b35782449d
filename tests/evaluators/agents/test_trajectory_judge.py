"""trajectory: what the judge is shown of an agent's way, and what becomes of what it says."""

import asyncio
import json
from typing import Any

import jsonschema
import pytest

from evalflows.evaluators.agents.trajectory_judge import RUBRIC, trajectory
from evalflows.evaluators.agents.transcript import transcript
from evalflows.evaluators.fence import fenced
from evalflows.evaluators.score import Score
from evalflows.evaluators.views import RunView
from evalflows.specs.protocols import Completion


class Judge:
    """A model that says one thing, and keeps what it was asked."""

    def __init__(self, **verdict: Any) -> None:
        self.verdict = verdict or {"reasoning": "Step 2 is for nothing.", "score": 2}
        self.requests: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, messages: Any, **parameters: Any) -> Completion:
        self.requests.append((messages, parameters))
        jsonschema.validate(self.verdict, parameters["schema"])
        return Completion(text=json.dumps(self.verdict), parsed=self.verdict, model="m", call_id="c")


TASK = {"question": "Weather in Paris?"}
DONE = {"tool_calls": [{"name": "weather", "arguments": {"city": "Paris"}}], "output": "18 degrees."}
WAY = {"tool_calls": [{"name": "locate", "arguments": {}}, {"name": "weather", "arguments": {}}]}
CALL = '{"step":1,"role":"assistant","tool_calls":[{"name":"weather","arguments":{"city":"Paris"}}]}'
SHOWN = f'{CALL}\n{{"step":2,"role":"assistant","final_answer":"18 degrees."}}'


def judged(
    outputs: dict[str, Any] = DONE, reference: Any = None, judge: Judge | None = None, **given: Any
) -> list[Score]:
    run = given.pop("run", None)
    scores = asyncio.run(trajectory(TASK, outputs, reference, None, judge or Judge(), run, **given))
    return scores if isinstance(scores, list) else [scores]


def asked(outputs: dict[str, Any] = DONE, reference: Any = None, **given: Any) -> str:
    judge = Judge()
    judged(outputs, reference, judge, **given)
    ((prompt, _),) = judge.requests
    return prompt


def test_the_prompt_shows_the_task_the_good_way_and_the_whole_trajectory_each_at_its_place() -> None:
    prompt = asked(reference=WAY)
    texts = [
        "What to judge by:",
        RUBRIC,
        "Task:",
        fenced(TASK["question"]),
        "known to be good:",
        fenced(transcript(WAY)),
    ]
    texts += ["What the agent did", fenced(SHOWN)]
    places = [prompt.index(text) for text in texts]
    assert places == sorted(places)
    step = {"kind": "tool", "name": "weather", "inputs": {"city": "Paris"}, "outputs": "rain", "error": None}
    run = RunView(id="r", inputs={}, outputs={}, steps=[step])
    result = '{"step":2,"role":"tool","result":"rain"}'
    assert f"{CALL}\n{result}\n" in asked({"output": "Dry."}, run=run)


@pytest.mark.parametrize("reference", [None, {}, {"tool_calls": None}, {"a": 1, "b": 2}])
def test_without_a_reference_it_is_judged_all_the_same(reference: Any) -> None:
    assert "known to be good:\n(none)\n" in asked(reference=reference)
    judge = Judge()
    asyncio.run(trajectory(TASK, DONE, WAY, None, judge, reference=False))
    assert judge.requests[0][0] == asked(reference=reference)
