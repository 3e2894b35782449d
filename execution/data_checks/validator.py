"""Great Expectations with frames: the only module that checks rows by it."""

import logging
import os
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from evalflows.execution.data_checks.check_rows import SHOWN_VALUES, merged
from evalflows.specs.dataset import Expectation
from evalflows.specs.errors import InputError

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
