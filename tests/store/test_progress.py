"""How far an experiment is: what it lacks in words, what may yet come, what it cost, and a row for every metric."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from specs.errors import TRANSIENT
from store.parquet import Store
from store.progress import Spent, cached_calls, complete_scores, no_answers, open_work, spent, whats_missing
from store.records import ScoreRow, derived_id

Make = Callable[..., Any]
OWNER, OTHER = "exp-1", "exp-2"


class Run:
    """Rows of one experiment, added as a run would."""

    def __init__(self, store: Store, make: Make) -> None:
        self.store, self.make = store, make

    def output(self, run_id: str, **fields: Any) -> None:
        row = self.make("outputs", **{"run_id": run_id, "experiment_id": OWNER} | fields)
        self.store.append("outputs", row.experiment_id, "p", [row])

    def score(self, run_id: str, evaluator: str, metric: str | None = None, **fields: Any) -> ScoreRow:
        metric = metric or evaluator
        of = {"subject_id": run_id, "run_id": run_id, "experiment_id": OWNER}
        judged = {"evaluator": evaluator, "evaluator_version": "v1", "metric": metric}
        score_id = derived_id(run_id, fields.get("turn"), metric, "v1")
        row: ScoreRow = self.make("scores", score_id=score_id, **of | judged | fields)
        self.store.append("scores", row.experiment_id or "", "p", [row])
        return row

    def call(self, call_id: str, **fields: Any) -> None:
        row = self.make("calls", **{"call_id": call_id, "experiment_id": OWNER} | fields)
        self.store.append("calls", row.experiment_id, "p", [row])

    def complete(self) -> dict[tuple[str, str], ScoreRow]:
        """The sealed scores by run and metric."""
        complete_scores(self.store, OWNER)
        self.store.seal(OWNER, ("scores",))
        rows = self.store.read("scores", OWNER)
        found = {(row.subject_id, row.metric): row for row in rows}
        assert len(found) == len(rows)
        return found


@pytest.fixture
def run(store: Store, make: Make) -> Run:
    return Run(store, make)


# What is missing


def missing(run: Run, *evaluators: str) -> str | None:
    """Of an experiment of two examples, each answered twice."""
    experiment = run.make("experiments", experiment_id=OWNER, n_examples=2, repetitions=2)
    return whats_missing(run.store, experiment, evaluators)


def test_an_experiment_that_never_began_lacks_everything(run: Run) -> None:
    assert missing(run, "exact", "tone") == "not done: 4 of 4 answers, 4 of 4 by exact, 4 of 4 by tone"


def test_nothing_is_missing_where_each_run_has_its_rows(run: Run) -> None:
    for i in range(4):
        run.output(f"r{i}", status="failed" if i == 0 else "ok")
        run.score(f"r{i}", "exact", status="failed" if i == 0 else "scored")
        run.score(f"r{i}", "tone", status="not_applicable" if i == 1 else "sampled_out")
    assert missing(run, "exact", "tone") is None


def test_only_what_is_missing_is_said(run: Run) -> None:
    for i in range(4):
        run.output(f"r{i}")
        run.score(f"r{i}", "exact")
    run.score("r0", "tone")
    assert missing(run, "exact", "tone") == "not done: 3 of 4 by tone"


def test_an_answer_that_was_not_attempted_is_missing(run: Run) -> None:
    for i in range(4):
        run.output(f"r{i}", status="not_attempted" if i else "ok")
    assert missing(run) == "not done: 3 of 4 answers"


def test_a_run_with_several_metrics_counts_once_and_not_for_another(run: Run) -> None:
    for i in range(4):
        run.output(f"r{i}")
    for metric in ("a", "b", "c", "d"):
        run.score("r0", "judge", metric)
    assert missing(run, "judge") == "not done: 3 of 4 by judge"


def test_rows_of_another_experiment_do_not_help(run: Run) -> None:
    for i in range(4):
        run.output(f"r{i}", experiment_id=OTHER)
        run.score(f"r{i}", "exact", experiment_id=OTHER)
    assert missing(run, "exact") == "not done: 4 of 4 answers, 4 of 4 by exact"


def test_a_run_answered_at_a_second_attempt_counts_once(run: Run) -> None:
    for i in range(3):
        run.output(f"r{i}")
    run.output("r0", status="failed")
    assert missing(run) == "not done: 1 of 4 answers"


# Open work


@pytest.mark.parametrize(
    ("fields", "is_open"),
    [
        ({"status": "failed", "error_kind": "timeout"}, True),
        ({"status": "failed", "error_kind": "rate_limited"}, True),
        ({"status": "not_attempted", "error_kind": "stopped"}, True),
        ({"status": "not_attempted"}, True),
        ({"status": "failed", "error_kind": "raised"}, False),
        ({"status": "failed", "error_kind": "no_output"}, False),
        ({"status": "failed"}, False),
    ],
    ids=str,
)
def test_what_another_attempt_may_bring_is_open(run: Run, fields: dict[str, str], is_open: bool) -> None:
    run.output("r0", status="ok")
    run.score("r0", "exact", status="scored")
    run.output("r1", **fields)
    run.score("r1", "exact", **fields)
    run.output("r2", experiment_id=OTHER, **fields)
    assert open_work(run.store, OWNER, TRANSIENT) == (2 if is_open else 0)


def test_what_succeeded_at_last_is_not_open(run: Run) -> None:
    run.output("r0", status="ok")
    run.output("r0", status="failed", error_kind="timeout")
    assert open_work(run.store, OWNER, TRANSIENT) == 0


def test_open_work_counts_in_sealed_files_too(run: Run) -> None:
    run.output("r0", status="failed", error_kind="timeout")
    run.store.seal(OWNER, ["outputs"])
    assert open_work(run.store, OWNER, TRANSIENT) == 1


def test_where_no_kind_may_pass_only_what_was_not_attempted_is_open(run: Run) -> None:
    run.output("r0", status="failed", error_kind="timeout")
    run.output("r1", status="not_attempted")
    assert open_work(run.store, OWNER, ()) == 1


# No answer at all


def without_answers(run: Run) -> str | None:
    return no_answers(run.store, run.make("experiments", experiment_id=OWNER))


def test_of_runs_that_all_failed_the_most_frequent_error_is_said(run: Run) -> None:
    for i, error in enumerate(("once", "often", "often")):
        run.output(f"r{i}", status="failed", error=error)
    assert without_answers(run) == "none of 3 answered: often"


def test_one_answer_is_enough(run: Run) -> None:
    run.output("r0", status="failed", error="boom")
    run.output("r1", status="ok")
    run.output("r2", status="failed", error="boom")
    assert without_answers(run) is None


def test_answers_of_another_experiment_are_none_of_this_ones(run: Run) -> None:
    run.output("r0", status="failed", error="boom")
    run.output("r1", status="ok", experiment_id=OTHER)
    assert without_answers(run) == "none of 1 answered: boom"


# What it cost


def test_no_call_costs_nothing(run: Run) -> None:
    run.call("c", experiment_id=OTHER, cost_usd=1.0, tokens_in=1, tokens_out=1)
    assert spent(run.store, OWNER) == Spent(calls=0, tokens_in=0, tokens_out=0, cost_usd=0.0)


def test_costs_and_tokens_are_summed_each_call_once(run: Run) -> None:
    for _ in range(2):  # as after a recovery
        run.call("c1", cost_usd=0.25, tokens_in=10, tokens_out=1)
    run.call("c2", cost_usd=0.5, tokens_in=20, tokens_out=2)
    assert spent(run.store, OWNER) == Spent(calls=2, tokens_in=30, tokens_out=3, cost_usd=0.75)


def test_one_unknown_cost_makes_the_sum_unknown(run: Run) -> None:
    run.call("c1", cost_usd=0.25, tokens_in=10, tokens_out=1)
    run.call("c2", cost_usd=None, tokens_in=20, tokens_out=2)
    assert spent(run.store, OWNER) == Spent(calls=2, tokens_in=30, tokens_out=3, cost_usd=None)


def test_a_failed_call_whose_cost_is_not_known_makes_the_sum_unknown(run: Run) -> None:
    run.call("c1", cost_usd=0.25, tokens_in=10, tokens_out=1)
    run.call("c2", status="failed", cost_usd=None)
    assert spent(run.store, OWNER) == Spent(calls=2, tokens_in=10, tokens_out=1, cost_usd=None)


def test_a_price_of_nothing_is_known(run: Run) -> None:
    run.call("c1", cost_usd=0.0)
    assert spent(run.store, OWNER).cost_usd == 0.0


def test_answers_from_the_ledger_are_counted_of_targets_and_evaluators(run: Run) -> None:
    assert cached_calls(run.store, OWNER) == 0
    run.output("r0", calls_cached=2)
    run.score("r0", "exact", calls_cached=3)
    run.output("r9", experiment_id=OTHER, calls_cached=100)
    assert cached_calls(run.store, OWNER) == 5


# A row for every metric


def test_a_plain_evaluators_rows_stay_as_they_are(run: Run) -> None:
    rows = [
        run.score("r0", "exact", status="scored", value=1.0),
        run.score("r1", "exact", status="failed", error="boom"),
        run.score("r2", "exact", status="not_applicable"),
    ]
    assert sorted(run.complete().values(), key=lambda row: row.subject_id) == rows


def test_an_evaluator_that_always_failed_keeps_its_rows(run: Run) -> None:
    rows = [run.score(f"r{i}", "judge", status="failed", error="boom") for i in range(2)]
    assert sorted(run.complete().values(), key=lambda row: row.subject_id) == rows


def test_a_failure_stands_for_every_metric_that_the_evaluator_gives(run: Run) -> None:
    a, b = (run.score("r0", "judge", metric, status="scored", value=1.0) for metric in ("a", "b"))
    failed = run.score("r1", "judge", status="failed", error="boom", error_kind="raised")
    found = run.complete()
    assert set(found) == {("r0", "a"), ("r0", "b"), ("r1", "a"), ("r1", "b")}
    assert (found["r0", "a"], found["r0", "b"]) == (a, b)
    for metric in ("a", "b"):
        row = found["r1", metric]
        assert (row.status, row.value, row.error, row.error_kind) == ("failed", None, "boom", "raised")
        assert row.score_id == derived_id("r1", None, metric, "v1") != failed.score_id
        assert (row.evaluator, row.run_id) == ("judge", "r1")


def test_a_failure_of_an_evaluator_with_one_metric_of_another_name_bears_that(run: Run) -> None:
    run.score("r0", "judge", "helpfulness", status="scored", value=1.0)
    run.score("r1", "judge", status="failed", error="boom")
    found = run.complete()
    assert {key: row.status for key, row in found.items()} == {
        ("r0", "helpfulness"): "scored",
        ("r1", "helpfulness"): "failed",
    }


def test_what_a_failure_cost_is_counted_once(run: Run) -> None:
    for metric, cost in (("a", 0.5), ("b", 0.0)):
        run.score("r0", "judge", metric, status="scored", cost_usd=cost, calls=1 if cost else 0)
    run.score("r1", "judge", status="failed", cost_usd=0.25, calls=3, calls_cached=1, tokens_in=10, tokens_out=5)
    found = [row for row in run.complete().values() if row.subject_id == "r1"]
    assert sorted(row.metric for row in found) == ["a", "b"]
    assert sum(row.cost_usd or 0 for row in found) == 0.25
    assert (sum(row.calls for row in found), sum(row.calls_cached for row in found)) == (3, 1)
    assert (sum(row.tokens_in or 0 for row in found), sum(row.tokens_out or 0 for row in found)) == (10, 5)


def test_a_metric_that_was_left_out_does_not_apply(run: Run) -> None:
    run.score("r0", "judge", "a", status="scored", value=1.0)
    run.score("r0", "judge", "b", status="scored", value=0.0, label="bad", cost_usd=0.0)
    run.score("r1", "judge", "a", status="scored", value=1.0, cost_usd=0.5, calls=1, tokens_in=7, metadata='{"x":1}')
    found = run.complete()
    row = found["r1", "b"]
    assert (row.status, row.value, row.label, row.error) == ("not_applicable", None, None, None)
    assert row.comment == "judge gave no b for this run"
    assert (row.cost_usd, row.calls, row.tokens_in, row.metadata) == (0.0, 0, None, None)
    assert row.score_id == derived_id("r1", None, "b", "v1")
    assert found["r1", "a"].cost_usd == 0.5


def test_an_evaluator_that_did_not_apply_to_a_run_makes_no_metric_of_its_own_name(run: Run) -> None:
    run.score("r0", "judge", "a", status="scored", value=1.0)
    run.score("r0", "judge", "b", status="scored", value=1.0)
    run.score("r1", "judge", status="not_applicable")  # it returned None
    assert {key: row.status for key, row in run.complete().items()} == {
        ("r0", "a"): "scored",
        ("r0", "b"): "scored",
        ("r1", "a"): "not_applicable",
        ("r1", "b"): "not_applicable",
    }


def test_a_metric_that_never_applied_is_kept(run: Run) -> None:
    run.score("r0", "judge", "a", status="scored", value=1.0)
    run.score("r0", "judge", "c", status="not_applicable", comment="no citation asked for")
    run.score("r1", "judge", status="failed")
    found = run.complete()
    assert {key: row.status for key, row in found.items()} == {
        ("r0", "a"): "scored",
        ("r0", "c"): "not_applicable",
        ("r1", "a"): "failed",
        ("r1", "c"): "failed",
    }
    assert found["r0", "c"].comment == "no citation asked for"


def test_evaluators_do_not_mix(run: Run) -> None:
    run.score("r0", "judge", "a", status="scored")
    run.score("r0", "other", "c", status="scored")
    run.score("r0", "exact", status="scored")
    run.score("r1", "judge", status="failed")
    run.score("r1", "other", "c", status="scored")
    run.score("r1", "exact", status="failed")
    assert set(run.complete()) == {(r, metric) for r in ("r0", "r1") for metric in ("a", "c", "exact")}


def test_completing_twice_changes_nothing(run: Run) -> None:
    run.score("r0", "judge", "a", status="scored")
    run.score("r0", "judge", "b", status="scored")
    run.score("r1", "judge", status="failed")
    run.score("r2", "judge", "b", status="scored")
    assert run.complete() == run.complete()


def test_a_run_that_is_judged_again_replaces_its_failures(run: Run) -> None:
    run.score("r0", "judge", "a", status="scored")
    run.score("r0", "judge", "b", status="scored")
    run.score("r1", "judge", status="failed", error_kind="timeout")
    run.complete()
    run.store.reopen(OWNER, ["scores"])
    again = [run.score("r1", "judge", metric, status="scored", value=1.0) for metric in ("a", "b")]
    found = run.complete()
    assert len(found) == 4
    assert [found["r1", "a"], found["r1", "b"]] == [replace(row) for row in again]


def test_an_experiment_without_scores_is_completed(run: Run) -> None:
    assert run.complete() == {}


# Turns


def turned(run: Run) -> dict[tuple[str, str, int | None], ScoreRow]:
    """The sealed scores by run, metric and turn."""
    complete_scores(run.store, OWNER)
    run.store.seal(OWNER, ("scores",))
    rows = run.store.read("scores", OWNER)
    found = {(row.subject_id, row.metric, row.turn): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_scores_of_turns_stay_as_they_are_beside_those_of_the_run(run: Run) -> None:
    rows = [run.score("r0", "judge", status="scored", value=0.5)]
    rows += [run.score("r0", "judge", turn=turn, status="scored", value=1.0) for turn in (1, 2)]
    assert turned(run) == {("r0", "judge", row.turn): row for row in rows}


def test_a_failure_stands_for_every_metric_of_runs_and_for_no_turn(run: Run) -> None:
    for metric in ("a", "b"):
        run.score("r0", "judge", metric, status="scored", value=0.5)
        run.score("r0", "judge", metric, turn=1, status="scored", value=1.0, cost_usd=0.0)
    run.score("r0", "judge", "of turns", turn=1, status="scored", value=1.0)
    run.score("r1", "judge", status="failed", error="boom", cost_usd=0.25)
    found = turned(run)
    assert set(found) == {
        ("r0", "a", None), ("r0", "b", None), ("r0", "a", 1), ("r0", "b", 1), ("r0", "of turns", 1),
        ("r1", "a", None), ("r1", "b", None),
    }  # fmt: skip
    assert [found["r1", metric, None].status for metric in "ab"] == ["failed", "failed"]
    assert sum(row.cost_usd or 0 for row in found.values()) == 0.25


def test_a_metric_that_was_left_out_of_a_run_is_said_to_be_and_its_turns_stay(run: Run) -> None:
    for metric in ("a", "b"):
        run.score("r0", "judge", metric, status="scored", value=0.5)
    run.score("r1", "judge", "a", status="scored", value=0.5)
    run.score("r1", "judge", "b", turn=1, status="scored", value=1.0)
    found = turned(run)
    assert (found["r1", "b", None].status, found["r1", "b", 1].value) == ("not_applicable", 1.0)


def test_with_turns_too_completing_twice_changes_nothing(run: Run) -> None:
    run.score("r0", "judge", "a", status="scored", value=0.5)
    run.score("r0", "judge", "b", turn=1, status="scored", value=0.5)
    run.score("r1", "judge", status="failed")
    assert turned(run) == turned(run)


def test_a_judgement_of_turns_alone_is_none_that_is_missing(run: Run) -> None:
    for i in range(4):
        run.output(f"r{i}")
        run.score(f"r{i}", "judge", turn=1)
        run.score(f"r{i}", "judge", turn=2)
    assert missing(run, "judge") is None
