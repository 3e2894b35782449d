"""Calls of the evaluator `criteria`, and a principle as LangChain has them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.evaluators.judges import criteria
from evalflows.evaluators.score import Score

QUESTION, REFERENCE = {"question": "How far is the moon?"}, {"answer": "About 384,000 km"}


@dataclass
class Principle:
    """A constitutional principle with LangChain's fields."""

    name: str
    critique_request: str
    revision_request: str = "Rewrite it."


def judged(judge: Any, answer: Any, reference: dict[str, Any] | None = None, **settings: Any) -> list[Score]:
    scores = asyncio.run(criteria(QUESTION, {"output": answer}, reference, {}, judge, **settings))
    return [] if scores is None else scores if isinstance(scores, list) else [scores]


def values(scores: Sequence[Score]) -> dict[str | None, Any]:
    return {score.key: score.value for score in scores}


def replying(reader: Any, **verdicts: Sequence[bool]) -> Any:
    """Return a model that gives the n-th verdict of each criterion at its n-th call."""
    times = iter(range(99))

    def judge(_: Any) -> dict[str, Any]:
        repeat = next(times)
        return {"reasoning": f"repeat {repeat}"} | {name: said[repeat] for name, said in verdicts.items()}

    return reader(judge)
