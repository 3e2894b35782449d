"""complete_scores: one row per run and metric."""

from dataclasses import replace

from scored_run import OWNER, Run

from evalflows.store.queries.progress import (
    complete_scores,
)
from evalflows.store.records import ScoreRow, derived_id

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
