"""Data Docs: stored checks as a page of Great Expectations. Imported late, since that takes seconds.

Its view writes values of the data into the page as they are, and its page loads scripts, styles and a picture from
other servers. So what is special in HTML is replaced before and put in its place, escaped, afterwards; and the sections
stand in a page of ours, which allows neither scripts nor requests.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ["GX_ANALYTICS_ENABLED"] = "false"
from great_expectations import __version__
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
)
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.render.renderer.content_block.validation_results_table_content_block import (
    ValidationResultsTableContentBlockRenderer,
)
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.util import num_to_str
from great_expectations.render.view.view import DefaultJinjaPageView

from evalflows.data_checks.checks import found_values
from evalflows.specs.escaping import escaped
from evalflows.store.records import CheckRow, from_json

SPECIAL = "&<>\"'`${}[]()*\\"
"""Characters that could act in HTML, in Markdown, or in the templates of Great Expectations."""

SECTION = {
    "class_name": "ValidationResultsColumnSectionRenderer",
    "table_renderer": {"class_name": "ResultsTable", "module_name": "evalflows.data_checks.data_docs"},
}
"""The renderer of a column's checks, as Great Expectations wants it named."""

STAND_INS = str.maketrans({character: chr(0xFDD0 + index) for index, character in enumerate(SPECIAL)})
ENTITIES = str.maketrans({chr(0xFDD0 + index): f"&#{ord(character)};" for index, character in enumerate(SPECIAL)})
"""To and from noncharacters, which Unicode keeps free for such use."""

OBSERVED = 2
"""The place of the observed value in a row, after the status and the expectation."""


def page_of(title: str, checks: Sequence[CheckRow]) -> str:
    """Return the Data Docs of the checks of one batch, in HTML."""
    name = escaped(title).translate(STAND_INS)
    renderer = ValidationResultsPageRenderer(SECTION, run_info_at_end=True)
    document = renderer.render(_suite_result(name, checks))
    view = DefaultJinjaPageView()
    page = view.env.from_string(PAGE).render(title=name, **document.to_json_dict())
    return page.translate(ENTITIES)


def _suite_result(name: str, checks: Sequence[CheckRow]) -> Any:
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
