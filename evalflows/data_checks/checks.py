"""Great Expectations on examples and on results: frames, expectations of ours and of the spec, and Data Docs.

Only the process of the checks loads this.

Its view writes values of the data into the page as they are, and its page loads scripts, styles and a picture from
other servers. So what is special in HTML is replaced before and put in its place, escaped, afterwards; and the sections
stand in a page of ours, which allows neither scripts nor requests.

Ours see the examples in blocks, or one column, so that the memory does not grow with the dataset. Those of the spec
may ask for anything, and see whole columns: those that they name, or all if one names none.
"""

import hashlib
import logging
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from great_expectations.render.renderer.content_block.validation_results_table_content_block import (
    ValidationResultsTableContentBlockRenderer,
)
from great_expectations.render.util import num_to_str

from evalflows.data_checks.process import (
    SHOWN_VALUES,
    check_row,
    evaluators_of,
    expect,
    found_values,
    merged,
    of_outputs,
    of_runs,
    of_scores,
    of_summaries,
    ranges_of,
    summaries_of,
)
from evalflows.specs.dataset import Expectation
from evalflows.specs.errors import InputError, escaped
from evalflows.store.queries.result_columns import (
    PLACES,
    PLACES_OF_SCORES,
    PLACES_OF_SUMMARIES,
    output_columns,
    planned_runs,
    score_columns,
    summary_columns,
)
from evalflows.store.records import CheckRow, ExampleRow, ExperimentRow, from_json, to_json
from evalflows.store.row_specs import experiment_spec
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store

SPECIAL = "&<>\"'`${}[]()*\\"
"""Characters that could act in HTML, in Markdown, or in the templates of Great Expectations."""

SECTION = {
    "class_name": "ValidationResultsColumnSectionRenderer",
    "table_renderer": {
        "class_name": "ResultsTable",
        "module_name": "evalflows.data_checks.checks",
    },
}
"""The renderer of a column's checks, as Great Expectations wants it named."""

STAND_INS = str.maketrans({character: chr(0xFDD0 + place) for place, character in enumerate(SPECIAL)})
ENTITIES = str.maketrans({chr(0xFDD0 + place): f"&#{ord(character)};" for place, character in enumerate(SPECIAL)})
"""To and from noncharacters, which Unicode keeps free for such use."""


