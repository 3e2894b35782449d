"""Numbers, p-values and intervals as text."""


def figure(value: float | None, metric: str, *, signed: bool = False) -> str:
    """Format a number with as many digits as suit its metric; None as `-`."""
    if value is None:
        return "-"
    digits = {"cost": 6, "tokens": 1, "length": 1}.get(metric, 3)
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    return text.replace("-", "+" if signed else "") if float(text) == 0 else text


def p_text(value: float | None) -> str:
    """Format a p-value; None as an empty text."""
    return "" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def span(low: float | None, high: float | None, metric: str, *, signed: bool = False) -> str:
    """Format an interval; empty if either end is None."""
    if low is None or high is None:
        return ""
    return f"[{figure(low, metric, signed=signed)}, {figure(high, metric, signed=signed)}]"
