"""Weights of the turns of a conversation."""

from collections.abc import Sequence
from typing import Any

from evalflows.evaluators.settings import is_number
from evalflows.specs.conversation import Turn
from evalflows.specs.errors import short


def weights_of(judged: Sequence[Turn], n_turns: int, early_weight: float) -> list[float]:
    """Return `early_weight` for turns of the first half (number <= n_turns / 2), else 1. A single turn is not early."""
    return [early_weight if 2 * turn.number <= n_turns else 1.0 for turn in judged]


def checked_weight(setting: str, got: Any, most: float | None = None) -> float:
    """Return a number above 0, or from 0 to `most` if that is set. Raise ValueError otherwise."""
    wanted = "above 0" if most is None else f"from 0 to {most:g}"
    if not is_number(got) or got < 0 or (most is None and got == 0) or (most is not None and got > most):
        raise ValueError(f"{setting}: got {short(got)}, wanted a number {wanted}")
    return float(got)
