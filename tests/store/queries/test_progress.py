"""How far an experiment is: what it lacks, what may yet come, what it cost, and a row for every metric."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalflows.specs.errors import TRANSIENT
from evalflows.store.queries.complete_judgements import complete_judgements
from evalflows.store.queries.progress import (
    Spent,
    answer_counts,
    nothing_made,
    open_work,
    owner_states,
    whats_missing,
    work_done,
)
from evalflows.store.records import JudgementRow, derived_id
from evalflows.store.store import Store

Make = Callable[..., Any]
OWNER, OTHER = "exp-1", "exp-2"


class Run:
    """Rows of one experiment, added as a run would."""

    def __init__(self, store: Store, make: Make) -> None:
        self.store, self.make = store, make

    def output(self, run_id: str, **fields: Any) -> None:
        row = self.make("outputs", **{"run_id": run_id, "experiment_id": OWNER} | fields)
        self.store.append("outputs", row.experiment_id, "p", [row])

    def score(self, run_id: str, evaluator: str, metric: str | None = None, **fields: Any) -> JudgementRow:
        metric = metric or evaluator
        of = {"subject_id": run_id, "run_id": run_id, "experiment_id": OWNER}
        judged = {"evaluator": evaluator, "evaluator_version": "v1", "metric": metric}
        score_id = derived_id(run_id, fields.get("turn"), metric, "v1")
        row: JudgementRow = self.make("judgements", judgement_id=score_id, **of | judged | fields)
        self.store.append("judgements", row.experiment_id or "", "p", [row])
        return row

    def call(self, call_id: str, **fields: Any) -> None:
        row = self.make("calls", **{"call_id": call_id, "experiment_id": OWNER} | fields)
        self.store.append("calls", row.experiment_id, "p", [row])

    def complete(self) -> dict[tuple[str, str], JudgementRow]:
        """The sealed scores by run and metric."""
        complete_judgements(self.store, OWNER)
        self.store.seal(OWNER, ("judgements",))
        rows = self.store.read("judgements", OWNER)
        found = {(row.subject_id, row.metric): row for row in rows}
        assert len(found) == len(rows)
        return found


@pytest.fixture
def run(store: Store, make: Make) -> Run:
    return Run(store, make)


# What is missing


def missing(run: Run, *evaluators: str) -> str | None:
    """Of an experiment of two examples, each answered twice."""
    return whats_missing(run.store, OWNER, work_done(run.store, OWNER), evaluators, 4, answers=4)


def test_an_experiment_lacks_everything_until_each_run_has_its_rows(run: Run) -> None:
    run.output("r0", experiment_id=OTHER)
    run.score("r0", "exact", experiment_id=OTHER)
    assert missing(run, "exact", "tone") == "not done: 4 of 4 answers, 4 of 4 by exact, 4 of 4 by tone"
    for i in range(4):
        run.output(f"r{i}", status="failed" if i == 0 else "ok")
        run.score(f"r{i}", "exact", status="failed" if i == 0 else "scored")
        run.score(f"r{i}", "tone", status="not_applicable" if i == 1 else "sampled_out")
    assert missing(run, "exact", "tone") is None


def test_a_run_with_several_metrics_counts_once_and_not_for_another(run: Run) -> None:
    for i in range(4):
        run.output(f"r{i}")
    for metric in ("a", "b", "c", "d"):
        run.score("r0", "judge", metric)
        run.score(f"r{ord(metric) - ord('a')}", "of turns", turn=1)
    assert missing(run, "judge") == "not done: 3 of 4 by judge"
    assert missing(run, "of turns") is None
    run.output("r0", status="not_attempted")
    run.output("r9", status="not_attempted")
    assert missing(run) is None, "it has four answers"


# Open work


def test_what_another_attempt_may_bring_is_open(run: Run) -> None:
    open_ones = [
        ("failed", "timeout"),
        ("failed", "rate_limited"),
        ("not_attempted", "stopped"),
        ("not_attempted", None),
    ]
    settled = [("failed", "raised"), ("failed", "no_output"), ("failed", None), ("ok", None)]
    for place, (status, kind) in enumerate(open_ones + settled):
        run.output(f"r{place}", status=status, error_kind=kind)
        run.score(f"r{place}", "exact", status="scored" if status == "ok" else status, error_kind=kind)
        run.output(f"r{place}", experiment_id=OTHER, status=status, error_kind=kind)
    run.output("r0", status="ok", error_kind=None)  # it succeeded at last
    assert open_work(run.store, OWNER, TRANSIENT) == 2 * len(open_ones) - 1
    assert open_work(run.store, OWNER, ()) == 2 * 2, "where no kind may pass"


# No answer at all


def test_of_runs_that_all_failed_the_most_frequent_error_is_said(run: Run) -> None:
    for i, error in enumerate(("once", "often", "often")):
        run.output(f"r{i}", status="failed", error=error)
    run.output("r3", status="ok", experiment_id=OTHER)
    assert nothing_made(run.store, OWNER, work_done(run.store, OWNER), answers=3) == {"none of 3 answered": "often"}
    run.output("r4", status="ok")
    assert nothing_made(run.store, OWNER, work_done(run.store, OWNER), answers=3) == {}, "one answer is enough"


# What it cost


def test_costs_and_tokens_are_summed_each_call_once_and_cached_answers_counted(run: Run) -> None:
    run.call("c", experiment_id=OTHER, cost_usd=1.0, tokens_in=1, tokens_out=1)
    assert work_done(run.store, OWNER).spent == Spent(calls=0, tokens_in=0, tokens_out=0, cost_usd=0.0)
    for _ in range(2):  # as after a recovery
        run.call("c1", cost_usd=0.25, tokens_in=10, tokens_out=1)
    run.call("c2", cost_usd=0.5, tokens_in=20, tokens_out=2)
    assert work_done(run.store, OWNER).spent == Spent(calls=2, tokens_in=30, tokens_out=3, cost_usd=0.75)
    run.call("c3", status="failed", cost_usd=None)
    assert work_done(run.store, OWNER).spent == Spent(calls=3, tokens_in=30, tokens_out=3, cost_usd=None), (
        "one is unknown"
    )
    assert work_done(run.store, OWNER).calls_cached == 0
    run.output("r0", calls_cached=2)
    run.score("r0", "exact", calls_cached=3)
    run.output("r9", experiment_id=OTHER, calls_cached=100)
    assert work_done(run.store, OWNER).calls_cached == 5


# A row for every metric


def test_a_plain_evaluators_rows_stay_as_they_are_and_evaluators_do_not_mix(run: Run) -> None:
    rows = [
        run.score("r0", "exact", status="scored", value=1.0),
        run.score("r1", "exact", status="failed", error="boom"),
        run.score("r2", "exact", status="not_applicable"),
        run.score("r3", "fails always", status="failed", error="boom"),
    ]
    run.score("r0", "judge", "a", status="scored")
    run.score("r1", "judge", status="failed")
    for name in ("r0", "r1"):
        run.score(name, "other", "c", status="scored")
    found = run.complete()
    assert [found[row.subject_id, row.metric] for row in rows] == rows
    others = {(name, metric) for name in ("r0", "r1") for metric in ("a", "c")}
    assert set(found) == others | {(row.subject_id, row.metric) for row in rows}


def test_a_failure_stands_for_every_metric_that_the_evaluator_gives_and_its_cost_for_one(run: Run) -> None:
    a, b = (run.score("r0", "judge", metric, status="scored", value=1.0) for metric in ("a", "b"))
    cost: dict[str, Any] = {"cost_usd": 0.25, "calls": 3, "calls_cached": 1, "tokens_in": 10, "tokens_out": 5}
    failed = run.score("r1", "judge", status="failed", error="boom", error_kind="raised", **cost)
    found = run.complete()
    assert set(found) == {("r0", "a"), ("r0", "b"), ("r1", "a"), ("r1", "b")}
    assert (found["r0", "a"], found["r0", "b"]) == (a, b)
    for metric in ("a", "b"):
        row = found["r1", metric]
        assert (row.status, row.value, row.error, row.error_kind) == ("failed", None, "boom", "raised")
        assert row.judgement_id == derived_id("r1", None, metric, "v1") != failed.judgement_id
        assert (row.evaluator, row.run_id) == ("judge", "r1")
    for column, given in cost.items():
        assert sum(getattr(found["r1", metric], column) or 0 for metric in "ab") == given, column


def test_a_metric_that_was_left_out_does_not_apply_and_a_failure_of_one_beside_another_stays(run: Run) -> None:
    run.score("r0", "judge", "a", status="scored", value=1.0)
    run.score("r0", "judge", "b", status="scored", value=0.0, label="bad", cost_usd=0.0)
    run.score("r1", "judge", "a", status="scored", value=1.0, cost_usd=0.5, calls=1, tokens_in=7, metadata='{"x":1}')
    given = [
        run.score("r2", "judge", metric, status=status, error=error)
        for metric, status, error in (("a", "scored", None), ("b", "failed", "no b"))
    ]
    run.score("r3", "judge", "a", status="failed")
    run.score("r3", "judge", status="scored")
    found = run.complete()
    row = found["r1", "b"]
    assert (row.status, row.value, row.label, row.error) == ("not_applicable", None, None, None)
    assert row.comment == "judge gave no b for this run"
    assert (row.cost_usd, row.calls, row.tokens_in, row.metadata) == (0.0, 0, None, None)
    assert row.judgement_id == derived_id("r1", None, "b", "v1")
    assert found["r1", "a"].cost_usd == 0.5
    assert [found["r2", row.metric] for row in given] == given
    assert found["r3", "a"].status == found["r3", "b"].status == "not_applicable"


def test_a_run_that_is_judged_again_replaces_its_failures(run: Run) -> None:
    run.score("r0", "judge", "a", status="scored")
    run.score("r0", "judge", "b", status="scored")
    run.score("r1", "judge", status="failed", error_kind="timeout")
    run.complete()
    run.store.reopen(OWNER, ["judgements"])
    again = [run.score("r1", "judge", metric, status="scored", value=1.0) for metric in ("a", "b")]
    found = run.complete()
    assert len(found) == 4
    assert [found["r1", "a"], found["r1", "b"]] == [replace(row) for row in again]


# Turns


def test_a_failure_stands_for_every_metric_of_runs_and_for_no_turn(run: Run) -> None:
    for metric in ("a", "b"):
        run.score("r0", "judge", metric, status="scored", value=0.5)
        run.score("r0", "judge", metric, turn=1, status="scored", value=1.0, cost_usd=0.0)
    run.score("r0", "judge", "of turns", turn=1, status="scored", value=1.0)
    run.score("r1", "judge", status="failed", error="boom", cost_usd=0.25)
    complete_judgements(run.store, OWNER)
    run.store.seal(OWNER, ("judgements",))
    rows = run.store.read("judgements", OWNER)
    whole = [("r0", "a", None), ("r0", "b", None), ("r1", "a", None), ("r1", "b", None)]
    of_turns = [("r0", "a", 1), ("r0", "b", 1), ("r0", "of turns", 1)]
    assert sorted(((r.subject_id, r.metric, r.turn) for r in rows), key=str) == sorted([*whole, *of_turns], key=str)
    assert {row.status for row in rows if row.subject_id == "r1"} == {"failed"}
    assert sum(row.cost_usd or 0 for row in rows) == 0.25


def test_answers_are_counted_of_sealed_open_absent_and_without_damaged_experiments(store: Store, make: Make) -> None:
    def outputs(identity: str, *statuses: str) -> list[Any]:
        return [
            make("outputs", run_id=derived_id(identity, place), experiment_id=identity, status=status)
            for place, status in enumerate(statuses)
        ]

    store.publish("outputs", "exp-1", outputs("exp-1", "ok", "ok", "failed", "not_attempted"))
    store.append("outputs", "exp-2", "p", outputs("exp-2", "failed", "failed"))
    store.append("outputs", "exp-2", "q", outputs("exp-2", "ok"))  # a retry of the first
    expected = {"exp-1": (2, 1), "exp-2": (1, 1), "exp-3": (0, 0)}
    assert answer_counts(store, ["exp-1", "exp-2", "exp-3"]) == expected
    assert answer_counts(store, []) == {}
    Path(store.layout.sealed("outputs", "exp-4")).parent.mkdir()
    Path(store.layout.sealed("outputs", "exp-4")).write_bytes(b"PAR1 PAR1")
    assert answer_counts(store, ["exp-1", "exp-2"]) == {"exp-1": (2, 1), "exp-2": (1, 1)}


def test_the_state_follows_the_rows_of_these_owners(store: Store, make: Make) -> None:
    before = owner_states(store, ["exp-1"])
    store.append("outputs", "exp-1", "p", [make("outputs", run_id="r1", experiment_id="exp-1")])
    added = owner_states(store, ["exp-1"])
    store.append("outputs", "exp-2", "p", [make("outputs", run_id="r2", experiment_id="exp-2")])
    assert owner_states(store, ["exp-1"]) == added != before
    store.seal("exp-1", ["outputs"])
    assert owner_states(store, ["exp-1"]) != added
