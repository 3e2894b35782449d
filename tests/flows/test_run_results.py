"""What a run shows: artifacts, progress, and results in a program."""

import asyncio
import re
from typing import Any

import pandas as pd
import pytest
from catalog_rows import rows
from planted_difference import ROWS, N, often, spec, targets
from prefect.client.orchestration import get_client

import evalflows.tasks.progress
from evalflows import aevaluate, evaluate, run
from evalflows.reports.experiment_report import experiments_report
from evalflows.reports.results import results_of
from evalflows.specs.errors import InputError
from evalflows.store import Store

pytestmark = pytest.mark.usefixtures("prefect_api")


def artifacts(key: str) -> list[Any]:
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    with get_client(sync_client=True) as client:
        found = client._client.post(
            "/artifacts/filter",
            json={
                "artifacts": ArtifactFilter(key=ArtifactFilterKey(any_=[key])).model_dump(mode="json"),
                "sort": "CREATED_DESC",
            },
        )
    return list(found.json())


def unescaped(page: str) -> str:
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", page)


@pytest.mark.slow
def test_a_run_publishes_artifacts_for_results_checks_and_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evalflows.tasks.progress, "INTERVAL_S", 0.001)  # it takes longer
    identities = run(spec(name="shown"))
    page = unescaped(artifacts("result")[0]["data"])
    assert "- seldom against often: worse in exact_match -0.50" in page
    assert re.search(
        r"\| seldom \| exact_match \| 0.25 \| \[0.14, 0.40\] \| -0.50 \[.*?\] \| [<0.]+\d+ \| [<0.]+\d+ \| worse "
        r"\| 0 \| 40 \|",
        page,
    )
    assert all(identity in page for identity in identities)
    assert "example_id: column values to be unique" in unescaped(artifacts("dataset-checks")[0]["data"])
    assert artifacts("progress")[0]["data"] == 100.0


def test_aevaluate_runs_inside_an_event_loop() -> None:
    async def target(question: str) -> str:
        await asyncio.sleep(0)
        return question.upper()

    def best(outputs: list[Any]) -> float:
        return float(len(outputs))

    async def program() -> Any:
        other = asyncio.create_task(asyncio.sleep(0.01, "the loop goes on"))
        result = await aevaluate(target, ROWS, ["exact_match"], summary_evaluators=[best], name="loud", repetitions=2)
        return result, await other

    result, said = asyncio.run(program())
    assert said == "the loop goes on"
    assert result.scores("exact_match") == [1.0] * (2 * N)
    assert rows("select mean from metric_summary where subject_kind = 'experiment'") == [(2.0 * N,)]
    assert (result.experiment_name, len(result[1:3])) == ("loud", 2)
    first, last = result[0], result[-1]
    assert (first.inputs, last.output.repetition) == (ROWS[0]["inputs"], 1)
    assert first.outputs and repr(first).startswith(f"ItemOutcome({first.example.example_id!r}, ok, ")
    assert len(repr([*result])) < 120 * len(result)
    assert first.scores["exact_match"] == first.scores[0] and first.scores[0].value == 1.0
    with pytest.raises(KeyError, match="'exact': wanted exact_match"):
        first.scores["exact"]


def test_rows_are_mappings_or_texts() -> None:
    def shouted(question: str) -> str:
        return question.upper()

    (one,) = evaluate(shouted, ["a"], [])
    assert (one.inputs, one.outputs) == ({"question": "a"}, {"output": "A"})
    result = evaluate(lambda inputs: inputs["input"], ["a", "b"], [lambda outputs: "output" in outputs])
    assert [one.inputs for one in result] == [{"input": "a"}, {"input": "b"}]
    frame = pd.DataFrame({"q": ["a", "b"], "a": ["A", "x"], "when": [pd.Timestamp("2026-01-02"), float("nan")]})
    columns = {"inputs": ["q"], "reference_outputs": ["a"]}
    result = evaluate(lambda q: q.upper(), frame, ["exact_match"], columns=columns)
    assert result.scores("exact_match") == [1.0, 0.0]
    example = result[1].example
    assert (example.inputs, example.reference_outputs, example.metadata) == ({"q": "b"}, {"a": "x"}, {"when": None})
    result.label(1, "exact_match", True, comment="x is fine", labeller="ann")
    result.label(result[0], "mood", "calm")
    labels = "select metric, value, label, data_type, comment, subject_id from current_labels order by metric"
    assert rows(labels) == [
        ("exact_match", 1.0, None, "BOOLEAN", "x is fine", result[1].output.run_id),
        ("mood", None, "calm", "CATEGORICAL", None, result[0].output.run_id),
    ]
    for data, settings, error in (
        (["a", 3], {}, "evaluate: data: row 2: got int, wanted a mapping or a text"),
        ({"q": ["a", "b"], "a": ["x"]}, {}, "evaluate: data: got columns of different lengths: 2 of 'q', 1 of 'a'"),
        (
            {"q": "a"},
            {},
            "evaluate: data: got a dict whose 'q' is str, wanted columns, each a list with a value per row",
        ),
        ({"question": ["a"], "answer": ["x"]}, {}, "dataset row:1: no inputs: got question, answer, wanted 'inputs'"),
        (["a"], {"dataset": "b"}, "evaluate: got dataset, wanted the target and the data"),
    ):
        with pytest.raises(InputError, match=error):
            evaluate(lambda inputs: inputs, data, ["exact_match"], **settings)


def test_one_warning_says_that_answers_and_references_differ_by_type() -> None:
    def mismatches(first: Any) -> list[str]:
        data = [{"inputs": {"n": n}, "outputs": {"answer": first if n == 0 else n}} for n in range(3)]
        identity = evaluate(lambda n: str(n), data, ["exact_match"]).experiment_id
        return [
            one.text for one in experiments_report(Store(), [identity], results_of(Store(), [identity])).types_apart
        ]

    said = "are text where the references are numbers; `any_type: true` compares them by value"
    (text,) = mismatches(0)
    assert text.startswith("exact_match: all 3 answers of ") and text.endswith(said)
    (text,) = mismatches("1")
    assert text.startswith("exact_match: 2 of 3 answers of ") and text.endswith(said), "one is just wrong"


@pytest.mark.slow
def test_recorded_answers_of_an_experiment_are_judged_without_calls() -> None:
    (first,) = run(spec(name="first", targets=targets(target=often), repetitions=2, evaluators=[]))
    (second,) = run(spec(name="second", targets=[{"kind": "recorded", "experiment": "first"}], repetitions=2))
    assert rows("select mean, scored from metric_summary where metric = 'exact_match'") == [(0.75, 2 * N)]
    same = "a.run_id = b.reused_from and a.outputs = b.outputs and a.latency_s = b.latency_s"
    joined = "outputs b join outputs a on a.run_id = b.reused_from where b.experiment_id = ?"
    assert rows(f"select count(*), bool_and({same}) from {joined}", second) == [(2 * N, True)]
    query = "select spec ->> '$.targets[0].experiment' from experiments where experiment_id = ?"
    assert rows(query, second) == [(first,)]
