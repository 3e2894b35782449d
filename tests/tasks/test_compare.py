"""Pairwise judgements: the order shown, what evaluators get and return, and failures."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from comparing import NAMES, N, Outputs, judged, keep_score, longer, refused, said, two
from matched import asked, compared, named
from user_places import without_places

from evalflows.analysis.judge_exclusions import exclusions_in
from evalflows.evaluators.score import Place, Preference
from evalflows.evaluators.views import ExampleView, RunView
from evalflows.specs.comparison import OrderStatus
from evalflows.specs.errors import CallError, InputError
from evalflows.store.queries.labels import preferences_of
from evalflows.store.records import derived_id
from evalflows.store.store import Store

# Who was shown first, and who won


ORDERS: tuple[dict[str, Any], ...] = ({}, {"randomize_order": False}, {"both_orders": True})


@pytest.mark.slow
@pytest.mark.parametrize("turned", [False, True])
def test_winner_and_scores_are_those_of_the_experiments_whatever_was_shown_first(turned: bool) -> None:
    def first(outputs: Outputs) -> str:
        for output in outputs:
            output.clear()  # which reaches no other evaluator
        return "A"

    def first_is_new(outputs: Outputs) -> Preference:
        return Preference(scores=(float(longer(outputs)[0]), float(longer(outputs)[1])), comment=outputs[0]["answer"])

    old, new = two()
    for order in ORDERS:
        rows = judged((new, old) if turned else (old, new), first, longer, first_is_new, **order)
        assert len(rows) == 3 * N * (2 if "both_orders" in order else 1)
        for row in rows:
            if row.metric == "first":
                assert (row.winner, row.left_score) == (row.shown_first, None), (
                    "a place is mapped back to who stood there"
                )
                continue
            even = NAMES.index(row.example_id) % 2 == 0
            assert (row.left_experiment_id, row.right_experiment_id) == (old, new)
            assert (row.left_run_id, row.right_run_id) == tuple(
                derived_id(one, row.example_id, 0) for one in (old, new)
            )
            said_of_it = (row.winner, row.left_score, row.right_score)
            assert said_of_it == ("right" if even else "left", 2.0 if even else 4.0, 3.0)
            if row.metric == "first_is_new":
                assert (row.comment == "yyy") is (row.shown_first == "right"), "what was shown first is what it says"
        of_order = {"right" if turned else "left"} if "randomize_order" in order else {"left", "right"}
        assert {row.shown_first for row in rows} == of_order


# What an evaluator is handed


def test_arguments_are_handed_by_name_in_the_order_shown() -> None:
    seen: list[tuple[Any, ...]] = []

    def all_of_it(
        inputs: Any, outputs: Any, reference_outputs: Any, metadata: Any, runs: list[RunView], example: ExampleView
    ) -> str:
        seen.append((inputs, outputs, reference_outputs, metadata, runs, example))
        return "tie"

    old, new = two(reference_outputs={"answer": "yes"}, metadata={"topic": "x"})
    rows = judged((old, new), all_of_it, randomize_order=False)
    assert {row.status for row in rows} == {"scored"}, rows[0].error
    inputs, outputs, reference, metadata, runs, example = next(one for one in seen if one[0] == {"question": "q00?"})
    assert (outputs, reference, metadata) == ([{"answer": "xx"}, {"answer": "yyy"}], {"answer": "yes"}, {"topic": "x"})
    assert [run.id for run in runs] == [derived_id(one, "q00", 0) for one in (old, new)]
    assert [(run.experiment, run.target) for run in runs] == [("old", "target of old"), ("new", "target of new")]
    assert [run.outputs for run in runs] == outputs
    assert (example.id, example.inputs, example.outputs) == ("q00", inputs, {"answer": "yes"})


def test_the_steps_of_the_runs_are_handed_where_asked_for() -> None:
    def by_steps(runs: list[RunView]) -> dict[str, Any]:
        return {"winner": "tie", "comment": str([[step["name"] for step in run.steps] for run in runs])}

    experiments = two()
    for load_nested, shown in ((True, "[['search'], ['search']]"), (False, "[[], []]")):
        assert {row.comment for row in judged(experiments, by_steps, load_nested=load_nested)} == {shown}


# What an evaluator says


def test_scores_by_run_are_texts_lists_and_mappings_alike() -> None:
    def by_run(runs: list[RunView]) -> dict[str, Any]:
        scores = {run.id: len(run.outputs["answer"]) for run in runs}  # type: ignore[index]
        return {"key": "by_run", "scores": scores, "comment": {run.id: str(run.experiment) for run in runs}}

    def by_text(outputs: Outputs) -> str:
        one, other = longer(outputs)
        return "tie" if one == other else "A" if one > other else "[[B]]"

    async def awaited(outputs: Outputs) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"winner": by_text(outputs).strip("[]"), "comment": "why"}

    rows = judged(two(), by_run, by_text, awaited, longer)
    by_metric = {name: said([row for row in rows if row.metric == name]) for name in ("by_run", "by_text", "awaited")}
    wanted = {name: "right" if i % 2 == 0 else "left" for i, name in enumerate(NAMES)}
    assert by_metric == dict.fromkeys(by_metric, wanted)
    comments = {row.shown_first: row.comment for row in rows if row.metric == "by_run"}
    assert comments == {"left": "old\nnew", "right": "new\nold"}


def test_one_that_raises_or_does_not_apply_is_no_tie() -> None:
    def raises(example: ExampleView) -> str:
        if example.id == "q00":
            raise RuntimeError("cannot say")
        if example.id == "q02":
            raise SystemExit(3)
        return "A"

    def seldom(example: ExampleView) -> Any:
        return {"q00": None, "q01": [None, None]}.get(example.id, "B")

    rows = {(row.metric, row.example_id): row for row in judged(two(), raises, seldom)}
    of = [
        (row.status, row.winner, row.error_kind, without_places(row.error))
        for row in rows.values()
        if row.status != "scored"
    ]
    assert Counter(of) == {
        ("failed", None, "raised", "RuntimeError: cannot say"): 1,
        ("failed", None, "raised", "SystemExit: 3"): 1,
        ("not_applicable", None, None, ""): 2,
    }
    assert rows["raises", "q00"].error_trace is not None
    ended = asked("select state, reason, missing, judged from comparison_overview")
    assert ended == [("completed", None, 2, 2 * N - 2)]


def test_what_was_judged_before_in_the_other_order_is_a_row_of_that_order() -> None:
    def recorded(outputs: Outputs) -> Preference:
        return Preference(winner="first", shown_first="second", order_status="known")

    experiments = two()
    rows = judged(experiments, recorded, randomize_order=False)
    assert {(row.shown_first, row.winner, row.status) for row in rows} == {("right", "left", "scored")}
    assert len(rows) == N
    missing = judged(experiments, recorded, both_orders=True)
    assert {row.status for row in missing} == {"failed"} and len(missing) == 2 * N
    wanted = "recorded in the other order only; wanted a verdict in both, or both_orders: false"
    assert {row.error for row in missing} == {wanted}


@pytest.mark.parametrize("status", ["drawn", "unknown"])
def test_in_both_orders_a_verdict_recorded_in_no_known_order_stands_for_the_pair(status: OrderStatus) -> None:
    def recorded(runs: list[RunView]) -> Preference:
        place: Place = "first" if runs[0].experiment == "old" else "second"
        return Preference(winner="first", shown_first=place, order_status=status)

    row = compared(two(), recorded, both_orders=True)
    found = asked("select outcome, status, orders, shown_first, order_status, error from pair_outcomes")
    assert found == [("left", "scored", 1, None, status, None)] * N
    assert asked("select missing, judged, ties from comparison_overview") == [(0, 2 * N, 0)]
    assert row.state == "completed"


def test_a_returned_key_that_an_item_metric_bears_is_a_failed_row() -> None:
    name = "quality"

    def clashes(example: ExampleView) -> dict[str, Any]:
        return {"key": name if example.id == "q00" else "fine", "winner": "A"}

    old, new = two()
    keep_score(old, "quality")
    rows = judged((old, new), clashes)
    (failed,) = (row for row in rows if row.status == "failed")
    assert failed.example_id == "q00"
    assert (
        failed.error == f"returned the key '{name}', which is an item metric; wanted another, such as pairwise_{name}"
    )


def test_two_evaluators_that_give_one_metric_are_told_and_not_exported() -> None:
    def one(outputs: Outputs) -> dict[str, Any]:
        return {"key": "k", "scores": [1, 0]}

    def other(outputs: Outputs) -> dict[str, Any]:
        return {"key": "k", "scores": [0, 1]}

    row = compared(two(), one, other, both_orders=True)
    assert row.reason == "one and other both give 'k', wanted different metric names"
    with pytest.raises(InputError, match="one and other both give 'k'"):
        preferences_of(Store(), row.comparison_id)


def test_tiers_judge_what_those_before_left_open_and_a_fallback_what_the_judge_cannot() -> None:
    def clear(outputs: Outputs, example: ExampleView) -> str:
        lengths = [len(one["answer"]) for one in outputs]
        return "tie" if example.id < "q06" else "A" if lengths[0] > lengths[1] else "B"

    def down(outputs: Outputs) -> str:
        raise CallError("server_error", "HTTP 503: down")

    tiers = {"use": "cascade", "name": "tiered", "tiers": [{**named(clear), "decides": ["win"]}, named(longer)]}
    rows = judged(two(), tiers, {**named(down), "fallback": named(longer)}, both_orders=True, chunk_retries=0)
    by_metric = {name: [row for row in rows if row.metric == name] for name in ("tiered", "down")}
    wanted = {name: "right" if i % 2 == 0 else "left" for i, name in enumerate(NAMES)}
    assert {name: said(of) for name, of in by_metric.items()} == {"tiered": wanted, "down": wanted}
    assert {(row.example_id < "q06", row.decided_by) for row in by_metric["tiered"]} == {
        (True, "longer"),
        (False, "clear"),
    }
    assert {row.decided_by.partition(" ")[0] for row in by_metric["down"] if row.decided_by} == {"fallback"}
    (row,) = Store().read("comparison_sets", rows[0].experiment_id)
    excluded = exclusions_in(Store(), row, {name: name for name in by_metric})
    assert {metric: why.reason.code for metric, why in excluded.items()} == {"down": "judged_by_fallback"}
    wrong = {"use": "cascade", "name": "tiered", "tiers": [{**named(clear), "decides_from": 0.5}, named(longer)]}
    assert "tier clear: decides: got 0.5, wanted win or tie for pairs" in refused(two(), wrong)
