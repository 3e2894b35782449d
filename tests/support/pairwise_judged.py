"""Calls of the evaluator `pairwise_preference` with a scripted model."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema

from evalflows.evaluators.call import bind, offer_pair
from evalflows.evaluators.pairwise import pairwise_preference
from evalflows.evaluators.preference import Preference, preferences
from evalflows.evaluators.subject import ExampleView, RunView
from evalflows.specs.protocols import Completion

_FENCED = re.compile(r"^([^\n]+):\n\[BEGIN (\w{16})\]\n(.*?)\n\[END \2\]$", flags=re.S | re.M)
Sections = dict[str, str]
"""The headings of a prompt, each with the text that is fenced below it."""


class PairwiseModel:
    """A model that replies to the sections of a prompt and the number of the repeat. An exception is raised."""

    def __init__(self, judge: Callable[[Sections, int], Any]) -> None:
        self.judge = judge
        self.prompts: list[str] = []
        self.parameters: list[dict[str, Any]] = []
        self.finished = 0

    async def __call__(
        self, messages: Any, *, schema: dict[str, Any], repeat: int = 0, **parameters: Any
    ) -> Completion:
        self.prompts.append(messages)
        self.parameters.append({"schema": schema, "repeat": repeat, **parameters})
        await asyncio.sleep(0.001 * (5 - repeat))  # the first asked answers last
        self.finished += 1
        says = self.judge({heading: text for heading, _, text in _FENCED.findall(messages)}, repeat)
        if isinstance(says, Exception):
            raise says
        verdict = says if isinstance(says, dict) else {"reasoning": f"repeat {repeat}: {says}", "preference": says}
        jsonschema.validate(verdict, schema)
        return Completion(text=json.dumps(verdict), parsed=verdict, model="planted", call_id=f"c{repeat}")


def replying(*each: Any) -> PairwiseModel:
    """Return a model with one reply per repeat, whatever the prompt says."""
    return PairwiseModel(lambda sections, repeat: each[repeat])


def knows_better(sections: Sections, repeat: int = 0) -> int:
    """Return the verdict by calculation or by the reference: 1, 2, or 0 if both or neither are right."""
    summand, other = map(int, re.findall(r"\d+", sections["Question"])[:2])
    truth = sections.get("Reference answer", str(summand + other))
    right = [truth in re.findall(r"\d+", sections[f"Answer {letter}"]) for letter in "AB"]
    return 0 if right[0] == right[1] else 1 if right[0] else 2


def compared(
    model: PairwiseModel,
    first: Any = "It is 42.",
    second: Any = "It is 41.",
    *,
    question: Any = "What is 17 + 25?",
    known: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **settings: Any,
) -> Preference:
    """Return the preference as a comparison gets it. `known` is the example's reference."""
    inputs = {"question": question}
    answers = [answer if isinstance(answer, dict) else {"output": answer} for answer in (first, second)]
    example = ExampleView(id="e", inputs=inputs, reference_outputs=known, metadata=metadata or {})
    runs = [RunView(id=f"r{number}", inputs=inputs, outputs=answer) for number, answer in enumerate(answers)]
    bound = bind(pairwise_preference, settings=settings, scope="pair")
    assert bound.is_async
    returned = asyncio.run(bound.call({**offer_pair(example, *runs), "complete": model}))
    (preference,) = preferences(returned, bound.name, [run.id for run in runs])
    assert preference.key == "pairwise_preference"
    return preference


def prompt_sent(**given: Any) -> str:
    """Return the prompt that is sent to the model."""
    model = replying(1)
    compared(model, **given)
    return model.prompts[0]


KNOWN = {"answer": "forty-two"}
OWN = "By {criteria}: {inputs}? {first} or {second}; known: {reference_outputs}, {metadata}. {verdict}"
