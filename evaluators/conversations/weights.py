"""How much each turn of a conversation weighs."""

from collections.abc import Sequence
from typing import Any

from evaluators.settings import is_number
from specs.conversation import Turn
from specs.errors import short


def weights_of(judged: Sequence[Turn], n_turns: int, early_weight: float) -> list[float]:
    """`early_weight` for a turn of the first half (number <= n_turns / 2), else 1. One turn alone is not early."""
    return [early_weight if 2 * turn.number <= n_turns else 1.0 for turn in judged]


def a_weight(setting: str, got: Any, most: float | None = None) -> float:
    """A number above 0; with `most`, one from 0 to that. Raises ValueError."""
    wanted = "above 0" if most is None else f"from 0 to {most:g}"
    if not is_number(got) or got < 0 or (most is None and got == 0) or (most is not None and got > most):
        raise ValueError(f"{setting}: got {short(got)}, wanted a number {wanted}")
    return float(got)
