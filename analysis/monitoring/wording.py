"""Texts of alerts: short, with the figures that a person on call needs."""

from datetime import datetime, timedelta

from evalflows.reports.figures import estimate, figure
from evalflows.specs.watching import ALL, TRACES, WatchSpec
from evalflows.store.trace_records import WatchedWindowRow


def alarm_text(rule: WatchSpec, row: WatchedWindowRow, *, margin: float, threshold: float) -> str:
    """Return what an alarm says; `threshold` is the e-value at which a change alarms."""
    said = {"threshold": _threshold, "failure_share": _failures, "fall": _fall, "change": _change}[rule.kind]
    margin_said = f", margin {figure(margin, rule.metric)}" if margin else ""
    evidence = f", evidence {row.evidence:.3g} (alarm at {threshold:.0f})" if row.evidence is not None else ""
    return f"{_slice(row)}{said(rule, row)}{margin_said}{evidence}; {counts(row)}"


def recovered_text(row: WatchedWindowRow) -> str:
    return (
        f"{_slice(row)}{_name(row)} recovered: {_value(row)} {window_text(row.window_start, row.size)}; {counts(row)}"
    )


def closed_text(row_metric: str, part: str, why: str) -> str:
    """Return what the end of an incident without a recovery says."""
    return f"{'' if part == ALL else f'{part}: '}{row_metric} closed: {why}"


def counts(row: WatchedWindowRow) -> str:
    return f"n {row.n}" + (f", {row.missing} missing" if row.missing and row.kind != "failure_share" else "")


def window_text(start: datetime, size: str) -> str:
    """Return a window in words: its day, or the day and hour."""
    return f"{'on' if size == 'day' else 'at'} {_when(start, size)}"


def _when(start: datetime, size: str) -> str:
    if size == "day":
        return f"{start:%Y-%m-%d}"
    return f"{start:%Y-%m-%d %H:%M}-{start + timedelta(hours=1):%H:%M} UTC"


def _threshold(rule: WatchSpec, row: WatchedWindowRow) -> str:
    side, bound = ("below", rule.minimum) if rule.minimum is not None else ("above", rule.maximum)
    when = window_text(row.window_start, row.size)
    return f"{row.metric} {_value(row)} {when}, {side} {figure(bound, row.metric)}"


def _failures(rule: WatchSpec, row: WatchedWindowRow) -> str:
    when = window_text(row.window_start, row.size)
    return f"{_name(row)} {_value(row)} {when}, above {rule.maximum:.3%}".replace(".000%", "%")


def _fall(rule: WatchSpec, row: WatchedWindowRow) -> str:
    before = "the window before" if rule.against in (None, "previous") else f"experiment {rule.against}"
    when = window_text(row.window_start, row.size)
    return f"{row.metric} {_value(row)} {when}, worse than {figure(row.reference, row.metric)} of {before}"


def _change(rule: WatchSpec, row: WatchedWindowRow) -> str:
    since = _when(row.since, row.size) if row.since else "-"
    return f"{row.metric} {_value(row)} since {since}, worse than {figure(row.reference, row.metric)} before"


def _value(row: WatchedWindowRow) -> str:
    if row.kind == "failure_share":
        value = "-" if row.value is None else f"{row.value:.1%}"
        ends = "" if row.ci_low is None or row.ci_high is None else f" [{row.ci_low:.1%}, {row.ci_high:.1%}]"
        return value + ends
    return " ".join(filter(None, estimate(row.value, row.ci_low, row.ci_high, row.metric)))


def _name(row: WatchedWindowRow) -> str:
    if row.kind != "failure_share":
        return row.metric
    return "failed traces" if row.metric == TRACES else f"failed judgements of {row.metric}"


def _slice(row: WatchedWindowRow) -> str:
    return "" if row.slice == ALL else f"{row.slice}: "
