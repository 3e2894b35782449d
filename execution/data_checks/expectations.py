"""The checks of a snapshot by Great Expectations: expectations of ours, then those of the spec.

Ours see the examples in blocks, or one column, so that the memory does not grow with the dataset. Those of the spec
may ask for anything, and see whole columns: those that they name, or all if one names none.
"""

from collections.abc import Sequence

import pandas as pd

from evalflows.execution.data_checks.check_rows import check_row
from evalflows.execution.data_checks.frames import (
    FILLED,
    TEXTS,
    UNIQUE,
    Overview,
    as_frame,
    blocks,
    is_named,
    overview,
    unique_column,
)
from evalflows.execution.data_checks.result_expectations import expect
from evalflows.execution.data_checks.validator import Validator
from evalflows.specs.dataset import Expectation
from evalflows.store.records import CheckRow, ExampleRow, to_json


def run_expectations(examples: Sequence[ExampleRow], own: Sequence[Expectation], batch: str) -> list[CheckRow]:
    """Check the examples, one row per expectation. Raise InputError for an unknown or misconfigured expectation."""
    validator, view = Validator(), overview(examples, TEXTS if own else ("inputs",))
    of_rows = _of_rows(view)
    columns = [*dict.fromkeys(str(expectation.kwargs["column"]) for expectation in of_rows)]
    results = validator.validate_blocks(blocks(examples, columns), of_rows)
    for expectation in _unique():
        column = unique_column(examples, str(expectation.kwargs["column"]), view)
        results += validator.validate(column, [expectation])
    if own:
        results += validator.validate(_whole(examples, own, view), own)
    return [check_row(result, "snapshot", examples[0].snapshot_id, batch) for result in results]


def _whole(examples: Sequence[ExampleRow], own: Sequence[Expectation], view: Overview) -> pd.DataFrame:
    """Return the columns that the expectations name, or all if one of them names none."""
    texts = [to_json(expectation.kwargs) for expectation in own]
    named = {name for name in view.columns if any(is_named(name, text) for text in texts)}
    names_each = all(any(is_named(name, text) for name in view.columns) for text in texts)
    columns = [name for name in view.columns if name in named] if names_each else view.columns
    return as_frame(examples, columns, "\n".join(texts))


def _unique() -> list[Expectation]:
    severities = dict(zip(UNIQUE, ("critical", "warning"), strict=True))
    return [expect("be_unique", name, severities[name]) for name in UNIQUE]


def _of_rows(view: Overview) -> list[Expectation]:
    """Return our expectations about single rows."""
    expectations = [
        expect("not_be_null", "example_id"),
        expect("not_be_null", "inputs"),
        expect("be_between", FILLED, min_value=1),
    ]
    expectations += [expect("be_json_parseable", name) for name in TEXTS if name in view.filled]
    if "reference_outputs" in view.filled:
        expectations.append(expect("not_be_null", "reference_outputs", "warning"))
    fields = [name for name in view.columns if name.startswith("inputs.")]
    return expectations + [expect("not_be_null", name, "warning") for name in fields]
