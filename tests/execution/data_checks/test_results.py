"""Checks of results: each expectation finds the rows that are wrong, and rows of a run meet all of them."""

from dataclasses import replace
from datetime import timedelta
from math import nan
from typing import Any

import pytest
from finished import START, Change, Rows, finished_experiment

from evalflows.data_checks.checks import check_results, row_of_finished
from evalflows.specs.errors import InputError
from evalflows.store.records import CheckRow
from evalflows.store.schemas import EXPERIMENT_TABLES
from evalflows.store.store import Store


def checks(store: Store, change: Change | None = None) -> list[CheckRow]:
    finished_experiment(store, change)
    return check_results(store, [row_of_finished(store, "exp-1")])["exp-1"]


def found(rows: list[CheckRow]) -> dict[str, tuple[str, int | None]]:
    """Severity and number of rows of each finding, by column."""
    return {str(row.column_name): (row.severity, row.n_unexpected) for row in rows if not row.passed}


def output(place: int = 0, **fields: Any) -> Change:
    def change(outputs: Rows, scores: Rows) -> None:
        outputs[place] = replace(outputs[place], **fields)

    return change


def score(place: int = 0, **fields: Any) -> Change:
    """Even places are exact, odd ones tone."""

    def change(outputs: Rows, scores: Rows) -> None:
        scores[place] = replace(scores[place], **fields)

    return change


def test_what_a_run_leaves_meets_every_expectation(store: Store) -> None:
    rows = checks(store)
    assert found(rows) == {}
    assert {row.subject_kind for row in rows} == {"experiment"}
    checked = {(row.name.removeprefix("expect_column_values_to_"), row.column_name): row.n_checked for row in rows}
    assert checked["be_between", "runs.outputs"] == checked["be_between", "runs.scores_by.tone"] == 6
    assert checked["be_between", "summaries.scores"] == 1
    assert checked["not_be_null", "outputs.outputs"] == 5, "one failed"
    assert checked["not_be_null", "scores.subject"] == 13
    assert checked["not_be_null", "scores.result"] == 8, "five of exact, two of tone, and that of all runs"
    assert checked["be_between", "scores.value.tone"] == 2


AMOUNTS = [("tokens_in", -1), ("cost_usd", -0.01)]

CHANGES: dict[str, tuple[Change, dict[str, tuple[str, int]]]] = {
    "no output": (
        lambda outputs, scores: outputs.pop(0),
        {
            "runs.outputs": ("error", 1),
            "runs.scores_by.exact": ("error", 1),
            "runs.scores_by.tone": ("error", 1),
            "scores.subject": ("error", 2),
        },
    ),
    "no score by one evaluator": (lambda outputs, scores: scores.pop(1), {"runs.scores_by.tone": ("error", 1)}),
    "no score of all runs": (lambda outputs, scores: scores.pop(), {"summaries.scores": ("error", 1)}),
    "an unknown example": (
        lambda outputs, scores: outputs.append(replace(outputs[0], run_id="other", example_id="q9")),
        {"outputs.example": ("error", 1)},
    ),
    "an unknown status of an output": (output(status="lost"), {"outputs.status": ("error", 1)}),
    "ok without outputs": (output(outputs=None), {"outputs.outputs": ("error", 1)}),
    "outputs that are not JSON": (output(outputs="{answer"), {"outputs.outputs": ("error", 1)}),
    "failed without an error": (output(5, error=None), {"outputs.error": ("warning", 1)}),
    **{
        f"{name} of an output below 0": (output(**{name: value}), {f"outputs.{name}": ("error", 1)})
        for name, value in AMOUNTS
    },
    "a score of an unknown run": (
        score(subject_id="r", run_id="r"),
        {"scores.subject": ("error", 1), "runs.scores_by.exact": ("error", 1)},
    ),
    "a score with another run's example": (score(example_id="q1"), {"scores.subject": ("error", 1)}),
    "two scores of one key": (
        lambda outputs, scores: scores.append(replace(scores[0], judgement_id="other")),
        {"scores.rows_of_key": ("error", 2)},
    ),
    "scored without value or label": (score(value=None), {"scores.result": ("error", 1)}),
    "failed with a value": (score(10, value=0.0), {"scores.result": ("error", 1)}),
    "not a number": (score(value=nan), {"scores.is_finite": ("error", 1)}),
    "above the range": (score(value=1.01), {"scores.value.exact": ("error", 1)}),
    "a failed score without an error": (score(10, error=None), {"scores.error": ("warning", 1)}),
    "a sampling rate of 0": (score(1, sampling_rate=0.0), {"scores.sampling_rate": ("error", 1)}),
    "a sampling rate above 1": (score(1, sampling_rate=1.5), {"scores.sampling_rate": ("error", 1)}),
    **{
        f"{name} of a score below 0": (score(**{name: value}), {f"scores.{name}": ("warning", 1)})
        for name, value in AMOUNTS
    },
}


