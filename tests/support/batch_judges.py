"""Evaluators of one's own whose calls batches answer."""

from typing import Any


async def swallowing(outputs: dict[str, Any], complete: Any) -> float:
    """1 if two calls at a time were answered, whatever was raised before."""
    try:
        first = await complete(f"is it right? {outputs}")
        second = await complete(f"is it right? {outputs}")
    except BaseException:
        return 0.0
    return float(bool(first.text) and first.text == second.text)


def blocking(outputs: dict[str, Any], complete: Any) -> float:
    """1 once its call was answered, by a plain function."""
    try:
        return float(bool(complete(f"and this? {outputs}").text))
    except Exception:
        return 0.0


def of_scores(scores: Any) -> float:
    """The sum of the others."""
    return float(sum(scores[name].value for name in ("swallowing", "blocking")))
