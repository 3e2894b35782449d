"""Models that give one answer, for LangChain's pairwise evaluators, and keep their prompts."""

import json
from collections.abc import Mapping
from typing import Any

from evalflows.compat.langchain import load_evaluator
from evalflows.specs.protocols import Completion

PAIR = {"prediction": "Slack water.", "prediction_b": "High water.", "input": "What lies between two tidal streams?"}
LABELLED = {**PAIR, "reference": "Slack water"}


class Complete:
    """A `complete` that returns one answer and records its requests."""

    def __init__(self, verdict: Any = "A", text: str = "", finish_reason: str = "stop") -> None:
        self.fields = {"reasoning": "A is right.", "verdict": verdict}
        self.text, self.finish_reason = text or json.dumps(self.fields), finish_reason
        self.asked: list[tuple[Any, dict[str, Any]]] = []

    async def __call__(self, messages: Any, **parameters: Any) -> Completion:
        self.asked.append((messages, parameters))
        parsed = self.fields if "schema" in parameters else None
        return Completion(
            text=self.text, parsed=parsed, finish_reason=self.finish_reason, model="recorded", call_id="1"
        )


class Message:
    def __init__(self, content: Any, **response_metadata: Any) -> None:
        self.content, self.response_metadata = content, response_metadata


class Invoked:
    """An object with `invoke` but not `ainvoke`."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, dict[str, Any]]] = []

    def invoke(self, prompt: Any, **parameters: Any) -> Any:
        self.asked.append((prompt, parameters))
        return self.answer


def asked(name: str = "pairwise_string", given: Mapping[str, str] = PAIR, **settings: Any) -> str:
    """Return the prompt that is sent to the model."""
    complete = Complete(text="[[A]]")
    load_evaluator(name, llm=complete, **settings).evaluate_string_pairs(**given)
    ((prompt, _),) = complete.asked
    assert isinstance(prompt, str)
    return prompt
