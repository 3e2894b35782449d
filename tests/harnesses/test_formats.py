"""Files as each harness writes them: recorded/README.md says which the packages themselves wrote."""

import json
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from evalflows.harnesses.assembling import SystemResults
from evalflows.harnesses.reading import FORMATS, read_results
from evalflows.specs.errors import InputError

RECORDED = Path(__file__).parent / "recorded"

SUMS = {"test_answer[2 + 3?-5]": 1.0, "test_answer[4 * 5?-20]": 0.0, "test_later": None, "test_service": None}
INSPECT = {
    "sums/broken#0": {"match": None, "style.tone": None, "style.length": None},
    "sums/product#0": {"match": 1.0, "style.tone": 1.0, "style.length": 2.0},
    "sums/sum#0": {"match": 1.0, "style.tone": 0.5, "style.length": 1.0},
    "sums/broken#1": {"match": None, "style.tone": None, "style.length": None},
    "sums/product#1": {"match": 0.0, "style.tone": 1.0, "style.length": 7.0},
    "sums/sum#1": {"match": 0.0, "style.tone": 0.5, "style.length": 7.0},
}
PROMPTFOO = {
    "small": {
        "2 + 3?#0": {"success": 1.0, "score": 1.0, "correct": 1.0},
        "2 + 3?#1": {"success": 0.0, "score": 0.5, "correct": 0.0},
        "4 * 5?#0": {"success": 1.0, "score": 0.75, "correct": 1.0, "brief": 0.5},
        "7 - 9?#0": {"success": None, "score": None, "correct": None},
    },
    "large": {
        "2 + 3?#0": {"success": 1.0, "score": 1.0, "correct": 1.0},
        "2 + 3?#1": {"success": 1.0, "score": 1.0, "correct": 1.0},
        "4 * 5?#0": {"success": 1.0, "score": 0.75, "correct": 1.0, "brief": 0.5},
        "7 - 9?#0": {"success": 1.0, "score": 1.0, "correct": 1.0},
    },
}
RAGAS = {
    "": {
        "2 + 3?#0": {"exact_match": 1.0, "string_present": 1.0},
        "4 * 5?#0": {"exact_match": 0.0, "string_present": 0.0},
    }
}

