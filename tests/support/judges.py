"""Evaluators and targets that tests name as `judges:…`, in this process and in others."""

from itertools import count
from typing import Any

from evalflows.specs import Complete


async def says_correct(
    inputs: dict[str, Any], outputs: dict[str, Any], reference_outputs: dict[str, Any], complete: Complete
) -> bool:
    """A judge of one call."""
    prompt = f"Question: {inputs}\nAnswer: {outputs}\nReference: {reference_outputs}\nSay CORRECT or INCORRECT."
    return (await complete(prompt)).text.strip() == "CORRECT"


class BusyError(Exception):
    """What another attempt cures."""


_asked = count(1)
_POLITE = {
    "title": "polite",
    "type": "object",
    "properties": {"polite": {"type": "boolean"}},
    "required": ["polite"],
    "additionalProperties": False,
}


async def polite_if_not_busy(outputs: dict[str, Any], complete: Complete) -> bool:
    """A judge that is busy every other time, when it has its answer."""
    answer = await complete(f"Is this polite? {outputs}", schema=_POLITE, temperature=0.0)
    if next(_asked) % 2:
        raise BusyError
    return bool(answer.parsed["polite"])


def polite_at_once(outputs: dict[str, Any], complete: Any) -> bool:
    """A judge that waits for its model."""
    return bool(complete(f"Is this polite? {outputs}", schema=_POLITE).parsed["polite"])


def longer_than(outputs: dict[str, Any], *, characters: int = 0) -> bool:
    return len(str(outputs["output"])) > characters


def wants_the_moon(outputs: dict[str, Any], moon: str) -> bool:
    return bool(outputs and moon)


def upper(question: str) -> str:
    return question.upper()
