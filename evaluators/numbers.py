"""Read a number from a text, and compare it with the reference.

Digits that are part of something else are not a number and are never read in part: a word, also a hyphenated one (GPT4,
GPT-4, 5-year), a date or time (2024-05-17, 17.05.2024, 10:30), a range (3-5), a version (1.2.3), a sum or a power
(3+4, 2^10), a decimal comma (3,14), a tolerance (± 2), the number of a list item (1. Paris).
"""

import re
from decimal import Context, Decimal, InvalidOperation
from typing import Any, NamedTuple

from evalflows.evaluators.declarations import needs_reference
from evalflows.evaluators.paths import UNSPACED, pick, reference_value
from evalflows.evaluators.score import Score

EXACT = Context(prec=50, Emax=999_999_999, Emin=-999_999_999, traps=[])
"""Arithmetic without overflow errors."""

_MINUSES = "-\u2212\u2013"  # hyphen, minus sign, en dash
_SIGN = r"[+\-\u2212\u2013]"
_CURRENCY = "$€£¥₹₽₩₪₺₫₴₦₱฿₿¢"
_SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_GROUPING = r"_'\u2019\u00a0\u2009\u202f"  # and the comma
_PLAIN = str.maketrans(f"\u2212\u2013⁺⁻{_SUPERSCRIPT}", "--+-0123456789")

_TOLERANCE = re.compile(r"(?:±|\\pm|\+/-)\s*[\d.,]+")
_LIST_MARK = re.compile(r"^[ \t>#*_•(+-]*(?<!-)(\d{1,3})[.)](?=[*_]*[ \t]+\S)", re.MULTILINE)
_POWER_OF_TEN = re.compile(
    rf"(?:(?<=\d)(?P<times>\s*(?:[\u00d7xX*·⋅]|\\times|\\cdot)\s*)|(?<![\w.,^]))10"
    rf"(?:\s*(?:\^|\*\*)\s*[{{(]?(?P<raised>{_SIGN}?\d+)[}})]?|(?P<small>[⁺⁻]?[{_SUPERSCRIPT}]+))"
)
_TOKEN = re.compile(
    rf"(?:[^\W{UNSPACED}]|{_SIGN}|[{_CURRENCY}^]"
    rf"|(?<=\d)[.,:/\u2044*\u00d7{_GROUPING}](?=\d)|(?<=\d)%(?={_SIGN}\d)|(?<![\w.])\.(?=\d))+"
)
_FRACTION = re.compile(rf"(?P<sign>{_SIGN}?)(?:(?P<whole>\d+)\u202f)?(?P<above>\d+)[/\u2044](?P<below>\d+)")
_SPACED = re.compile(r"(?<![\w.,:/\u2044^])(?:(?!0)\d{1,3}(?: \d{3})+(?!\d)|\d+ \d+(?=[/\u2044]\d))")
"""Thousands grouped by spaces, and the whole number before a fraction."""
_NUMBER = re.compile(
    rf"""(?P<sign>{_SIGN}?) (?:[A-Z]{{0,3}}[{_CURRENCY}]+(?P<late_sign>{_SIGN}?))?
    (?P<digits>(?: (?!0)\d{{1,3}}(?P<group>[,{_GROUPING}])\d{{3}}(?:(?P=group)\d{{3}})*
        | (?!0)\d{{1,2}}(?:,\d\d)+,\d{{3}}  # as in India
        | \d+ )(?:\.\d+)? | \.\d+)
    (?P<exponent>[eE]{_SIGN}?\d+)?
    (?:[{_CURRENCY}]* | [^\W\d_{_SUPERSCRIPT}¼-¾⅐-⅞][^\W\d_]*)  # a unit after it: km, th""",
    re.VERBOSE,
)


class Number(NamedTuple):
    """A number and its text."""

    value: Decimal
    written: str


def number_in(value: Any) -> Number | None:
    """Return a number itself, or the last number in a text; None without one."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        exact = Decimal(value) if isinstance(value, int) else Decimal(repr(value))
        return Number(exact, str(exact)) if exact.is_finite() else None
    return last_number(value) if isinstance(value, str) else None


def last_number(text: str) -> Number | None:
    """Return the last number of a text; None without one.

    Thousands can be grouped by comma, apostrophe, underscore or space; the decimal mark is the point. 3/4 is a
    fraction, and 1 3/4 is 1.75. Percent and currency signs and units are ignored.
    """
    text = _POWER_OF_TEN.sub(_as_exponent, _TOLERANCE.sub(" ", _without_list_marks(text)))
    text = _SPACED.sub(lambda spaced: spaced[0].replace(" ", "\u202f"), text)
    numbers = (_read(token.strip("_").rstrip(f"+^{_MINUSES}")) for token in reversed(_TOKEN.findall(text)))
    return next((number for number in numbers if number is not None), None)


def _without_list_marks(text: str) -> str:
    """Remove list numbers 1. 2. 3. at the start of lines; another number there (`42. That is it`) stays."""
    following = 1

    def mark(match: re.Match[str]) -> str:
        nonlocal following
        if int(match[1]) not in (1, following):
            return match[0]
        following = int(match[1]) + 1
        return " "

    return _LIST_MARK.sub(mark, text)


def _as_exponent(match: re.Match[str]) -> str:
    """Rewrite `x 10^8` as e8, and 10^8 alone as 1e8."""
    exponent = (match["raised"] or match["small"]).translate(_PLAIN)
    return f"{'e' if match['times'] else '1e'}{exponent}"


def _read(token: str) -> Number | None:
    written = token.replace("\u202f", " ")
    try:
        if fraction := _FRACTION.fullmatch(token):
            whole, above, below = (Decimal(fraction[part] or 0) for part in ("whole", "above", "below"))
            value = EXACT.add(whole, EXACT.divide(above, below)) if below else None
            return None if value is None else Number(_signed(value, fraction["sign"]), written)
        if not (match := _NUMBER.fullmatch(token)):
            return None
        digits = match["digits"].replace(match["group"] or ",", "").replace(",", "")
        number = Decimal(digits + (match["exponent"] or "").translate(_PLAIN))
    except InvalidOperation:  # the exponent is out of range
        return None
    return Number(_signed(number, match["sign"] or match["late_sign"]), written)


def _signed(number: Decimal, sign: str | None) -> Decimal:
    return number.copy_negate() if sign and sign in _MINUSES else number


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
    numbers are read: see numbers.py. It cannot see which number is the answer (it takes the last number, even
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
