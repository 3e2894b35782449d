from decimal import Decimal
from typing import Any

from evalflows.evaluators.direction import needs_reference
from evalflows.evaluators.number import EXACT, Number, number_in
from evalflows.evaluators.score import Score
from evalflows.evaluators.text import pick, reference_value


@needs_reference
def numeric_closeness(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    absolute: float = 0.0,
    relative: float = 1e-6,
    key: str | None = None,
) -> Score | None:
    """Whether the last number of the answer equals the reference's, up to a tolerance.

    The tolerance is the larger of `absolute` and `relative` times the reference. The comment says which numbers were
    read. False for an answer without a number; None without a reference; an error for a reference without a number. How
    numbers are read: see evaluators/number.py. It cannot see which number is the answer (it takes the last number, even
    a year or a footnote), nor a percent sign, unit or word after a number: 50% is 50, and 5 million is 5. It never
    reads a comma, as in 1,234, as a decimal comma.
    """
    absolute_tolerance, relative_tolerance = _tolerance(absolute, "absolute"), _tolerance(relative, "relative")
    reference = reference_value(reference_outputs, key)
    if reference is None:
        return None
    expected, answer = _number(reference, "reference"), _number(pick(outputs, key), "answer")
    if expected is None:
        raise ValueError(f"no number in the reference {_short(repr(reference))}")
    if answer is None:
        return Score(value=False, comment="no number in the answer")
    tolerance = max(absolute_tolerance, EXACT.multiply(relative_tolerance, expected.value.copy_abs()))
    close = answer.value == expected.value or EXACT.subtract(answer.value, expected.value).copy_abs() <= tolerance
    return Score(value=close, comment=f"read {_shown(answer)}, wanted {_shown(expected)}")


def _tolerance(value: float, name: str) -> Decimal:
    if not isinstance(value, int | float) or not 0 <= value < float("inf"):  # YAML reads 1e-3 as text, 1.0e-3 not
        raise ValueError(f"{name}: got {value!r}, wanted a number of at least 0, such as 0.001")
    return Decimal(repr(value))


def _number(value: Any, side: str) -> Number | None:
    if isinstance(value, dict | list | tuple):
        raise ValueError(f"{side}: got a {type(value).__name__}, wanted a text or a number; `key` names the field")
    return number_in(value)


def _shown(number: Number) -> str:
    written, value = _short(number.written), _short(str(number.value))
    return value if written == value else f"{written} ({value})"


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:20]}…{text[-19:]}"