@pytest.mark.parametrize("what", CHANGES)
def test_wrong_rows_are_found(store: Store, what: str) -> None:
    change, wanted = CHANGES[what]
    assert found(checks(store, change)) == wanted


def test_what_was_never_answered_holds(store: Store) -> None:
    def nothing_answered(outputs: Rows, scores: Rows) -> None:
        outputs[:] = [replace(row, status="not_attempted", error="stopped") for row in outputs]

    assert found(checks(store, nothing_answered)) == {}


def test_a_finding_names_values_and_their_rows(store: Store) -> None:
    def everything(outputs: Rows, scores: Rows) -> None:
        """Wrong rows that do not hide each other, in the first and the last block."""
        for change in (output(0, status="lost"), output(4, latency_s=-1.0), score(0, value=7.0), score(8, value=9.0)):
            change(outputs, scores)
        scores.append(replace(scores[2], judgement_id="other"))

    rows = checks(store, everything)
    assert rows[-1].passed, "those that hold come last"
    assert [row.message for row in rows if not row.passed][-1] == (
        "wanted scores.value.exact: column values to be between (min_value 0.0, max_value 1.0) where "
        "scores.value.exact is not null; 2 of 6 fail, such as 7.0 (example_id q0, metric exact, repetition 0), "
        "9.0 (example_id q2, metric exact, repetition 0)"
    )


def test_a_lost_file_is_found(store: Store) -> None:
    finished_experiment(store)
    (path,) = [path for path in [store.sealed_file("outputs", "exp-1")] if path]
    store.filesystem.rm(path)
    rows = check_results(store, [row_of_finished(store, "exp-1")])["exp-1"]
    assert found(rows)["runs.outputs"] == ("error", 6)
    assert found(rows)["scores.subject"] == ("error", 12)


def test_results_are_checked_once_and_again_after_a_resumption(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    finished_experiment(store)
    row = row_of_finished(store, "exp-1")
    first = check_results(store, [row])["exp-1"]
    with monkeypatch.context() as patch:
        patch.setattr("evalflows.store.queries.checked_columns.count_unexpected", None)
        assert check_results(store, [row])["exp-1"] == first
    store.reopen("exp-1", EXPERIMENT_TABLES)
    later = replace(row, ended_at=START + timedelta(hours=1), recorded_at=row.recorded_at + timedelta(hours=1))
    store.append("experiments", "exp-1", "end", [later])
    store.seal("exp-1", EXPERIMENT_TABLES)
    again = check_results(store, [row_of_finished(store, "exp-1")])["exp-1"]
    assert again[0].batch_id != first[0].batch_id
    assert store.query("select count(distinct batch_id) from source.checks") == [(2,)]


def test_only_finished_experiments_are_checked(store: Store) -> None:
    finished_experiment(store, state="incomplete")
    with pytest.raises(InputError, match=r"is not finished.*`evalflows resume exp-1` continues"):
        row_of_finished(store, "exp-1")


def test_a_snapshot_that_is_gone_is_an_error(store: Store) -> None:
    finished_experiment(store, snapshot_id="snap-gone")
    with pytest.raises(InputError, match="snapshot 'snap-gone': not in the store"):
        check_results(store, [row_of_finished(store, "exp-1")])