CASES = {
    "promptfoo.json": ("promptfoo", PROMPTFOO),
    "promptfoo.jsonl": ("promptfoo", PROMPTFOO),
    "inspect.eval": ("inspect", {"mockllm/model": INSPECT}),
    "inspect.json": ("inspect", {"mockllm/model": INSPECT}),
    "samples_sums_2026-11-29T08-33-49.159841.jsonl": (
        "lm-eval",
        {
            "": {
                "sums/0#0": {"exact_match,strict": 1.0, "exact_match,flexible": 1.0},
                "sums/1#0": {"exact_match,strict": 0.0, "exact_match,flexible": 1.0},
            }
        },
    ),
    "per_instance_stats.json": (
        "helm",
        {
            "": {
                "id0#0": {"exact_match": 1.0, "logprob": 0.5},
                "id0#1": {"exact_match": 1.0, "logprob": 0.5},
                "id1#0": {"exact_match": 0.0, "logprob": None},
                "id1#1": {"exact_match": 1.0, "logprob": None},
                "id0/misspellings#0": {"exact_match": 0.0, "logprob": None},
            }
        },
    ),
    "openai_evals.jsonl": (
        "openai-evals",
        {
            "mock-small": {
                "sums.dev.0#0": {"match": 1.0, "score": 0.5},
                "sums.dev.1#0": {"match": 0.0, "score": None},
                "sums.dev.2#0": {"match": None, "score": None},
            }
        },
    ),
    "langsmith.jsonl": (
        "langsmith",
        {
            "": {
                "00000000-0000-0000-0000-00000000000a#0": {"correct": 1.0, "tone": 0.5},
                "00000000-0000-0000-0000-00000000000b#0": {"correct": 0.0, "tone": 0.5},
                "00000000-0000-0000-0000-00000000000c#0": {"correct": None, "tone": 0.5},
            }
        },
    ),
    "langsmith_runs.jsonl": (
        "langsmith",
        {
            "5e551011-0000-4000-8000-000000000000": {
                "sum#0": {"correct": 1.0, "tone": 0.5},
                "product#0": {"correct": 0.0, "tone": None},
                "zero#0": {"correct": None, "tone": None},
            }
        },
    ),
    "langfuse.json": (
        "langfuse",
        {"": {"sum#0": {"correct": 1.0, "tone": 0.5}, "4 * 5?#0": {"correct": 0.0, "tone": None}}},
    ),
    "langfuse.jsonl": (
        "langfuse",
        {"": {"2 + 3?#0": {"correct": 1.0, "tone": 0.5}, "4 * 5?#0": {"correct": 0.0, "tone": None}}},
    ),
    "braintrust.jsonl": (
        "braintrust",
        {
            "sums": {
                "2 + 3?#0": {"correct": 1.0, "tone": 0.5},
                "4 * 5?#0": {"correct": 0.0, "tone": None},
                "0 / 0?#0": {"correct": None, "tone": None},
            }
        },
    ),
    "deepeval.json": (
        "deepeval",
        {
            "": {
                "2 + 3?#0": {"success": 1.0, "Correctness": 1.0, "Brevity": 1.0},
                "4 * 5?#0": {"success": 0.0, "Correctness": 0.0, "Brevity": 0.25},
                "10 - 3?#0": {"success": None, "Correctness": 1.0, "Brevity": None},
            }
        },
    ),
    "ragas.csv": ("ragas", RAGAS),
    "ragas.jsonl": ("ragas", RAGAS),
    "eval_results_table.json": (
        "mlflow",
        {"": {"2 + 3?#0": {"correct/v1/score": 1.0}, "4 * 5?#0": {"correct/v1/score": 0.0}}},
    ),
    "junit.xml": (
        "junit",
        {
            "": {f"test_sums::{name}#0": {"passed": value} for name, value in SUMS.items()}
            | {"test_sums.TestCapitals::test_of_france#0": {"passed": 1.0}}
        },
    ),
    "pytest_report.json": (
        "pytest-json",
        {
            "": {f"test_sums.py::{name}#0": {"passed": value} for name, value in SUMS.items()}
            | {"test_sums.py::TestCapitals::test_of_france#0": {"passed": 1.0}}
        },
    ),
    "wide.csv": (
        "table",
        {
            "": {
                "sum#0": {"correct": 1.0, "tone_score": 0.5, "latency_s": 1.25},
                "product#0": {"correct": 0.0, "tone_score": 1.0, "latency_s": 0.5},
                "007#0": {"correct": None, "tone_score": None, "latency_s": None},
            }
        },
    ),
    "long.jsonl": (
        "table",
        {
            "small": {"sum#0": {"correct": 1.0, "tone": 0.5}, "product#0": {"correct": None, "tone": None}},
            "large": {"sum#0": {"correct": 1.0}},
        },
    ),
    "rows.json": ("table", {"": {"1#0": {"correct": 1.0}, "1#1": {"correct": 0.0}, "2#0": {"correct": None}}}),
    "scores.jsonl": (
        "table",
        {"": {"2 + 3?#0": {"correct": 1.0, "style.tone": 0.5}, "4 * 5?#0": {"correct": 0.0, "style.tone": None}}},
    ),
    "table.parquet": (
        "table",
        {"": {"sum#0": {"correct": 1.0, "tone": 0.5}, "product#0": {"correct": None, "tone": 1.0}}},
    ),
}


