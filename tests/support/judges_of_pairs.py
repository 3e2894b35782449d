"""Pairwise evaluators that tests name as `judges_of_pairs:…`, in this process and in others."""

from typing import Any


def by_text(outputs: list[dict[str, Any]]) -> str:
    """The answer that comes later in the alphabet."""
    first, second = (str(one) for one in outputs)
    return "tie" if first == second else "A" if first > second else "B"
