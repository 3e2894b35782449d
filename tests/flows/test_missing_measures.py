"""One failed row does not leave the verdicts on measures open: its pair is left out, and that is said."""

from typing import Any

import pytest
from catalog_rows import one, rows
from click.testing import CliRunner

from evalflows import run
from evalflows.cli.main import cli
from evalflows.specs import ExperimentSpec
from evalflows.specs.reference import refer

pytestmark = pytest.mark.usefixtures("prefect_api")

N = 60


def long(question: str) -> str:
    if question == "q7":
        raise ValueError("no answer")
    return "a much longer answer than that of the other target " * (1 + len(question))


def brief(question: str) -> str:
    return "short" * len(question)


def chars(outputs: dict[str, Any]) -> float:
    return float(len(outputs["output"]))


def silent(outputs: dict[str, Any]) -> float:
    raise RuntimeError("no score")


def compared(metrics: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "name": "measures",
        "dataset": {"rows": [{"inputs": {"question": f"q{i}"}} for i in range(N)]},
        "targets": [
            {"kind": "python", "name": name, "function": refer(function)}
            for name, function in (("brief", brief), ("long", long))
        ],
        "evaluators": [{"use": refer(chars), "name": "chars"}, {"use": refer(silent), "name": "silent"}],
        "metrics": metrics,
    }
    run(ExperimentSpec.model_validate(fields))


def test_a_failed_row_leaves_its_pair_out_of_measures_and_of_metrics_that_declare_so() -> None:
    compared({"chars": {"missing": "leave_out"}})
    said = f"1 of {N} pairs left out for a missing value (missing: leave_out)"
    query = """select conclusion, warning, n_pairs, baseline_missing, candidate_missing, worst_case_ci_low
               from verdicts where metric = ?"""
    assert one(query, "length") == ("worse", said, N - 1, 0, 1, None)
    assert one(query, "chars") == ("better", said, N - 1, 0, 1, None)
    shown = CliRunner().invoke(cli, ["show", "measures"]).output
    assert f"chars, length: {said}" in shown
    table = shown.partition("\nlong against")[0]
    assert "silent" not in table, "a metric without a value has no row in the table"
    assert f"{N} of {N} values of silent are missing in brief" in shown


def test_other_metrics_without_a_range_stay_open_by_default() -> None:
    compared({"length": {"missing": "worst"}})
    found = rows("select metric, conclusion, reason_code from verdicts where metric in ('chars', 'length') order by 1")
    assert found == [(name, "not_enough_evidence", "missing_unbounded") for name in ("chars", "length")]
