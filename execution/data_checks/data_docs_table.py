"""The table of Data Docs, with cells of observed values that are ours. Only Great Expectations loads this module."""

from collections.abc import Callable
from typing import Any

from great_expectations.render.renderer.content_block.validation_results_table_content_block import (
    ValidationResultsTableContentBlockRenderer,
)
from great_expectations.render.util import num_to_str

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