def page_of(title: str, checks: Sequence[CheckRow]) -> str:
    """Return the Data Docs of the checks of one batch, in HTML."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
    from great_expectations.render.view.view import DefaultJinjaPageView

    name = escaped(title).translate(STAND_INS)
    renderer = ValidationResultsPageRenderer(SECTION, run_info_at_end=True)
    document = renderer.render(_suite_result(name, checks))
    view = DefaultJinjaPageView()
    page = view.env.from_string(PAGE).render(title=name, **document.to_json_dict())
    return page.translate(ENTITIES)


def _suite_result(name: str, checks: Sequence[CheckRow]) -> Any:
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult

    held = sum(check.passed is True for check in checks)
    statistics = {
        "evaluated_expectations": len(checks),
        "successful_expectations": held,
        "unsuccessful_expectations": len(checks) - held,
        "success_percent": 100.0 * held / len(checks) if checks else None,
    }
    return ExpectationSuiteValidationResult(
        success=held == len(checks),
        results=[_result(check) for check in checks],
        suite_name=name,
        statistics=statistics,
        meta=_meta(name, checks[0]),
    )


def _meta(name: str, check: CheckRow) -> dict[str, Any]:
    """Return what the page says of all checks, of which this is one."""
    from great_expectations import __version__

    kind = "results of experiment" if check.subject_kind == "experiment" else check.subject_kind
    return {
        "great_expectations_version": __version__,
        "run_id": {"run_name": name, "run_time": str(check.recorded_at)},
        "batch_spec": {
            "datasource": "Evalflows",
            "data_asset_name": _safe(f"{kind} {check.subject_id}"),
            "batch_id": check.batch_id,
        },
    }


def _result(check: CheckRow) -> Any:
    """Return a check as the result that it was made of."""
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    observed: dict[str, Any] = from_json(check.observed) or {}
    if found := found_values(observed):
        observed["partial_unexpected_list"] = found
    observed.pop("partial_unexpected_index_list", None)  # is in those texts
    figures = {"element_count": check.n_checked, "unexpected_count": check.n_unexpected} | observed
    if check.n_checked and check.n_unexpected is not None:  # kept is the share of values, shown that of rows
        figures["unexpected_percent"] = 100 * check.n_unexpected / check.n_checked
    return ExpectationValidationResult(
        success=check.passed is True,
        expectation_config=ExpectationConfiguration(type=check.name, kwargs=_safe(from_json(check.expected) or {})),
        result=_safe({name: value for name, value in figures.items() if value is not None}),
        exception_info={
            "raised_exception": check.passed is None,
            "exception_message": _safe(check.message),
            "exception_traceback": "",
        },
    )


def _safe(value: Any) -> Any:
    """Return a value with stand-ins for what is special in its texts."""
    if isinstance(value, str):
        return escaped(value).translate(STAND_INS)
    if isinstance(value, Mapping):  # its keys are those of Great Expectations, as are operators such as `<=`
        return {name: field if name == "operator" else _safe(field) for name, field in value.items()}
    return [_safe(item) for item in value] if isinstance(value, list) else value


PAGE = r"""<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="UTF-8">
    <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
    <meta name="viewport" content="width=device-width, initial-scale=1.0">
    <title>{{ title }}</title>
    <style>
      body { font: 15px/1.5 sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222 }
      table { border-collapse: collapse; margin: .5em 0 } td, th { border: 1px solid #ccc; padding: .3em .6em }
      td, th { text-align: left; vertical-align: top; overflow-wrap: anywhere }
      .text-success { color: #1a7f37 } .text-danger, .alert-danger { color: #b3261e }
      .fa-check-circle::before { content: "\2713" }
      .fa-times::before, .fa-exclamation-triangle::before { content: "\2717" }
      a[href^=".."] { color: inherit; text-decoration: none; pointer-events: none } /* to pages of a larger site */
      .ge-section { border-top: 1px solid #ccc; margin-top: 1.5em } .badge-info { background: #eee; padding: 0 .3em }
    </style>
  </head>
  <body>
    {% for section in sections %}
      {% set section_loop = loop -%}
      {% include 'section.j2' %}
    {% endfor %}
  </body>
</html>
"""


OBSERVED = 2
"""The place of the observed value in a row, after the status and the expectation."""


class ResultsTable(ValidationResultsTableContentBlockRenderer):
    """Great Expectations' table, which says `unknown % not null` or `--` of columns without rows or values."""

    @classmethod
    def _get_content_block_fn(cls, expectation_type: str, expectation_config: Any = None) -> Callable[..., Any]:
        rows_of: Any = super()._get_content_block_fn(expectation_type, expectation_config)

        def rows_with_ours(**given: Any) -> Any:
            rows = rows_of(**given)
            if ours := _observed(given["result"]):
                rows[0][OBSERVED] = ours
            return rows

        return rows_with_ours


def _observed(result: Any) -> str | None:
    """Return what was observed where Great Expectations would not say it, or not all of it."""
    figures = result.result
    if result.exception_info["raised_exception"]:
        return "not checked"
    if figures.get("element_count") == 0:
        return "no rows"
    if figures.get("missing_percent") and "observed_value" not in figures:
        shares = (("unexpected_percent", "unexpected"), ("missing_percent", "null"))
        return ", ".join(f"{num_to_str(figures[name], precision=5)}% {what}" for name, what in shares)
    return None


TEXTS = ("inputs", "reference_outputs", "metadata")
"""The columns that hold JSON."""

UNIQUE = ("example_id", "inputs")
"""The columns whose values should differ."""

FILLED = "filled_inputs"
"""A column of ours: how many fields of the inputs are filled."""

LONG, SHOWN = 2000, 200
"""Characters from which a text is checked by a stand-in, and how many of them that shows."""

ROWS_AT_ONCE = 10_000
"""Examples in one frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What one reading of the examples tells of their columns."""

    columns: Sequence[str]  # with each field of the texts that were parsed
    filled: frozenset[str]  # those of TEXTS that an example has
    hashes: dict[str, "np.ndarray[Any, np.dtype[np.int64]]"]  # of each value of the columns in UNIQUE


def overview(examples: Iterable[ExampleRow], parsed: Sequence[str] = TEXTS) -> Overview:
    """Read the examples once, with the fields of those of TEXTS that are `parsed`."""
    columns = dict.fromkeys(("example_id", "position", "split", "cluster", *TEXTS))
    filled, hashes = set[str](), {name: array("q") for name in UNIQUE}
    fields = {name: set[str]() for name in parsed}
    for example in examples:
        for name in UNIQUE:
            hashes[name].append(hash(getattr(example, name)))
        for name in TEXTS:
            if (text := getattr(example, name)) is not None:
                filled.add(name)
                if name in fields and not fields[name].issuperset(found := _object(text)):
                    columns |= dict.fromkeys(f"{name}.{field}" for field in found)
                    fields[name].update(found)
    arrays = {name: np.frombuffer(values, np.int64) for name, values in hashes.items()}
    return Overview(columns=[*columns, FILLED], filled=frozenset(filled), hashes=arrays)


def blocks(examples: Sequence[ExampleRow], columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield columns of the examples in frames of ROWS_AT_ONCE rows. One example at a time is whole in memory."""
    rows = iter(examples)
    for _ in range(0, len(examples), ROWS_AT_ONCE):
        yield as_frame(islice(rows, ROWS_AT_ONCE), columns)


def unique_column(examples: Iterable[ExampleRow], name: str, view: Overview) -> pd.DataFrame:
    """Return a column whose values are as unique as those of the examples: where a text occurs once, its position."""
    values, counts = np.unique(view.hashes[name], return_counts=True)
    repeated = frozenset(values[counts > 1].tolist())
    if not repeated:
        return pd.DataFrame({name: np.arange(len(view.hashes[name]))})
    texts = (getattr(example, name) for example in examples)
    column = [_stand_in(name, text) if hash(text) in repeated else number for number, text in enumerate(texts)]
    return pd.DataFrame({name: pd.Series(column, dtype=object)})


def as_frame(examples: Iterable[ExampleRow], columns: Sequence[str], named: str = "") -> pd.DataFrame:
    """Return columns of the examples, one row each. Blank text is null.

    Long texts have stand-ins, so that a dataset may be larger than memory, except in columns that `named` names.
    """
    parents = {column.partition(".")[0] for column in columns if "." in column}
    names = {name: f"{name}." for name in TEXTS if name in parents or (name == "inputs" and FILLED in columns)}
    rows = []
    for example in examples:
        row: dict[str, Any] = {name: getattr(example, name) for name in _OF_EXAMPLES if name in columns}
        for name, prefix in names.items():
            fields = _fields(getattr(example, name))
            row |= {prefix + field: value for field, value in fields.items()}
            if name == "inputs":
                row[FILLED] = len(fields) - sum(value is None for value in fields.values())
        rows.append([_shown(name, row.get(name), named) for name in columns])
    return pd.DataFrame(rows, columns=list(columns), dtype=object).where(lambda frame: frame.notna(), None)


_OF_EXAMPLES = ("example_id", "position", "split", "cluster", *TEXTS)


def is_named(column: str, text: str) -> bool:
    """Whether a text names a column."""
    return _pattern(column).search(text) is not None


@cache
def _pattern(column: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.]){re.escape(column)}(?![\w.])")


def _shown(column: str, value: Any, named: str) -> Any:
    if not isinstance(value, str) or len(value) < LONG or is_named(column, named):
        return value
    return _stand_in(column, value)


def _stand_in(column: str, value: Any) -> Any:
    """Return a short text for a long one: equal for equal texts, and JSON for JSON where the column holds that."""
    if not isinstance(value, str) or len(value) < LONG:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()
    short = f"{value[:SHOWN]}… ({len(value):,} characters, SHA-256 {digest})"
    return to_json(short) if column in TEXTS and _is_json(value) else short


def _is_json(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def _fields(text: str | None) -> dict[str, Any]:
    """Return the fields of a JSON object; empty if the text is not one, which has its own check."""
    return {name: _plain(field) for name, field in _object(text).items()}


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = from_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.strip() else None
    return to_json(value) if isinstance(value, list | dict) else value


Results = list[dict[str, Any]]
"""One per expectation, as Great Expectations writes them in JSON."""


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

    def validate(self, frame: pd.DataFrame, expectations: Sequence[Expectation], places: Sequence[str] = ()) -> Results:
        """Return a result for each expectation, with values of the columns `places` for unexpected rows.

        Raise InputError for an unknown or misconfigured expectation.
        """
        import great_expectations as gx

        suite = gx.ExpectationSuite(name="rows")
        for expectation in expectations:
            suite.add_expectation(_configured(expectation))
        whole = self._batches.get_batch({"dataframe": frame})
        form: dict[str, Any] = {"result_format": "SUMMARY", "partial_unexpected_count": SHOWN_VALUES}
        if places:
            form["unexpected_index_column_names"] = [*places]
        return [result.to_json_dict() for result in whole.validate(suite, result_format=form).results]

    def validate_blocks(
        self, frames: Iterable[pd.DataFrame], expectations: Sequence[Expectation], places: Sequence[str] = ()
    ) -> Results:
        """Return a result for each expectation about single rows, on frames that together hold all rows."""
        parts = [self.validate(frame, expectations, places) for frame in frames]
        return [merged(of_one) for of_one in zip(*parts, strict=True)]


def _configured(expectation: Expectation) -> Any:
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metadata_types import FailureSeverity

    try:
        return ExpectationConfiguration(
            type=expectation.type, kwargs=expectation.kwargs, severity=FailureSeverity(expectation.severity)
        ).to_domain_obj()
    except Exception as error:  # raised by Great Expectations or its pydantic
        raise InputError(f"expectation {expectation.type!r}: {' '.join(str(error).split())}") from error


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


def run_result_checks(store: Store, experiment: ExperimentRow, batch: str) -> list[CheckRow]:
    """Check the planned runs, summaries, outputs and scores of a finished experiment, one row per expectation.

    Raise InputError if its snapshot is not in the store.
    """
    load_snapshot(store, experiment.snapshot_id)
    validator, spec = Validator(), experiment_spec(experiment)
    runs = planned_runs(store, experiment, evaluators_of(spec))
    outputs = output_columns(store, experiment)
    scores = score_columns(store, experiment, [*ranges_of(spec)])
    summaries = summary_columns(store, experiment, summaries_of(spec))
    results = [
        *validator.validate_blocks(_frames(runs), of_runs(experiment), PLACES),
        *validator.validate_blocks(_frames(summaries), of_summaries(experiment), PLACES_OF_SUMMARIES),
        *validator.validate_blocks(_frames(outputs), of_outputs(experiment), PLACES),
        *validator.validate_blocks(_frames(scores), of_scores(experiment), PLACES_OF_SCORES),
    ]
    return [check_row(result, "experiment", experiment.experiment_id, batch) for result in results]


def _frames(tables: Iterable[Any]) -> Iterator[pd.DataFrame]:
    """Yield Arrow tables as frames in which all that is missing is None."""
    for table in tables:
        yield table.to_pandas(integer_object_nulls=True).astype(object).where(lambda frame: frame.notna(), None)
