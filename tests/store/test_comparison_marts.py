"""The views of comparisons: what orders say together, what is missing, and whose names stand beside it."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from compared import START, Compared, run_id

from evalflows.store.catalog import ask_arrow
from evalflows.store.parquet import Store
from evalflows.store.records import ExampleRow

Make = Callable[..., Any]


def rows(store: Store, query: str) -> list[dict[str, Any]]:
    return ask_arrow(store, query, []).to_pylist()  # type: ignore[no-any-return]


def only(store: Store, columns: str, view: str = "pair_outcomes") -> dict[str, Any]:
    (row,) = rows(store, f"select {columns} from {view}")
    return row


# pair_outcomes: how orders combine


ONE_ORDER = {
    ("left",): ("scored", "left", "old", 1.0),
    ("right",): ("scored", "right", "new", 0.0),
    ("tie",): ("scored", "tie", "tie", 0.5),
    ("left unasked",): ("scored", "left", "old", 1.0),
    ("failed",): ("missing", None, None, None),
    ("not_attempted",): ("missing", None, None, None),
    ("not_applicable",): ("not_applicable", None, None, None),
    ("left_out",): ("left_out", None, None, None),
}
HALF = ("scored", "half", "tie", 0.5)
FLIPPED, MISSING = ("scored", "flipped", "tie", 0.5), ("missing", None, None, None)
BOTH_ORDERS = {
    ("left", "left"): ("scored", "left", "old", 1.0),
    ("right", "right"): ("scored", "right", "new", 0.0),
    ("tie", "tie"): ("scored", "tie", "tie", 0.5),
    ("right unasked", "right unasked"): ("scored", "right", "new", 0.0),
    ("left", "right"): FLIPPED,
    ("right", "left"): FLIPPED,
    ("tie", "left"): HALF,
    ("right", "tie"): HALF,
    ("left", "failed"): MISSING,
    ("failed", "left"): MISSING,
    ("not_attempted", "right"): MISSING,
    ("failed", "not_attempted"): MISSING,
    ("left", None): MISSING,
    (None, "left"): MISSING,
    ("not_applicable", "left"): ("not_applicable", None, None, None),
    ("failed", "not_applicable"): ("missing", None, None, None),
    ("not_applicable", "not_applicable"): ("not_applicable", None, None, None),
    ("left_out", "left_out"): ("left_out", None, None, None),
}


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "open"])
@pytest.mark.parametrize("planned", [1, 2])
def test_what_the_orders_of_a_pair_say_together(store: Store, planned: int, sealed: bool) -> None:
    cases: dict[Any, Any] = ONE_ORDER if planned == 1 else BOTH_ORDERS
    compared = Compared(store, examples=[f"q{place}" for place in range(len(cases))], both_orders=planned == 2)
    for place, said in enumerate(cases):
        compared.judge(f"q{place}", *said)
    compared.write(sealed=sealed)
    found = rows(store, "select status, outcome, winner, left_points from pair_outcomes order by position")
    assert dict(zip(cases, (tuple(row.values()) for row in found), strict=True)) == cases


@pytest.mark.parametrize(
    ("rule", "points", "winners"),
    [
        ("strict", (0.5, 0.5, 0.5), ("tie", "tie", "tie")),
        ("sum", (1.0, 0.0, 0.5), ("old", "new", "tie")),
        ("mean", (0.75, 0.25, 0.5), ("old", "new", "tie")),
        (None, (0.5, 0.5, 0.5), ("tie", "tie", "tie")),
    ],
)
def test_the_rule_says_what_a_tie_in_one_order_counts(
    store: Store, rule: str | None, points: tuple[float, ...], winners: tuple[str, ...]
) -> None:
    compared = Compared(store, examples=["q0", "q1", "q2", "q3"], both_orders=True, order_rule=rule)
    for example, said in zip(compared.examples, [("left", "tie"), ("tie", "right"), ("right", "left")], strict=False):
        compared.judge(example, *said)
    compared.judge("q3", "right", "right")
    compared.write()
    found = rows(store, "select left_points, winner, consistency from pair_outcomes order by position")
    assert tuple(row["left_points"] for row in found) == (*points, 0.0)
    assert tuple(row["winner"] for row in found) == (*winners, "new")
    assert [row["consistency"] for row in found] == ["half", "half", "flipped", "consistent"]


@pytest.mark.parametrize(
    ("said", "orders", "shown_first"),
    [(("left", "left"), 2, "both"), (("left", None), 1, "left"), ((None, "left"), 1, "right")],
)
def test_which_orders_there_are(store: Store, said: tuple[str | None, ...], orders: int, shown_first: str) -> None:
    compared = Compared(store, both_orders=True)
    compared.judge("q0", *said)
    compared.write()
    assert only(store, "orders, shown_first") == {"orders": orders, "shown_first": shown_first}


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (("failed", "not_attempted"), "boom"),
        (("not_attempted", "failed"), "over budget"),
        (("left", "failed"), "boom"),
        (("left", None), "no judgement with the answer of new shown first"),
        ((None, "tie"), "no judgement with the answer of old shown first"),
        ((None, "failed"), "boom"),
        (("left", "right"), None),
        (("not_applicable", "failed"), "boom"),
    ],
)
def test_what_is_missing_says_why(store: Store, said: tuple[str | None, ...], error: str | None) -> None:
    compared = Compared(store, both_orders=True)
    compared.judge("q0", *said)
    compared.write()
    assert only(store, "error") == {"error": error}


@pytest.mark.parametrize(
    ("said", "comment", "other"),
    [
        (("left", "right"), "left, left first", "right, right first"),
        (("left", None), "left, left first", None),
        ((None, "right"), "right, right first", None),
    ],
)
def test_the_comment_of_the_order_with_the_left_answer_first_goes_first(
    store: Store, said: tuple[str | None, ...], comment: str, other: str | None
) -> None:
    compared = Compared(store, both_orders=True)
    compared.judge("q0", *said)
    compared.write()
    assert only(store, "comment, other_comment") == {"comment": comment, "other_comment": other}


def test_a_comment_that_lacks_is_not_that_of_the_other_order(store: Store) -> None:
    compared = Compared(store, both_orders=True)
    compared.judge("q0", "left", "left")
    compared.judgements[0] = replace(compared.judgements[0], comment=None)
    compared.write()
    assert only(store, "comment, other_comment") == {"comment": None, "other_comment": "left, right first"}


def test_scores_and_agreement_are_means_over_the_orders(store: Store) -> None:
    compared = Compared(store, both_orders=True)
    compared.judge("q0", "left", "left", judge_model="a judge")
    first, second = compared.judgements
    compared.judgements = [
        replace(first, left_score=1.0, right_score=0.5, agreement=1.0),
        replace(second, left_score=0.5, right_score=0.0, agreement=0.5),
    ]
    compared.write()
    found = only(store, "left_score, right_score, agreement, judge_model")
    assert found == {"left_score": 0.75, "right_score": 0.25, "agreement": 0.75, "judge_model": "a judge"}


def test_a_score_of_one_order_alone_is_none(store: Store) -> None:
    compared = Compared(store, both_orders=True)
    compared.judge("q0", "left", None, left_score=1.0, right_score=0.0)
    compared.write()
    assert only(store, "left_score, right_score") == {"left_score": None, "right_score": None}


@pytest.mark.parametrize(
    ("said", "cost", "calls"),
    [(("left", "left"), 0.5, 2), (("left", "not_attempted"), 0.25, 1), (("left", "failed"), None, 2)],
)
def test_a_cost_is_unknown_where_that_of_one_order_is(
    store: Store, said: tuple[str, ...], cost: float | None, calls: int
) -> None:
    compared = Compared(store, both_orders=True)
    compared.judge("q0", *said)
    compared.write()
    assert only(store, "cost_usd, calls") == {"cost_usd": cost, "calls": calls}


def test_a_later_attempt_replaces_a_failed_one(store: Store) -> None:
    compared = Compared(store, both_orders=True)
    compared.judge("q0", "failed", "right")
    compared.judgements.append(replace(compared.judgements[0], status="scored", winner="right", error=None))
    compared.write(sealed=False)
    assert only(store, "orders, outcome, error") == {"orders": 2, "outcome": "right", "error": None}


# pair_outcomes: what stands beside them


def test_a_pair_stands_beside_its_question_and_both_answers(store: Store) -> None:
    compared = Compared(store, examples=["q0", "q1"])
    compared.answer(1, "q1", None)
    compared.judge("q1", "left unasked")
    compared.write()
    found = only(store, "*")
    judged = {
        "metric": "preference",
        "evaluator": "preference",
        "evaluator_version": "v1",
        "decided_by": "failed_output",
    }
    asked = {"example_id": "q1", "repetition": 0, "position": 1, "inputs": '{"question":"q1?"}'}
    left = {"left_experiment_id": "exp-00", "left_experiment": "old", "left_run_id": run_id(0, "q1")}
    answered = {"left_length": 9, "left_outputs": '{"output":"old on q1"}', "left_output_status": "ok"}
    right = {"right_experiment_id": "exp-01", "right_experiment": "new", "right_run_id": run_id(1, "q1")}
    failed = {"right_length": None, "right_outputs": None, "right_output_status": "failed"}
    wanted = {"comparison_id": "cmp-1", "comparison": "old and new", "decided_by": "failed_output"}
    wanted |= judged | asked | left | answered | right | failed
    assert {name: found[name] for name in wanted} == wanted


def test_the_question_is_as_the_experiment_named_first_has_it(store: Store) -> None:
    compared = Compared(store)
    compared.experiments[1] = replace(compared.experiments[1], snapshot_id="snap-0")  # the right one, here named first
    compared.set_row = replace(compared.set_row, snapshot_ids=["snap-0", *compared.set_row.snapshot_ids])
    other = {"split": "test", "cluster": "c", "metadata": '{"topic":"a"}', "reference_outputs": '{"answer":1}'}
    example = ExampleRow(snapshot_id="snap-0", example_id="q0", position=7, inputs='{"question":"first"}', **other)
    store.publish("examples", "snap-0", [example])
    compared.judge("q0", "left")
    compared.write()
    found = only(store, "position, inputs, split, cluster, metadata, reference_outputs")
    assert found == {"position": 7, "inputs": '{"question":"first"}', **other}


def test_a_pair_whose_run_was_never_made_is_there_as_missing(store: Store) -> None:
    compared = Compared(store)
    del compared.outputs[run_id(1, "q0")]
    compared.judge("q0", "not_attempted")
    compared.write()
    found = only(store, "status, left_output_status, right_output_status, right_outputs")
    assert found == {
        "status": "missing",
        "left_output_status": "ok",
        "right_output_status": None,
        "right_outputs": None,
    }


def test_pairs_metrics_repetitions_and_versions_stay_apart(store: Store) -> None:
    compared = Compared(store, ["a", "b", "c"], ["q0", "q1"], repetitions=2, both_orders=True)
    for pair in ((0, 1), (0, 2), (1, 2)):
        for repetition in range(2):
            for metric in ("preference", "tone"):
                compared.judge("q0", "left", "left", pair=pair, repetition=repetition, metric=metric)
                compared.judge("q1", "left", "right", pair=pair, repetition=repetition, metric=metric)
    compared.judge("q0", "right", "right", evaluator_version="v2")
    compared.write()
    found = rows(
        store,
        """select metric, left_experiment, right_experiment, repetition, outcome, orders
           from pair_outcomes where example_id = 'q0' and evaluator_version = 'v1'""",
    )
    wanted = {(m, *pair, r) for m in ("preference", "tone") for pair in ("ab", "ac", "bc") for r in range(2)}
    assert {tuple(row.values())[:4] for row in found} == wanted and len(found) == 12
    assert {(row["outcome"], row["orders"]) for row in found} == {("left", 2)}
    (second,) = rows(store, "select outcome, orders from pair_outcomes where evaluator_version = 'v2'")
    assert second == {"outcome": "right", "orders": 2}


def test_two_comparisons_of_the_same_runs_stay_apart(store: Store) -> None:
    for comparison, said in (("cmp-1", "left"), ("cmp-2", "right")):
        compared = Compared(store, comparison_id=comparison)
        compared.judge("q0", said)
        compared.write()
    found = rows(store, "select comparison_id, outcome, orders from pair_outcomes order by 1")
    assert [tuple(row.values()) for row in found] == [("cmp-1", "left", 1), ("cmp-2", "right", 1)]


# comparison_overview


def test_an_overview_says_what_was_compared_and_how(store: Store) -> None:
    ended = {"ended_at": START, "calls": 3, "calls_cached": 1, "cost_usd": 0.5, "reason": "over budget"}
    compared = Compared(
        store,
        ["a", "b", "c"],
        name="three",
        description="of three",
        both_orders=True,
        n_left_out=4,
        state="incomplete",
        **{"failed_output_policy": "left_out", "baseline_experiment_id": "exp-01", **ended},
        experiments=["exp-02", "exp-01", "exp-00"],
    )
    other = replace(compared.experiments[1], dataset_name="more")
    compared.experiments[1:] = [other, replace(compared.experiments[2], dataset_name=None)]
    compared.write()
    found = only(store, "*", "comparison_overview")
    assert found.items() >= ({"name": "three", "description": "of three", "state": "incomplete", **ended}).items()
    assert (found["experiments"], found["datasets"]) == (["c", "b", "a"], ["more", "questions"])
    assert (found["baseline"], found["n_experiments"], found["repetitions"]) == ("b", 3, 1)
    assert (found["n_shared"], found["n_left_out"], found["both_orders"], found["randomize_order"]) == (
        1,
        4,
        True,
        True,
    )
    assert (found["failed_output_policy"], found["started_at"]) == ("left_out", START)


@pytest.mark.parametrize(
    ("of_set", "planned"),
    [
        ({}, 2 * 3 * 6),
        ({"spec": '{"pairs":"all"}'}, 2 * 3 * 6),
        ({"spec": '{"pairs":"baseline"}', "baseline_experiment_id": "exp-00"}, 2 * 3 * 3),
        ({"both_orders": True}, 2 * 3 * 6 * 2),
        ({"evaluators": "[{},{},{}]"}, 2 * 3 * 6 * 3),
    ],
)
def test_what_was_planned(store: Store, of_set: dict[str, Any], planned: int) -> None:
    """Of two examples, three repetitions and four experiments; nothing was judged yet."""
    Compared(store, ["a", "b", "c", "d"], ["q0", "q1"], repetitions=3, **of_set).write(sealed=False)
    found = only(store, "planned, judged, decided_without_judge, missing, ties, flipped", "comparison_overview")
    nothing = {"judged": 0, "decided_without_judge": 0, "ties": 0, "flipped": 0}
    assert found == {"planned": planned, "missing": planned, **nothing}


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "open"])
def test_every_judgement_that_was_planned_counts_as_what_it_is(store: Store, sealed: bool) -> None:
    compared = Compared(store, examples=[f"q{place}" for place in range(len(BOTH_ORDERS))], both_orders=True)
    for place, said in enumerate(BOTH_ORDERS):
        compared.judge(f"q{place}", *said)
    compared.write(sealed=sealed)
    found = only(store, "planned, judged, decided_without_judge, missing, ties, half, flipped", "comparison_overview")
    said = [one for orders in BOTH_ORDERS for one in orders]
    unasked = sum(one in ("right unasked", "left_out") for one in said)
    missing = sum(one in ("failed", "not_attempted", None) for one in said)
    assert found == {
        "planned": len(said),
        "judged": len(said) - unasked - missing,
        "missing": missing,
        "decided_without_judge": unasked,
        "ties": 1,
        "half": 2,
        "flipped": 2,
    }
    (even,) = rows(
        store,
        """select count(*) filter (outcome = 'tie') as ties, count(*) filter (outcome = 'flipped') as flipped
           from pair_outcomes""",
    )
    assert even == {"ties": found["ties"], "flipped": found["flipped"]}


def test_a_tie_of_one_order_counts_where_one_was_planned(store: Store) -> None:
    compared = Compared(store, examples=["q0", "q1"])
    compared.judge("q0", "tie")
    compared.judge("q1", "tie unasked")
    compared.write()
    found = only(store, "judged, decided_without_judge, missing, ties, flipped", "comparison_overview")
    assert found == {"judged": 1, "decided_without_judge": 1, "missing": 0, "ties": 2, "flipped": 0}


def test_several_metrics_of_one_evaluator_are_one_judgement(store: Store) -> None:
    compared = Compared(store, examples=["q0", "q1"], evaluators='[{"name":"judge"},{"name":"other"}]')
    for metric in ("tone", "truth"):
        compared.judge("q0", "left", metric=metric, evaluator="judge")
    compared.judge("q0", "left", metric="other")
    compared.judge("q1", "failed", metric="judge")
    compared.write()
    found = only(store, "planned, judged, missing", "comparison_overview")
    assert found == {"planned": 4, "judged": 2, "missing": 2}


def test_a_comparison_of_unknown_cost_has_none(store: Store) -> None:
    Compared(store, calls=2, cost_usd=None).write()
    assert only(store, "calls, cost_usd, baseline", "comparison_overview") == {
        "calls": 2,
        "cost_usd": None,
        "baseline": None,
    }
