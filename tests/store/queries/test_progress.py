"""How far an experiment is: what it lacks in words, what may yet come, what it cost, and a row for every metric."""

import pytest
from scored_run import OTHER, OWNER, Run

from evalflows.specs.errors import TRANSIENT
from evalflows.store.queries.progress import (
    Spent,
    cached_calls,
    no_answers,
    open_work,
    spent,
    whats_missing,
)

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


def test_a_judgement_of_turns_alone_is_none_that_is_missing(run: Run) -> None:
    for i in range(4):
        run.output(f"r{i}")
        run.score(f"r{i}", "judge", turn=1)
        run.score(f"r{i}", "judge", turn=2)
    assert missing(run, "judge") is None


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
