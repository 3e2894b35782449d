"""Rows of the table `checks`, made of Great Expectations' results."""

from collections.abc import Mapping, Sequence
from typing import Any

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
    values = [value for each in figures for value in each.get("partial_unexpected_list") or ()]
    whole = {
        **sums,
        "unexpected_percent": 100.0 * sums["unexpected_count"] / counted if counted else None,
        "partial_unexpected_list": values[:SHOWN_VALUES],
    }
    if any("missing_percent" in each for each in figures):
        whole["missing_percent"] = 100.0 * sums["missing_count"] / sums["element_count"]
    return first | {"success": all(result["success"] for result in results), "result": whole}


_SUMS = ("element_count", "unexpected_count", "missing_count")


def check_row(result: Mapping[str, Any], snapshot: str, batch: str) -> CheckRow:
    """Return the row of a result. A check that raised has not passed, whatever `success` says."""
    config, figures = result["expectation_config"], result.get("result") or {}
    kwargs = {name: value for name, value in config["kwargs"].items() if name != "batch_id"}
    raised = _raised(result.get("exception_info") or {})
    return CheckRow(
        check_id=derived_id(batch, config["type"], to_json(kwargs)),
        batch_id=batch,
        subject_kind="snapshot",
        subject_id=snapshot,
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


def _raised(information: Mapping[str, Any]) -> str | None:
    """Return the error raised inside Great Expectations, which reports it only here."""
    nested = [details for details in information.values() if isinstance(details, Mapping)]
    for details in [information, *nested]:
        if details.get("raised_exception"):
            return f"could not be checked: {' '.join(str(details.get('exception_message')).split())}"
    return None


def _observed(figures: Mapping[str, Any]) -> dict[str, Any]:
    names = ("observed_value", "unexpected_percent", "missing_percent", "partial_unexpected_list")
    return {name: figures[name] for name in names if figures.get(name) is not None}


def _message(type_: str, kwargs: Mapping[str, Any], figures: Mapping[str, Any], *, success: bool) -> str:
    what = type_.removeprefix("expect_").replace("_", " ")
    column = kwargs.get("column")
    rest = ", ".join(f"{name} {value}" for name, value in kwargs.items() if name not in ("column", "severity"))
    wanted = f"{f'{column}: ' if column else ''}{what}{f' ({rest})' if rest else ''}"
    if success:
        return wanted
    got = (
        f"{figures['unexpected_count']} of {figures['element_count']} fail, such as "
        f"{', '.join(map(repr, figures.get('partial_unexpected_list', [])[:3]))}"
        if figures.get("unexpected_count")
        else f"got {figures.get('observed_value', 'nothing')}"
    )
    return f"wanted {wanted}; {got}"
