"""Files as each harness writes them: recorded/README.md says which the packages themselves wrote."""

import json
import zipfile
from pathlib import Path
from typing import Any

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
                "id0#0": {
                    "exact_match": 1.0,
                    "logprob": 0.5,
                    "exact_match,misspellings": 0.0,
                },
                "id0#1": {"exact_match": 1.0, "logprob": 0.5},
                "id1#0": {"exact_match": 0.0, "logprob": None},
                "id1#1": {"exact_match": 1.0, "logprob": None},
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
                "00000000-0000-0000-0000-00000000000c#0": {"correct": None, "tone": None},
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


def test_metrics_without_numbers_are_left_out_and_named(tmp_path: Path) -> None:
    """Grades in a score of Inspect that is a mapping, lists of lm-eval; yes and no are numbers, as in Inspect."""
    values: list[Any] = [{"right": "yes", "grade": "B"}, {"right": "no", "grade": None}]
    samples = [
        {"id": n, "epoch": 1, "input": f"q{n}", "scores": {"rubric": {"value": value}}}
        for n, value in enumerate(values)
    ]
    log = {"status": "success", "eval": {"task": "sums", "model": "m"}, "samples": samples}
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))
    (found,) = read_results(str(path))
    assert [row.scores for row in found.rows] == [{"rubric.right": 1.0}, {"rubric.right": 0.0}]
    assert found.notes == [f"{path}: rubric.grade: left out, having no numbers"]
    row = {
        "doc_id": 0,
        "filtered_resps": ["a"],
        "metrics": ["acc", "word_perplexity"],
        "acc": 1,
        "word_perplexity": [1, 2],
    }
    path.write_text(json.dumps(row))
    (found,) = read_results(str(path))
    assert (found.metrics, found.notes) == (["acc"], [f"{path}: word_perplexity: left out, having no numbers"])


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


def _trace(number: int, *scores: tuple[str, float | None]) -> dict[str, Any]:
    given = [{"name": "correct", "value": value, "dataType": "NUMERIC", "source": source} for source, value in scores]
    return {"id": f"t{number}", "timestamp": "2026", "observations": [], "input": f"q{number}", "scores": given}


def _spans(number: int, *scores: tuple[str, float | None]) -> list[dict[str, Any]]:
    """A row of Braintrust with a score, and spans below it with others of that name."""
    of_row = {"root_span_id": f"r{number}", "input": f"q{number}"}
    return [
        {**of_row, "id": f"s{place}", "span_id": f"s{place}", "scores": {"correct": value}}
        | ({"span_parents": ["s0"]} if place else {})
        for place, (_, value) in enumerate(scores)
    ]


def _run(number: int, *scores: tuple[str, float | None]) -> list[dict[str, Any]]:
    run = {"id": f"r{number}", "run_type": "chain", "start_time": "2026", "inputs": {"q": f"q{number}"}}
    feedback = [{"id": source, "run_id": f"r{number}", "key": "correct", "score": value} for source, value in scores]
    return [run | {"feedback_stats": None, "reference_example_id": f"q{number}"}, *feedback]


def test_an_answer_with_an_error_has_no_scores(tmp_path: Path) -> None:
    """Whatever a harness writes in their place; sizes of errors are a metric, and no errors."""
    path = tmp_path / "results.csv"
    rows = "a,1,\nb,0,boom\nc,1,None\nd,1,false\n"
    path.write_text(f"id,correct,error\n{rows}")
    (found,) = read_results(str(path))
    assert [(row.scores["correct"], row.error) for row in found.rows] == [
        (1, None),
        (None, "boom"),
        (1, None),
        (1, None),
    ]
    path.write_text("id,metric,value,error\na,correct,0,boom\na,tone,0.5,\n")
    (found,) = read_results(str(path))
    assert found.rows[0].scores == {"correct": None, "tone": 0.5}
    path.write_text("id,correct,error\na,1,0.25\nb,0,0\n")
    (found,) = read_results(str(path))
    assert [row.scores for row in found.rows] == [{"correct": 1, "error": 0.25}, {"correct": 0, "error": 0}]
    assert [row.error for row in found.rows] == [None, None]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("kind", ["langfuse", "braintrust", "langsmith"])
