"""The expectations of a spec, run by Great Expectations, which is loaded for them only: its import takes seconds."""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter, ValidationError

from evalflows.specs.dataset import DatasetSpec, Expectation
from evalflows.specs.errors import InputError, first_problem
from evalflows.specs.files import located
from evalflows.store.file_formats import parse_json
from evalflows.store.queries.checked_columns import TEXTS
from evalflows.store.records import ExampleRow, from_json, to_json
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store

SHOWN_VALUES = 20
"""Unexpected values that a result keeps."""

_EXPECTATIONS = TypeAdapter(list[Expectation])


def load_expectations(source: Sequence[Expectation] | str | None) -> list[Expectation]:
    """Return the given expectations, or read them from a suite file in Great Expectations' format.

    Raise InputError if the file cannot be read or is not a suite.
    """
    if not isinstance(source, str):
        return list(source or ())
    try:
        content = parse_json(located(source).read_bytes(), source)
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror or error}") from error
    expectations = content.get("expectations") if isinstance(content, dict) else content
    if not isinstance(expectations, list):
        got = type(expectations).__name__
        raise InputError(f"{source}: got {got}, wanted a list of expectations, or a suite with 'expectations'")
    try:
        return _EXPECTATIONS.validate_python(expectations)
    except ValidationError as error:
        raise InputError(first_problem(error, source, list[Expectation])) from error


def suite_results(store: Store, dataset: DatasetSpec) -> list[dict[str, Any]]:
    """Return the results of a frozen dataset's own expectations; none if it has none.

    Raise InputError for an unknown or misconfigured expectation.
    """
    if not (own := load_expectations(dataset.expectations)):
        return []
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx  # takes seconds to import
    import pandas as pd
    from great_expectations.data_context.types.base import ProgressBarsConfig

    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    context = gx.get_context(mode="ephemeral")
    suite = gx.ExpectationSuite(name="rows")
    for expectation in own:
        suite.add_expectation(_configured(expectation))
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("rows")
    columns, rows = _table(load_snapshot(store, dataset.snapshot or ""), [to_json(each.kwargs) for each in own])
    frame = pd.DataFrame(rows, columns=columns, dtype=object).where(lambda frame: frame.notna(), None)
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    form = {"result_format": "SUMMARY", "partial_unexpected_count": SHOWN_VALUES}
    return [_result(result.to_json_dict()) for result in batch.validate(suite, result_format=form).results]


def _configured(expectation: Expectation) -> Any:
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metadata_types import FailureSeverity

    try:
        return ExpectationConfiguration(
            type=expectation.type, kwargs=expectation.kwargs, severity=FailureSeverity(expectation.severity)
        ).to_domain_obj()
    except Exception as error:  # raised by Great Expectations or its pydantic
        raise InputError(f"expectation {expectation.type!r}: {' '.join(str(error).split())}") from error


def _table(examples: Sequence[ExampleRow], kwargs: Sequence[str]) -> tuple[list[str], list[list[Any]]]:
    """Return the columns that these expectations name, or all if one of them names none, and their rows."""
    every = dict.fromkeys(("example_id", "position", "split", "cluster", *TEXTS))
    for example in examples:
        every |= dict.fromkeys(f"{name}.{field}" for name in TEXTS for field in _object(getattr(example, name)))
    patterns = {column: re.compile(rf"(?<![\w.]){re.escape(column)}(?![\w.])") for column in every}
    named = [{column for column, pattern in patterns.items() if pattern.search(text)} for text in kwargs]
    columns = [column for column in every if not all(named) or column in set().union(*named)]
    return columns, [_row(example, columns) for example in examples]


def _row(example: ExampleRow, columns: Sequence[str]) -> list[Any]:
    """Return columns of an example, and fields of its texts, in which blank text is null."""
    objects = {name: _object(getattr(example, name)) for name in TEXTS}
    fields = {f"{name}.{field}": value for name, content in objects.items() for field, value in content.items()}
    return [_plain(fields.get(name)) if "." in name else getattr(example, name) for name in columns]


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.strip() else None
    return to_json(value) if isinstance(value, list | dict) else value


def _object(text: str | None) -> Mapping[str, Any]:
    with suppress(ValueError):  # a check of ours tells of a text that is not JSON
        if isinstance(value := from_json(text), dict):
            return value
    return {}


def _result(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as `checks.py` reads it. What is raised inside Great Expectations is reported in it alone."""
    config, exceptions = found["expectation_config"], found.get("exception_info") or {}
    each = [exceptions, *(details for details in exceptions.values() if isinstance(details, Mapping))]
    messages = [details.get("exception_message") for details in each if details.get("raised_exception")]
    return {
        "expectation": {
            "type": config["type"],
            "kwargs": {name: value for name, value in config["kwargs"].items() if name != "batch_id"},
            "severity": config.get("severity", "critical"),
        },
        "success": found["success"],
        "figures": {name: value for name, value in (found.get("result") or {}).items() if "index" not in name},
        "raised": f"could not be checked: {' '.join(str(messages[0]).split())}" if messages else None,
    }