def scores_of(results: list[SystemResults]) -> dict[str, dict[str, dict[str, float | None]]]:
    return {
        each.system: {f"{row.example_id}#{row.repetition}": dict(row.scores) for row in each.rows} for each in results
    }


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_file_is_read(name: str, tmp_path: Path) -> None:
    kind, expected = CASES[name]
    results = read_results(str(RECORDED / name))
    assert scores_of(results) == expected
    assert {each.format for each in results} == {FORMATS[kind].title}
    renamed = tmp_path / "results"
    renamed.write_bytes((RECORDED / name).read_bytes())
    recognised = read_results(str(renamed), kind)
    assert [each.metrics for each in recognised] == [each.metrics for each in results], "whatever the name"
    missing = [row for each in results for row in each.rows if row.error]
    assert all(None in row.scores.values() for row in missing), "an error says why scores are missing"


def test_every_format_has_a_recorded_file() -> None:
    assert {kind for kind, _ in CASES.values()} == {*FORMATS}
    recorded = {path.name for path in RECORDED.iterdir()} - {"README.md"}
    assert recorded == {*CASES}


def test_answers_come_with_what_was_asked() -> None:
    (results,) = read_results(str(RECORDED / "inspect.eval"))
    row = results.rows[1]
    assert (row.inputs, row.reference, row.output, row.fields) == ("4 * 5?", "20", "20", {"topic": "products"})
    assert results.rows[0].error == "ValueError('no answer for this one')"


def test_an_unfinished_log_of_inspect_says_so(tmp_path: Path) -> None:
    """Without its header, as a run that was killed leaves it; deflated, as older versions write it."""
    log = tmp_path / "unfinished.eval"
    with zipfile.ZipFile(log, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", '{"version": 2, "eval": {"task": "sums", "model": "mock"}}')
        sample = '{"id": 1, "epoch": 1, "input": "2 + 3?", "target": "5", "scores": {"match": {"value": "I"}}}'
        archive.writestr("samples/1_epoch_1.json", sample)
    (results,) = read_results(str(log))
    assert scores_of([results]) == {"mock": {"sums/1#0": {"match": 0.0}}}
    assert results.unfinished == "its status is started"


def test_exports_of_platforms_are_read_as_their_files_are(tmp_path: Path) -> None:
    """In bulk exports fields are JSON, as text; scores may come without traces; in cells they are lists."""
    whole = RECORDED / "langsmith_runs.jsonl"
    runs = [json.loads(line) for line in whole.read_text().splitlines() if "run_type" in line]
    opened = ("inputs", "outputs", "extra", "feedback_stats")
    texts = [run | {name: json.dumps(run[name]) for name in opened if run[name] is not None} for run in runs]
    pd.DataFrame(texts).drop(columns="parent_run_ids").to_parquet(tmp_path / "runs.parquet")
    (found,), (expected,) = read_results(str(tmp_path / "runs.parquet")), read_results(str(whole))
    assert [(row.example_id, row.output, row.fields) for row in found.rows] == [
        (row.example_id, row.output, row.fields) for row in expected.rows
    ]
    assert found.rows[0].scores["correct"] == 1.0
    (tmp_path / "scores.csv").write_text(
        "id,timestamp,trace_id,name,value,source,data_type\n1,2026-10-01,trace-1,tone,0.5,EVAL,NUMERIC\n"
        "2,2026-10-01,trace-1,topic,,EVAL,CATEGORICAL\n3,2026-10-01,trace-2,tone,1,API,NUMERIC\n"
    )
    (scores,) = read_results(str(tmp_path / "scores.csv"))
    assert [(row.example_id, dict(row.scores)) for row in scores.rows] == [
        ("trace-1", {"tone": 0.5}),
        ("trace-2", {"tone": 1.0}),
    ]
    (tmp_path / "cells.csv").write_text('id,name,tone\na,x,[0.5]\nb,x,[1]\nc,x,\nd,x,"[0.5, 1]"\n')
    with pytest.raises(InputError, match=r"tone: got '\[0.5, 1\]'"):
        read_results(str(tmp_path / "cells.csv"))
    (tmp_path / "cells.csv").write_text("id,name,tone\na,x,[0.5]\nb,x,[true]\nc,x,\n")
    (cells,) = read_results(str(tmp_path / "cells.csv"))
    assert [row.scores["tone"] for row in cells.rows] == [0.5, 1.0, None]
