"""The checks of a snapshot by Great Expectations: expectations of ours, then those of the spec.

Ours see the examples in blocks, or one column, so that the memory does not grow with the dataset. Those of the spec
may ask for anything, and see whole columns: those that they name, or all if one names none.
"""

import logging
import os
from collections.abc import Sequence
from typing import Any

import pandas as pd

from evalflows.execution.data_checks.check_rows import check_row, merged
from evalflows.execution.data_checks.frames import (
    TEXTS,
    UNIQUE,
    Overview,
    as_frame,
    blocks,
    is_named,
    overview,
    unique_column,
)
from evalflows.specs.dataset import Expectation
from evalflows.specs.errors import InputError
from evalflows.store.records import CheckRow, ExampleRow, to_json

Results = list[dict[str, Any]]
"""One per expectation, as Great Expectations writes them in JSON."""


def run_expectations(examples: Sequence[ExampleRow], own: Sequence[Expectation], batch: str) -> list[CheckRow]:
    """Check the examples, one row per expectation. Raise InputError for an unknown or misconfigured expectation."""
    validator, view = Validator(), overview(examples)
    of_rows = _of_rows(view)
    parts = [validator.validate(frame, of_rows) for frame in blocks(examples, view)]
    results = [merged(of_one) for of_one in zip(*parts, strict=True)]
    for expectation in _unique():
        column = unique_column(examples, str(expectation.kwargs["column"]), view)
        results += validator.validate(column, [expectation])
    if own:
        results += validator.validate(_whole(examples, own, view), own)
    return [check_row(result, examples[0].snapshot_id, batch) for result in results]


class Validator:
    """Great Expectations with one data source, which takes frames."""

    def __init__(self) -> None:
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        import great_expectations as gx  # takes seconds to import
        from great_expectations.data_context.types.base import ProgressBarsConfig

        logging.getLogger("great_expectations").setLevel(logging.WARNING)
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        asset = context.data_sources.add_pandas("rows").add_dataframe_asset("rows")
        self._batches = asset.add_batch_definition_whole_dataframe("all")

    def validate(self, frame: pd.DataFrame, expectations: Sequence[Expectation]) -> Results:
        """Return a result for each expectation. Raise InputError for an unknown or misconfigured one."""
        import great_expectations as gx

        suite = gx.ExpectationSuite(name="rows")
        for expectation in expectations:
            suite.add_expectation(_configured(expectation))
        whole = self._batches.get_batch({"dataframe": frame})
        results = whole.validate(suite, result_format="SUMMARY").results
        return [result.to_json_dict() for result in results]


def _whole(examples: Sequence[ExampleRow], own: Sequence[Expectation], view: Overview) -> pd.DataFrame:
    """Return the columns that the expectations name, or all if one of them names none."""
    texts = [to_json(expectation.kwargs) for expectation in own]
    named = {name for name in view.columns if any(is_named(name, text) for text in texts)}
    names_each = all(any(is_named(name, text) for name in view.columns) for text in texts)
    columns = [name for name in view.columns if name in named] if names_each else view.columns
    return as_frame(examples, columns, "\n".join(texts))


def _unique() -> list[Expectation]:
    severities = dict(zip(UNIQUE, ("critical", "warning"), strict=True))
    return [_expect("expect_column_values_to_be_unique", name, severities[name]) for name in UNIQUE]


def _of_rows(view: Overview) -> list[Expectation]:
    """Return our expectations about single rows."""
    expectations = [
        _expect("expect_column_values_to_not_be_null", "example_id"),
        _expect("expect_column_values_to_not_be_null", "inputs"),
        _expect("expect_column_values_to_be_between", "filled_inputs", min_value=1),
    ]
    expectations += [
        _expect("expect_column_values_to_be_json_parseable", name) for name in TEXTS if name in view.filled
    ]
    if "reference_outputs" in view.filled:
        expectations.append(_expect("expect_column_values_to_not_be_null", "reference_outputs", "warning"))
    fields = [name for name in view.columns if name.startswith("inputs.")]
    return expectations + [_expect("expect_column_values_to_not_be_null", name, "warning") for name in fields]


def _expect(type_: str, column: str, severity: str = "critical", **kwargs: Any) -> Expectation:
    fields = {"type": type_, "kwargs": {"column": column} | kwargs, "severity": severity}
    return Expectation.model_validate(fields)


def _configured(expectation: Expectation) -> Any:
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metadata_types import FailureSeverity

    try:
        return ExpectationConfiguration(
            type=expectation.type, kwargs=expectation.kwargs, severity=FailureSeverity(expectation.severity)
        ).to_domain_obj()
    except Exception as error:  # raised by Great Expectations or its pydantic
        raise InputError(f"expectation {expectation.type!r}: {' '.join(str(error).split())}") from error