def test_no_score_replaces_another_of_its_name(kind: str, order: int, tmp_path: Path) -> None:
    """Such as those of the steps of an answer: their mean counts, and a note says so where they differ."""
    given = [[("EVAL", 1.0), ("EVAL", 0.0), ("API", 0.5), ("API", None)][::order], [("EVAL", 1.0), ("API", 1.0)]]
    made = [
        {"langfuse": _trace, "braintrust": _spans, "langsmith": _run}[kind](number, *scores)
        for number, scores in enumerate(given)
    ]
    path = tmp_path / "results.jsonl"
    rows = [row for one in made for row in (one if isinstance(one, list) else [one])]
    path.write_text("\n".join(map(json.dumps, rows)))
    (found,) = read_results(str(path))
    assert scores_of([found]) == {"": {"q0#0": {"correct": 0.5}, "q1#0": {"correct": 1.0}}}
    assert found.notes == [f"{path}: correct: in 1 of 2 answers, scores of this name differ: their mean counts"]


def test_scores_of_people_are_apart_and_those_of_sessions_left_out(tmp_path: Path) -> None:
    """In Langfuse, where they have the names of evaluators' scores."""
    path = tmp_path / "results.json"
    of_session = {"name": "correct", "value": 0, "traceId": None, "sessionId": "s", "dataType": "NUMERIC"}
    trace = _trace(0, ("EVAL", 1.0), ("ANNOTATION", 0.0))
    path.write_text("\n".join(map(json.dumps, (trace, of_session))))
    (found,) = read_results(str(path))
    assert (scores_of([found]), found.notes) == ({"": {"q0#0": {"correct": 1.0, "correct,annotation": 0.0}}}, [])


def test_tests_that_pytest_repeats_are_repetitions(tmp_path: Path) -> None:
    """By the names of pytest-repeat 0.9; parameters that look the same are none."""
    names = [f"test_sum[2 + 3?-5-{number}-3]" for number in (1, 2, 3)] + [
        f"test_plain[{number}-2]" for number in (1, 2)
    ]
    names += ["test_range[1-3]", "test_range[2-3]", "test_range[2-4]", "test_one[1-1]"]
    cases = "".join(f'<testcase classname="a" name="{name}"/>' for name in names)
    (tmp_path / "results.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    tests = [{"nodeid": f"a::{name}", "outcome": "passed"} for name in names]
    (tmp_path / "results.json").write_text(json.dumps({"exitcode": 0, "tests": tests}))
    for name in ("results.xml", "results.json"):
        (found,) = read_results(str(tmp_path / name))
        assert [(row.example_id.removeprefix("a::"), row.repetition) for row in found.rows] == [
            *(("test_sum[2 + 3?-5]", number) for number in (1, 2, 3)),
            *(("test_plain", number) for number in (1, 2)),
            *((name, 0) for name in names[5:]),
        ]


def test_a_conversation_has_one_id_whatever_was_answered(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for answer in ("hello", "good day"):
        turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": answer}]
        case = {"turns": turns, "success": True, "metricsData": []}
        path.write_text(json.dumps({"testCases": [], "conversationalTestCases": [case, case | {"scenario": "greets"}]}))
        (found,) = read_results(str(path))
        assert [row.example_id for row in found.rows] == ['[{"content": "hi", "role": "user"}]', "greets"]
        messages = [{"type": "human", "content": "hi"}, {"type": "ai", "content": answer}]
        path.write_text(json.dumps([{"user_input": messages, "tone": 0.5}]))
        (found,) = read_results(str(path))
        assert found.rows[0].example_id == '[{"content": "hi", "type": "human"}]'
