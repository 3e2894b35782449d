from decimal import Decimal
from typing import Any

from evaluators.answer import reference_value
from evaluators.number import EXACT, Number, number_in
from evaluators.score import Score
from evaluators.text import pick


def numeric_closeness(
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any] | None,
    *,
    absolute: float = 0.0,
    relative: float = 1e-6,
    key: str | None = None,
) -> Score | None:
    """Whether the last number of the answer is the reference's, but for `absolute` or `relative` (of the reference).

    The larger of the two counts. The comment says what was read. False for an answer without a number; None without a
    reference; an error for a reference without a number. How numbers are read: see evaluators/number.py. It cannot see
    which number is the answer (a year or a footnote behind it is taken for it), and no percent sign, unit or word
    behind a number: 50% is 50, 5 million is 5, and 1,234 is never a decimal comma.
    """
    least, share = _tolerance(absolute, "absolute"), _tolerance(relative, "relative")
    reference = reference_value(reference_outputs, key)
    if reference is None:
        return None
    wanted, answer = _number(reference, "reference"), _number(pick(outputs, key), "answer")
    if wanted is None:
        raise ValueError(f"no number in the reference {_short(repr(reference))}")
    if answer is None:
        return Score(value=False, comment="no number in the answer")
    tolerated = max(least, EXACT.multiply(share, wanted.value.copy_abs()))
    close = answer.value == wanted.value or EXACT.subtract(answer.value, wanted.value).copy_abs() <= tolerated
    return Score(value=close, comment=f"read {_shown(answer)}, wanted {_shown(wanted)}")


def _tolerance(given: float, name: str) -> Decimal:
    if not isinstance(given, int | float) or not 0 <= given < float("inf"):  # YAML reads 1e-3 as text, 1.0e-3 not
        raise ValueError(f"{name}: got {given!r}, wanted a number from 0 up, such as 0.001")
    return Decimal(repr(given))


def _number(value: Any, side: str) -> Number | None:
    if isinstance(value, dict | list | tuple):
        raise ValueError(f"{side}: got a {type(value).__name__}, wanted a text or a number; `key` names the field")
    return number_in(value)


def _shown(number: Number) -> str:
    written, value = _short(number.written), _short(str(number.value))
    return value if written == value else f"{written} ({value})"


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:20]}…{text[-19:]}"
