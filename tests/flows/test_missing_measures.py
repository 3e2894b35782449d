"""One failed row does not leave the verdicts on measures open: its pair is left out, and that is said."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import one, rows
from click.testing import CliRunner

from evalflows import run
from evalflows.cli.main import cli
from evalflows.specs import ExperimentSpec
from evalflows.specs.reference import refer

pytestmark = pytest.mark.usefixtures("without_prefect")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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


@pytest.mark.slow
def test_a_failed_row_leaves_its_pair_out_of_measures_and_of_metrics_that_declare_so() -> None:
    compared({"chars": {"missing": "leave_out"}})
    said = f"1 of {N} pairs left out for a missing value (missing: leave_out)"
    query = """select conclusion, warning, n_pairs, baseline_missing, candidate_missing, worst_case_ci_low
               from verdicts where metric = ?"""
    assert one(query, "answer_length") == ("worse", said, N - 1, 0, 1, None)
    assert one(query, "chars") == ("better", said, N - 1, 0, 1, None)
    shown = CliRunner().invoke(cli, ["show", "measures", "--all"]).output
    assert re.search(rf"(answer_length, chars|chars, answer_length): {re.escape(said)}", shown)
    table = shown.partition("\nlong against")[0]
    assert "silent" not in table, "a metric without a value has no row in the table"
    assert f"{N} of {N} values of silent are missing in brief" in shown


@pytest.mark.slow
def test_failed_answers_have_no_measure_that_no_answer_has() -> None:
    ids = [f"q{i}" for i in range(N)]
    answers = [{"id": each, **({"outputs": each} if i % 5 else {"error": "late"})} for i, each in enumerate(ids)]
    fields: dict[str, Any] = {
        "name": "recorded",
        "dataset": {"rows": [{"id": each, "inputs": {"question": each}} for each in ids]},
        "targets": [{"kind": "recorded", "name": name, "path": f"{name}.json"} for name in ("one", "two")],
    }
    for name in ("one", "two"):
        Path(f"{name}.json").write_text(json.dumps(answers))
    run(ExperimentSpec.model_validate(fields))
    found = rows("select metric, status, count(*), count(value) from run_values group by all order by all")
    assert found == [
        ("answer_length", "failed", 2 * N // 5, 0),
        ("answer_length", "scored", 2 * N - 2 * N // 5, 2 * N - 2 * N // 5),
        ("cost", "not_applicable", 2 * N, 0),
        ("latency", "not_applicable", 2 * N, 0),
        ("tokens", "not_applicable", 2 * N, 0),
    ]
    assert rows("select metric from verdicts where warning is not null") == [("answer_length",)], (
        "no pairs of others left out"
    )
    shown = json.loads(CliRunner().invoke(cli, ["show", "recorded", "--format", "json"]).stdout)
    assert {metric["metric"]: metric["missing"] for metric in shown["metrics"]} == {"answer_length": N // 5}
