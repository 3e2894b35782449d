"""Rows of the table `checks`, made of Great Expectations' results."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from evalflows.store.records import CheckRow, derived_id, to_json

SHOWN_VALUES = 20
"""Unexpected values that a result keeps."""


def merged(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the results of an expectation about single rows, on blocks of rows, as one on all of them.

    Of several that raised, the first stays.
    """
    raised = [result for result in results if _raised(result.get("exception_info") or {})]
    first, figures = dict((raised or results)[0]), [result.get("result") or {} for result in results]
    if raised or len(results) == 1:
        return first
    sums = {name: sum(each.get(name) or 0 for each in figures) for name in _SUMS}
    counted = sums["element_count"] - sums["missing_count"]
    whole = {
        **sums,
        "unexpected_percent": _percent(sums["unexpected_count"], counted),
        **{name: [value for each in figures for value in each.get(name) or ()][:SHOWN_VALUES] for name in _SHOWN},
    }
    if any("missing_percent" in each for each in figures):
        whole["missing_percent"] = _percent(sums["missing_count"], sums["element_count"])
    return first | {"success": all(result["success"] for result in results), "result": whole}


def _percent(count: int, of: int) -> float | None:
    return count / of * 100 if of else None


_SUMS = ("element_count", "unexpected_count", "missing_count")
_SHOWN = ("partial_unexpected_list", "partial_unexpected_index_list")
"""The unexpected values, and for each the row that it is in: {column: value}, if that was asked for."""


def check_row(result: Mapping[str, Any], kind: Literal["snapshot", "experiment"], subject: str, batch: str) -> CheckRow:
    """Return the row of a result. A check that raised has not passed, whatever `success` says."""
    config = result["expectation_config"]
    figures = _with_places(result.get("result") or {}, config["kwargs"].get("column"))
    kwargs = {name: value for name, value in config["kwargs"].items() if name != "batch_id"}
    raised = _raised(result.get("exception_info") or {})
    return CheckRow(
        check_id=derived_id(batch, config["type"], to_json(kwargs)),
        batch_id=batch,
        subject_kind=kind,
        subject_id=subject,
        name=config["type"],
        column_name=kwargs.get("column"),
        passed=None if raised else bool(result["success"]),
        severity="error" if config.get("severity", "critical") == "critical" else "warning",
        n_checked=figures.get("element_count"),
        n_unexpected=figures.get("unexpected_count"),
        observed=to_json(_observed(figures)),
        expected=to_json(kwargs),
        message=raised or _message(config["type"], kwargs, figures, success=bool(result["success"])),
    )


def _with_places(figures: Mapping[str, Any], column: str | None) -> dict[str, Any]:
    """Return figures with the row of each unexpected value, but for that value; without, if no columns tell it."""
    rows = figures.get("partial_unexpected_index_list") or ()
    places = [{name: value for name, value in row.items() if name != column} for row in rows if isinstance(row, dict)]
    return dict(figures) | {"partial_unexpected_index_list": places or None}


def _raised(information: Mapping[str, Any]) -> str | None:
    """Return the error raised inside Great Expectations, which reports it only here."""
    nested = [details for details in information.values() if isinstance(details, Mapping)]
    for details in [information, *nested]:
        if details.get("raised_exception"):
            return f"could not be checked: {' '.join(str(details.get('exception_message')).split())}"
    return None


def _observed(figures: Mapping[str, Any]) -> dict[str, Any]:
    names = ("observed_value", "unexpected_percent", "missing_percent", *_SHOWN)
    return {name: figures[name] for name in names if figures.get(name) is not None}


def _message(type_: str, kwargs: Mapping[str, Any], figures: Mapping[str, Any], *, success: bool) -> str:
    what = type_.removeprefix("expect_").replace("_", " ")
    column, condition = kwargs.get("column"), kwargs.get("row_condition")
    rest = ", ".join(f"{name} {value}" for name, value in kwargs.items() if name not in _SAID)
    where = f" where {_condition(condition)}" if condition else ""
    wanted = f"{f'{column}: ' if column else ''}{what}{f' ({rest})' if rest else ''}{where}"
    if success:
        return wanted
    if not figures.get("unexpected_count"):
        return f"wanted {wanted}; got {figures.get('observed_value', 'nothing')}"
    share = f"{figures['unexpected_count']} of {figures['element_count']} fail"
    return f"wanted {wanted}; {share}, such as {', '.join(found_values(figures)[:3])}"


_SAID = ("column", "severity", "row_condition")


def _condition(condition: object) -> str:
    """Return in words the conditions that our expectations have: a column is filled, or compared with values."""
    if not isinstance(condition, Mapping) or "column" not in condition:
        return str(condition)
    column = condition["column"]["name"]
    if condition.get("type") == "nullity":
        return f"{column} is {'null' if condition['is_null'] else 'not null'}"
    return f"{column} {str(condition.get('operator')).lower()} {condition.get('parameter')}"


def found_values(figures: Mapping[str, Any]) -> list[str]:
    """Return the unexpected values that a result keeps, each with its row if that is known."""
    values = [repr(value) for value in figures.get("partial_unexpected_list") or ()]
    rows = figures.get("partial_unexpected_index_list")
    if not rows:
        return values
    places = [", ".join(f"{name} {value}" for name, value in sorted(row.items()) if value is not None) for row in rows]
    return [f"{value} ({place})" for value, place in zip(values, places, strict=False)]
