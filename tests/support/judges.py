"""Evaluators and targets that tests name as `judges:…`, in this process and in others."""

from typing import Any

from evalflows.specs import Complete


async def says_correct(
    inputs: dict[str, Any], outputs: dict[str, Any], reference_outputs: dict[str, Any], complete: Complete
) -> bool:
    """A judge of one call."""
    prompt = f"Question: {inputs}\nAnswer: {outputs}\nReference: {reference_outputs}\nSay CORRECT or INCORRECT."
    return (await complete(prompt)).text.strip() == "CORRECT"


def longer_than(outputs: dict[str, Any], *, characters: int = 0) -> bool:
    return len(str(outputs["output"])) > characters


def wants_the_moon(outputs: dict[str, Any], moon: str) -> bool:
    return bool(outputs and moon)


def upper(question: str) -> str:
    return question.upper()
