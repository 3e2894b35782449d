"""The checks of a snapshot by Great Expectations: expectations of ours, then those of the spec."""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import pandas as pd

from evalflows.specs.dataset import Expectation
from evalflows.specs.errors import InputError
from evalflows.store.records import CheckRow, ExampleRow, derived_id, to_json

TEXTS = ("inputs", "reference_outputs", "metadata")
"""The columns that hold JSON."""

LONG, SHOWN = 2000, 200
"""Characters from which a text is checked by a stand-in, and how many of them that shows."""


def run_expectations(examples: Sequence[ExampleRow], own: Sequence[Expectation], batch: str) -> list[CheckRow]:
    """Check the examples, one row per expectation. Raise InputError for an unknown or misconfigured expectation."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx  # takes seconds to import
    from great_expectations.data_context.types.base import ProgressBarsConfig

    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    frame = as_frame(examples, own)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("snapshot").add_dataframe_asset("examples")
    whole = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    suite = gx.ExpectationSuite(name="examples")
    for expectation in [*_ours(frame), *own]:
        suite.add_expectation(_configured(expectation))
    results = whole.validate(suite, result_format="SUMMARY")
    return [_row(result.to_json_dict(), examples[0].snapshot_id, batch) for result in results.results]


def as_frame(examples: Iterable[ExampleRow], own: Sequence[Expectation] = ()) -> pd.DataFrame:
    """One row per example: its columns, and each field of inputs, references and metadata. Blank text is null.

    Long texts have stand-ins, so that a dataset may be larger than memory, except in columns that `own` name.
    """
    whole = "\n".join(to_json(expectation.kwargs) for expectation in own)
    rows = []
    for example in examples:
        row: dict[str, Any] = {
            name: getattr(example, name) for name in ("example_id", "position", "split", "cluster", *TEXTS)
        }
        for name in TEXTS:
            row |= {f"{name}.{field}": value for field, value in _fields(getattr(example, name)).items()}
        row["filled_inputs"] = sum(value is not None for value in _fields(example.inputs).values())
        rows.append({name: value if _is_named(name, whole) else _stand_in(name, value) for name, value in row.items()})
    return pd.DataFrame(rows).astype(object).where(lambda frame: frame.notna(), None)


@cache
def _is_named(column: str, whole: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(column)}(?![\w.])", whole) is not None


def _stand_in(column: str, value: Any) -> Any:
    """Return a short text for a long one: equal for equal texts, and JSON for JSON where the column holds that."""
    if not isinstance(value, str) or len(value) < LONG:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()
    short = f"{value[:SHOWN]}… ({len(value):,} characters, SHA-256 {digest})"
    return to_json(short) if column in TEXTS and _is_json(value) else short


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _fields(text: str | None) -> dict[str, Any]:
    """Return the fields of a JSON object; empty if the text is not one, which has its own check."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return {name: _plain(field) for name, field in value.items()} if isinstance(value, dict) else {}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.strip() else None
    return to_json(value) if isinstance(value, list | dict) else value


def _ours(frame: pd.DataFrame) -> list[Expectation]:
    def expect(type_: str, column: str, severity: str = "critical", **kwargs: Any) -> Expectation:
        fields = {"type": type_, "kwargs": {"column": column} | kwargs, "severity": severity}
        return Expectation.model_validate(fields)

    expectations = [
        expect("expect_column_values_to_be_unique", "example_id"),
        expect("expect_column_values_to_not_be_null", "example_id"),
        expect("expect_column_values_to_not_be_null", "inputs"),
        expect("expect_column_values_to_be_between", "filled_inputs", min_value=1),
        expect("expect_column_values_to_be_unique", "inputs", "warning"),
    ]
    expectations += [
        expect("expect_column_values_to_be_json_parseable", name) for name in TEXTS if frame[name].notna().any()
    ]
    if frame["reference_outputs"].notna().any():
        expectations.append(expect("expect_column_values_to_not_be_null", "reference_outputs", "warning"))
    fields = [name for name in frame.columns if name.startswith("inputs.")]
    return expectations + [expect("expect_column_values_to_not_be_null", name, "warning") for name in fields]


def _configured(expectation: Expectation) -> Any:
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metadata_types import FailureSeverity

    try:
        return ExpectationConfiguration(
            type=expectation.type, kwargs=expectation.kwargs, severity=FailureSeverity(expectation.severity)
        ).to_domain_obj()
    except Exception as error:  # raised by Great Expectations or its pydantic
        raise InputError(f"expectation {expectation.type!r}: {' '.join(str(error).split())}") from error


def _row(result: Mapping[str, Any], snapshot: str, batch: str) -> CheckRow:
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
