"""Which pairs are compared: shared examples, failed runs, repetitions, and three or more experiments."""

import pytest
from comparing import CALLS, Outputs, counted, judged, longer, said, several, three
from matched import FAILED, NEVER, asked, compared, experiment, judgements, rows_of

from evalflows.engine.run_context import RunContext
from evalflows.evaluators.views import ExampleView
from evalflows.store.records import JudgementRow
from evalflows.store.store import Store
from evalflows.tasks.compare import compute_win_rates


def test_only_shared_examples_are_compared_and_the_others_are_counted_and_said() -> None:
    old = experiment("old", dict.fromkeys("abcde", "x"), place=0)
    new = experiment("new", dict.fromkeys("bcdefg", "xy"), place=1, rows=[
        *rows_of("bcdfg"), {"id": "e", "inputs": {"question": "another?"}},
    ])  # fmt: skip
    row = compared([old, new], longer, both_orders=True)
    assert [one.example_id for one in judgements(row.comparison_id)] == list("bbccdd")
    assert (row.n_shared, row.n_left_out) == (3, 4)
    assert (row.state, row.reason) == ("completed", None)
    assert asked("select planned, judged, missing, n_left_out from comparison_overview") == [(6, 6, 0, 4)]


ANSWERS = ({"p": "x", "q": FAILED, "r": "x", "s": FAILED}, {"p": "y", "q": "y", "r": FAILED, "s": FAILED})


def failing(policy: str) -> tuple[list[JudgementRow], int]:
    """The rows of two experiments some of whose runs failed, and how many pairs a judge was asked about."""
    calls = []

    def judge(outputs: Outputs, example: ExampleView) -> str:
        calls.append(example.id)
        return "tie"

    old, new = (experiment(f"e{place}", answers, place=place) for place, answers in enumerate(ANSWERS))
    return judged((old, new), judge, failed_output=policy, both_orders=True), len(calls)


def test_a_failed_output_loses_without_anybody_asked() -> None:
    rows, calls = failing("loses")
    assert calls == 2
    assert {(row.example_id, row.winner, row.status, row.decided_by, row.comment) for row in rows} == {
        ("p", "tie", "scored", None, None),
        ("q", "right", "scored", "failed_output", "e0 failed: no answer to q"),
        ("r", "left", "scored", "failed_output", "e1 failed: no answer to r"),
        ("s", "tie", "scored", "failed_output", "e0 failed: no answer to s; e1 failed: no answer to s"),
    }
    assert len(rows) == 8 and {row.cost_usd for row in rows if row.decided_by} == {0.0}
    overview = asked("select judged, decided_without_judge, missing from comparison_overview")
    assert overview == [(2, 6, 0)]


def test_or_the_pair_is_left_out() -> None:
    failing("left_out")
    found = dict(asked("select example_id, status from pair_outcomes"))
    assert found == {"p": "scored"} | dict.fromkeys("qrs", "left_out")


def test_an_output_that_was_never_made_is_missing_and_no_failure() -> None:
    old = experiment("old", {"p": "x", "q": NEVER, "r": "x"}, place=0, state="incomplete")
    rows = rows_of("pqr")
    new = experiment("new", {"p": "y", "q": "y"}, place=1, rows=rows, state="incomplete")
    row = compared([old, new], longer, both_orders=True)
    found = {(one.example_id, one.status, one.winner, one.decided_by) for one in judgements(row.comparison_id)}
    assert found == {
        ("p", "scored", "tie", None),
        ("q", "not_attempted", None, None),
        ("r", "not_attempted", None, None),
    }
    assert (row.state, row.reason) == ("completed", None), "the comparison has done what it can"
    assert asked("select missing, planned, judged from comparison_overview") == [(4, 6, 2)]
    ((missing, worst_low, worst_high),) = asked(
        "select candidate_missing, worst_case_low, worst_case_high from verdicts where method not like 'length%'"
    )
    assert (missing, worst_low, worst_high) == (2, pytest.approx(-2 / 3), pytest.approx(2 / 3))


def test_outputs_that_came_since_are_judged_when_the_comparison_is_gone_on_with() -> None:
    new = experiment("new", {"p": "yy", "q": "yy"}, place=1)
    experiment("old", {"p": "x", "q": NEVER}, place=0, state="incomplete")
    row = compared(["exp-00-old", new], counted, run_key="k")
    experiment("old", {"p": "x", "q": "x"}, place=0)
    again = compared(["exp-00-old", new], counted, run_key="k")
    assert again.comparison_id == row.comparison_id
    assert len(CALLS) == 2
    assert said(judgements(row.comparison_id)) == {"p": "right", "q": "right"}


def test_of_repetitions_those_that_all_have_are_compared() -> None:
    old = experiment("old", {"p": ["x", "xxx"], "q": ["x", "xxx"]}, place=0)
    new = experiment("new", {"p": ["yy"] * 3, "q": ["yy"] * 3}, place=1)
    row = compared([new, old], longer, both_orders=True)
    rows = judgements(row.comparison_id)
    assert row.repetitions == 2
    assert {(one.example_id, one.repetition, one.winner) for one in rows} == {
        (example, repetition, winner) for example in "pq" for repetition, winner in ((0, "right"), (1, "left"))
    }
    ((n_pairs, mean),) = asked("select n_pairs, win_rate from win_rates where not length_controlled")
    assert (n_pairs, mean) == (2, 0.5)


@pytest.mark.slow
def test_three_that_beat_each_other_in_a_circle_are_told() -> None:
    row = compared(three(), longer, both_orders=True)
    assert len(judgements(row.comparison_id)) == 3 * 30 * 2
    ((passed, message),) = asked("select passed, message from judge_biases where bias = 'cycles'")
    assert (passed, message) == (None, "intransitive, possibly by chance: a beats c beats b beats a")
    assert {rank for (rank,) in asked("select rank from leaderboard")} == {1}
    pairs = asked("select candidate, baseline from win_rates where not length_controlled order by all")
    assert pairs == [("b", "a"), ("c", "a"), ("c", "b")]


def test_against_the_baseline_alone_there_are_its_pairs_only() -> None:
    a, b, c = three()
    row = compared([a, b, c], longer, both_orders=True, pairs="baseline", baseline="b")
    rows = judgements(row.comparison_id)
    assert {(one.left_experiment_id, one.right_experiment_id) for one in rows} == {(a, b), (b, c)}
    verdicts = asked("select candidate, baseline from win_rates where not length_controlled order by all")
    assert verdicts == [("a", "b"), ("c", "b")]
    assert (row.baseline_experiment_id, row.state) == (b, "completed")


@pytest.mark.slow
def test_what_a_comparison_never_came_to_is_missing_in_its_verdict() -> None:
    answers = [{f"q{i:02}": text for i in range(12)} for text in ("a", "b")]
    old, new = (experiment(name, one, place=place) for place, (name, one) in enumerate(zip("on", answers, strict=True)))
    compared((old, new), several, both_orders=True, adjustment="none")
    store = Store()
    (row,) = store.read("comparison_sets", asked("select comparison_id from comparison_sets")[0][0])
    half = [one for one in store.read("judgements", row.comparison_id) if one.example_id < "q06"]
    store.publish("judgements", row.comparison_id, half)
    compute_win_rates.fn(RunContext(), row)
    found = asked("select missing, conclusion, reason from win_rates where metric = 'x' order by length_controlled")
    assert [one[:2] for one in found] == [(6, "not_enough_evidence")] * 2
    assert "6 pairs with a missing value could change" in found[0][2] and found[1][2].startswith(
        "6 of 12 pairs have no verdict"
    )
