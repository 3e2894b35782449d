"""Numbers, p-values, shares and intervals as text, with as many digits as they bear."""

from collections.abc import Iterable, Sequence

from evalflows.specs.metric_names import LENGTH, MEASURES

MOST_DIGITS = {"cost": 6, "tokens": 1, LENGTH: 1}
"""Digits after the point, at most. Other metrics have 3; a small cost has more, for two significant digits."""

NO_CALLS = "no model calls"

ONLY_JUDGE_DIFFERS = "the answers are the same: the judge differs"

NOISE = 1e-12
"""What is smaller comes from rounding in the computation."""

MORE_AT_A_MARK = 3
"""Digits, beyond the most of a metric, that show on which side of a mark an end lies."""


def figure(value: float | None, metric: str, *, signed: bool = False, digits: int | None = None) -> str:
    """Format a number with the given digits after the point, by default as many as suit its metric; None as `-`."""
    if value is None:
        return "-"
    text = f"{value:{'+' if signed else ''}.{_most(metric, value) if digits is None else digits}f}"
    return text.replace("-", "+" if signed else "") if float(text) == 0 else text


def given_figure(value: float, metric: str) -> str:
    """Format a number that somebody has given, not rounded."""
    text = figure(value, metric)
    return text if float(text) == value else f"{value:g}"


def usd(amount: float) -> str:
    """Format an amount of money: four digits after the point, or two significant ones if it is small."""
    return f"{amount:.{max(4, _most('cost', amount)) if 0 < amount < 0.001 else 4}f}"


def tokens_text(tokens_in: int | None, tokens_out: int | None) -> str | None:
    """Return numbers of tokens, such as `120+34`; None if neither is known."""
    if tokens_in is None and tokens_out is None:
        return None
    return "+".join("?" if count is None else str(count) for count in (tokens_in, tokens_out))


def calls_text(calls: int, from_ledger: int, paid: float | None, about: str = "", requests: int = 0) -> str:
    """Say how many model calls were made and what was paid in USD, None if unknown; `about` says how exact that is.

    Of the calls, `requests` went to an application, which may have called models or not.
    """
    if calls == from_ledger == 0 and not paid:
        return NO_CALLS
    cost = "cost unknown" if paid is None else f"{about}{usd(paid)} USD" if calls or paid else "nothing paid"
    others = f" and {requests} requests to the application" if requests else ""
    return f"{calls - requests} model calls{others}, {from_ledger} from the ledger, {cost}"


def shares_text(cached: float | None, reasoning: float | None) -> str:
    """Say which shares of tokens the provider had cached, and the model thought in; empty if there are none."""
    shares = ((cached, "input tokens cached"), (reasoning, "output tokens thought"))
    return ", ".join(f"{share:.0%} of {what}" for share, what in shares if share)


def assumed_direction(metric: str, is_declared: bool, means: Iterable[float | None]) -> str | None:
    """Say which direction of a metric is taken if nothing declares it, or a range, and its means are no shares."""
    if is_declared or metric in MEASURES or all(mean is None or 0 <= mean <= 1 for mean in means):
        return None
    return (
        f"{metric}: higher counts as better, since nothing says otherwise; if lower is better, declare "
        f"metrics: {{{metric}: {{higher_is_better: false}}}}"
    )


def p_text(value: float | None) -> str:
    """Format a p-value; None as an empty text."""
    return "" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def estimate(
    value: float | None,
    low: float | None,
    high: float | None,
    metric: str,
    *,
    signed: bool = False,
    marks: Sequence[float] = (),
) -> tuple[str, str]:
    """Format a value and its interval with as many digits as the interval bears; without one it is empty.

    `marks` are numbers that decide something, such as a threshold: see `digits_of`.
    """
    if low is None or high is None:
        shown = None if value is None else _telling(value, _most(metric, value), marks)
        return figure(value, metric, signed=signed, digits=shown), ""
    most = _most(metric, low, high)
    if metric == "cost" and high - low > NOISE:  # enough for the ends of a small cost to differ
        most = min(most + 2, max(most, _most(metric, (high - low) / 2) - 1))
    digits = digits_of(low, high, most, marks)
    digits = digits if value is None else _telling(value, digits, marks)
    ends = [figure(end, metric, signed=signed, digits=digits) for end in (low, high)]
    return figure(value, metric, signed=signed, digits=digits), f"[{', '.join(ends)}]"


def estimate_text(
    value: float | None, low: float | None, high: float | None, metric: str, *, signed: bool = False
) -> str:
    """Format a value with its interval, if it has one; 0 is a mark of a signed one."""
    return " ".join(filter(None, estimate(value, low, high, metric, signed=signed, marks=(0,) if signed else ())))


def percent(share: float | None, low: float | None, high: float | None) -> str:
    """Format a share with its interval, if it has one; None as `-`."""
    return " ".join(filter(None, percent_estimate(share, low, high)))


def percent_estimate(share: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    """Format a share and its interval in percent, with at most one digit after the point; 50 % is a mark."""
    if share is None:
        return "-", ""
    if low is None or high is None:
        return f"{share:.1%}", ""
    digits = digits_of(100 * low, 100 * high, 1, marks=(50,))
    return f"{share:.{digits}%}", f"[{low:.{digits}%}, {high:.{digits}%}]"


def digits_of(low: float, high: float, most: int, marks: Sequence[float] = ()) -> int:
    """Return the digits after the point with which half the interval's width has two significant digits.

    At most `most`, but up to MORE_AT_A_MARK others if rounding moved one end onto a mark: the text would then hide on
    which side of it the end lies.
    """
    half = abs(high - low) / 2
    digits = most if half == 0 else min(most, max(0, 1 - int(f"{half:.1e}".partition("e")[2])))

    def hidden(digits: int) -> int:
        return sum(any(_is_hidden(end, mark, digits) for mark in marks) for end in (low, high))

    more = MORE_AT_A_MARK if hidden(most) == 1 else 0
    return next((enough for enough in range(digits, most + more + 1) if not hidden(enough)), digits)


def _telling(value: float, digits: int, marks: Sequence[float]) -> int:
    """Return the digits, or up to MORE_AT_A_MARK more, with which a value does not look like a bound that it misses."""
    bounds = [mark for mark in marks if mark]
    some = range(digits, digits + MORE_AT_A_MARK + 1)
    return next((enough for enough in some if not any(_is_hidden(value, mark, enough) for mark in bounds)), digits)


def _is_hidden(end: float, mark: float, digits: int) -> bool:
    return abs(end - mark) > NOISE and round(end, digits) == round(mark, digits)


def _most(metric: str, *values: float) -> int:
    """Return the most digits after the point for values of a metric."""
    most, largest = MOST_DIGITS.get(metric, 3), max(map(abs, values))
    if metric != "cost" or largest < NOISE:
        return most
    return max(most, 1 - int(f"{largest:.1e}".partition("e")[2]))


def detected_by(ends: tuple[float, float], value: float, standard_error: float, power: float) -> float:
    """Return how far a true difference must be from a bound that such an interval excludes it with this power: its
    longer half, and what chance may take away."""
    from statistics import NormalDist  # late: few decisions need it

    return max(ends[1] - value, value - ends[0]) + NormalDist().inv_cdf(power) * standard_error


def allows_for_rare_values(method: str) -> bool:
    """Return whether an interval is that of `stats.bounded_means`, by the name of its method in results."""
    return method.startswith("gaffke")
