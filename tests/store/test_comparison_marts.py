"""The views of comparisons: what orders say together, what is missing, win rates, ratings and biases."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compared import START, Compared, run_id

from evalflows.store.records import CheckRow, ExampleRow, RatingRow, VerdictRow, to_json
from evalflows.store.sql import ask_arrow
from evalflows.store.store import Store

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, store_at: Make) -> Iterator[Store]:
    """A store with a comparison of each kind; tests only read it."""
    with store_at(tmp_path_factory.mktemp("compared")) as store:
        begun = Compared(store, examples=EXAMPLES, comparison_id="one order")
        for example, one in zip(EXAMPLES, ONE_ORDER, strict=False):
            begun.judge(example, *one)
        begun.write(sealed=False)
        of_rules = {f"by {rule}": rule for rule in RULES}
        for name, rule in {"both orders": "strict", **of_rules}.items():
            both = Compared(store, examples=EXAMPLES, both_orders=True, order_rule=rule, comparison_id=name)
            for example, said in zip(EXAMPLES, BOTH_ORDERS, strict=True):
                both.judge(example, *said)
            both.write()
        yield store


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
BOTH_ORDERS: dict[tuple[str | None, str | None], Any] = {
    ("left", "left"): ("scored", "left", "old", 1.0),
    ("right", "right"): ("scored", "right", "new", 0.0),
    ("tie", "tie"): ("scored", "tie", "tie", 0.5),
    ("right unasked", "right unasked"): ("scored", "right", "new", 0.0),
    ("left", "right"): FLIPPED,
    ("right", "left"): FLIPPED,
    ("left", "tie"): HALF,
    ("tie", "left"): HALF,
    ("tie", "right"): HALF,
    ("right", "tie"): HALF,
    ("left", "failed"): MISSING,
    ("failed", "left"): MISSING,
    ("left", "not_attempted"): MISSING,
    ("failed", "not_attempted"): MISSING,
    ("not_attempted", "failed"): MISSING,
    ("left", None): MISSING,
    (None, "left"): MISSING,
    (None, "failed"): MISSING,
    ("not_applicable", "left"): ("not_applicable", None, None, None),
    ("failed", "not_applicable"): MISSING,
    ("not_applicable", "failed"): MISSING,
    ("not_applicable", "not_applicable"): ("not_applicable", None, None, None),
    ("left_out", "left_out"): ("left_out", None, None, None),
}
EXAMPLES = [f"q{place:02}" for place in range(len(BOTH_ORDERS))]
RULES: dict[str | None, Any] = {  # points and winners of left and tie, tie and right, right and left, right and right
    "sum": ((1.0, 0.0, 0.5, 0.0), ("old", "new", "tie", "new")),
    "mean": ((0.75, 0.25, 0.5, 0.0), ("old", "new", "tie", "new")),
    None: ((0.5, 0.5, 0.5, 0.0), ("tie", "tie", "tie", "new")),
}


def outcomes(store: Store, columns: str, comparison: str = "both orders") -> dict[Any, tuple[Any, ...]]:
    """These columns, by what was said in the orders."""
    found = rows(store, f"select {columns} from pair_outcomes where comparison_id = '{comparison}' order by position")
    said: Any = ONE_ORDER if comparison == "one order" else BOTH_ORDERS
    return dict(zip(said, (tuple(row.values()) for row in found), strict=True))


def test_orders_of_a_pair_have_one_outcome_and_the_rule_says_what_a_tie_in_one_counts(compared: Store) -> None:
    columns = "status, outcome, winner, left_points"
    assert outcomes(compared, columns) == BOTH_ORDERS
    assert outcomes(compared, columns, "one order") == ONE_ORDER
    for rule, wanted in RULES.items():
        found = outcomes(compared, "left_points, winner, consistency", f"by {rule}")
        pairs = [found["left", "tie"], found["tie", "right"], found["right", "left"], found["right", "right"]]
        assert tuple(zip(*pairs, strict=True)) == (*wanted, ("half", "half", "flipped", "consistent")), rule


def test_missing_orders_are_counted_and_explained_and_make_a_cost_unknown(compared: Store) -> None:
    found = outcomes(compared, "orders, shown_first, comment, other_comment, cost_usd, calls")
    assert found["left", "left"][:2] == (2, "both") and found["left", "left"][4:] == (0.5, 2)
    assert found["left", "right"][2:4] == ("left, left first", "right, right first")
    assert found["left", None][:4] == (1, "left", "left, left first", None)
    assert found[None, "left"][:4] == (1, "right", "left, right first", None)
    assert (found["left", "not_attempted"][4:], found["left", "failed"][4:]) == ((0.25, 1), (None, 2))
    errors = outcomes(compared, "error")
    for said, error in {
        ("failed", "not_attempted"): "boom",
        ("not_attempted", "failed"): "over budget",
        ("left", "failed"): "boom",
        ("left", None): "no judgement with the answer of new shown first",
        (None, "left"): "no judgement with the answer of old shown first",
        (None, "failed"): "boom",
        ("left", "right"): None,
        ("not_applicable", "failed"): "boom",
    }.items():
        assert errors[said] == (error,), said


def test_scores_and_agreement_are_means_over_both_orders(store: Store) -> None:
    compared = Compared(store, examples=["q0", "q1"], both_orders=True)
    compared.judge("q0", "left", "left", judge_model="a judge")
    compared.judge("q1", "left", None, left_score=1.0, right_score=0.0)
    first, second, third = compared.judgements
    compared.judgements = [
        replace(first, left_score=1.0, right_score=0.5, agreement=1.0, comment=None),
        replace(second, left_score=0.5, right_score=0.0, agreement=0.5),
        third,
    ]
    compared.write()
    columns = "left_score, right_score, agreement, judge_model, comment, other_comment"
    both, one = (tuple(row.values()) for row in rows(store, f"select {columns} from pair_outcomes order by position"))
    assert both == (0.75, 0.25, 0.75, "a judge", None, "left, right first")
    assert one[:2] == (None, None)


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
    wanted = {"comparison_id": "cmp-1", "comparison": "old and new", "decided_by": "failed_output"}
    wanted |= {"metric": "preference", "evaluator": "preference", "evaluator_version": "v1"}
    wanted |= {"example_id": "q1", "repetition": 0, "position": 1, "inputs": '{"question":"q1?"}'}
    wanted |= {"left_experiment_id": "exp-00", "left_experiment": "old", "left_run_id": run_id(0, "q1")}
    wanted |= {"left_length": 9, "left_outputs": '{"output":"old on q1"}', "left_output_status": "ok"}
    wanted |= {"right_experiment_id": "exp-01", "right_experiment": "new", "right_run_id": run_id(1, "q1")}
    wanted |= {"right_length": None, "right_outputs": None, "right_output_status": "failed"}
    assert only(store, "*").items() >= wanted.items()


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


# comparison_overview


def test_an_overview_says_what_was_compared_and_how(store: Store) -> None:
    said = {"name": "three", "description": "of three", "both_orders": True, "n_left_out": 4, "state": "incomplete"}
    said |= {"failed_output_policy": "left_out", "ended_at": START, "calls": 3, "calls_cached": 1, "cost_usd": 0.5}
    said |= {"reason": "over budget"}
    given = {**said, "baseline_experiment_id": "exp-01", "experiments": ["exp-02", "exp-01", "exp-00"]}
    compared = Compared(store, ["a", "b", "c"], **given)
    other = replace(compared.experiments[1], dataset_name="more")
    compared.experiments[1:] = [other, replace(compared.experiments[2], dataset_name=None)]
    compared.write()
    said |= {"experiments": ["c", "b", "a"], "datasets": ["more", "questions"], "baseline": "b", "n_experiments": 3}
    said |= {"repetitions": 1, "n_shared": 1, "randomize_order": True, "started_at": START}
    assert only(store, "*", "comparison_overview").items() >= said.items()


def test_what_was_planned(store: Store) -> None:
    """Of two examples, three repetitions and four experiments; nothing was judged yet."""
    given: list[tuple[dict[str, Any], int]] = [
        ({}, 2 * 3 * 6),
        ({"spec": '{"pairs":"all"}'}, 2 * 3 * 6),
        ({"spec": '{"pairs":"baseline"}', "baseline_experiment_id": "exp-00"}, 2 * 3 * 3),
        ({"both_orders": True}, 2 * 3 * 6 * 2),
        ({"evaluators": "[{},{},{}]"}, 2 * 3 * 6 * 3),
    ]
    for number, (of_set, _) in enumerate(given):
        fields = {"repetitions": 3, "comparison_id": f"cmp-{number}", **of_set}
        Compared(store, ["a", "b", "c", "d"], ["q0", "q1"], **fields).write(sealed=False)
    columns = "planned, judged, decided_without_judge, missing, ties, flipped"
    found = rows(store, f"select {columns} from comparison_overview order by comparison_id")
    assert [[*row.values()] for row in found] == [[planned, 0, 0, planned, 0, 0] for _, planned in given]


def test_every_judgement_that_was_planned_counts_as_what_it_is(compared: Store) -> None:
    columns = "planned, judged, decided_without_judge, missing, ties, half, flipped"
    query = f"select comparison_id, {columns} from comparison_overview"
    found = {one: counts for one, *counts in (row.values() for row in rows(compared, query))}
    said = [one for orders in BOTH_ORDERS for one in orders]
    unasked = sum(one in ("right unasked", "left_out") for one in said)
    missing = sum(one in ("failed", "not_attempted", None) for one in said)
    assert found["both orders"] == [len(said), len(said) - unasked - missing, unasked, missing, 1, 4, 2]
    _, judged, decided, _, ties, _, flipped = found["one order"]
    assert (judged, decided, ties, flipped) == (4, 2, 1, 0)


def test_several_metrics_of_one_evaluator_are_one_judgement(store: Store) -> None:
    compared = Compared(store, examples=["q0", "q1"], evaluators='[{"name":"judge"},{"name":"other"}]')
    for metric in ("tone", "truth"):
        compared.judge("q0", "left", metric=metric, evaluator="judge")
    compared.judge("q0", "left", metric="other")
    compared.judge("q1", "failed", metric="judge")
    compared.write()
    found = only(store, "planned, judged, missing", "comparison_overview")
    assert found == {"planned": 4, "judged": 2, "missing": 2}


# win_rates


COUNTS = {"wins": 5, "losses": 3, "ties": 2, "half": 1, "flipped": 1, "missing": 4, "left_out": 6}
COUNTS |= {"decided_without_judge": 2}
DISCRETE = {"discrete_standard_error": 0.1, "discrete_low": 0.25, "discrete_high": 0.75}


@pytest.fixture
def written(store: Store) -> Store:
    """A store with one comparison of two experiments."""
    Compared(store).write()
    return store


def verdict(make: Make, **fields: Any) -> VerdictRow:
    of = {"run_group": "cmp-1", "comparison_id": "cmp-1", "metric": "preference", "method": "paired"}
    between = {"candidate_experiment_id": "exp-01", "baseline_experiment_id": "exp-00"}
    row: VerdictRow = make(
        "verdicts", **{**of, **between, "settings": to_json(COUNTS | DISCRETE | {"discrete": 0.5}), **fields}
    )
    return row


def test_a_win_rate_is_half_of_one_and_the_difference(written: Store, make: Make) -> None:
    same = {"confidence_level": 0.9, "p_value": 0.04, "p_adjusted": 0.08, "adjustment": "holm", "reason": "so"}
    same |= {"n_pairs": 10, "n_clusters": 9, "conclusion": "better", "reason_code": None, "warning": "w"}
    numbers = {"candidate_mean": 0.6, "difference": 0.2, "ci_low": -0.5, "ci_high": 0.75, "standard_error": 0.2}
    written.publish("verdicts", "cmp-1", [verdict(make, **numbers, **same)])
    between = {"candidate_experiment_id": "exp-01", "baseline_experiment_id": "exp-00"}
    assert only(written, "*", "win_rates") == {
        "comparison_id": "cmp-1",
        "comparison": "old and new",
        "metric": "preference",
        "method": "paired",
        **between,
        "candidate": "new",
        "baseline": "old",
        "slice": "all",
        "length_controlled": False,
        "win_rate": 0.6,
        "win_rate_low": 0.25,
        "win_rate_high": 0.875,
        "standard_error": 0.1,
        **same,
        **COUNTS,
        **DISCRETE,
        "discrete_win_rate": 0.5,
    }


def test_only_verdicts_of_comparisons_are_win_rates_by_slice(written: Store, make: Make) -> None:
    kinds = [("all", False), ("all", True), ("test", False), ("test", True)]
    given = [
        verdict(
            make,
            verdict_id=f"{kind}",
            slice=None if kind[0] == "all" else "test",
            length_controlled=kind[1],
            settings=None,
        )
        for kind in kinds
    ]
    written.publish("verdicts", "cmp-1", given)
    of_gate = verdict(make, verdict_id="a", decision_id="dec-1", run_group="group-1")
    of_experiment = verdict(make, verdict_id="b", comparison_id=None, run_group="group-1")
    written.publish("verdicts", "group-1", [of_gate, of_experiment])
    found = rows(written, "select slice, length_controlled, win_rate, win_rate_low, wins from win_rates order by all")
    assert [tuple(row.values()) for row in found] == [(*kind, None, None, None) for kind in kinds]


# leaderboard


def rating(make: Make, **fields: Any) -> RatingRow:
    of = {"comparison_id": "cmp-1", "metric": "preference", "experiment_id": "exp-01", "method": "bradley-terry"}
    row: RatingRow = make("ratings", **{**of, **fields})
    return row


def test_a_leaderboard_has_names_beside_ratings(written: Store, make: Make) -> None:
    numbers = {"rank": 1, "rank_low": 1, "rank_high": 2, "rating": 1100.0, "standard_error": 25.0, "ci_low": 1050.0}
    numbers |= {"ci_high": 1150.0, "confidence_level": 0.95, "reason": None, "reason_code": None, "win_rate": 0.75}
    numbers |= {"win_rate_low": 0.5, "win_rate_high": 0.9, "wins": 3, "losses": 1, "ties": 2, "missing": 5}
    numbers |= {"win_rate_standard_error": 0.1}
    settings = to_json({"method": "the method", "guarded": False})
    written.publish("ratings", "cmp-1", [rating(make, **numbers, settings=settings)])
    assert only(written, "*", "leaderboard") == {
        "comparison_id": "cmp-1",
        "comparison": "old and new",
        "metric": "preference",
        "slice": "all",
        "experiment_id": "exp-01",
        "experiment": "new",
        "target": "target of new",
        "datasets": ["questions"],
        "method": "the method",
        "guarded": False,
        "guard_reason": None,
        **numbers,
    }


# judge_biases


def check(make: Make, name: str, **fields: Any) -> CheckRow:
    of = {"check_id": name, "batch_id": "cmp-1", "subject_kind": "judge", "subject_id": "preference", "name": name}
    row: CheckRow = make("checks", **{**of, **fields})
    return row


def test_the_biases_of_a_judge_without_checks_of_data_and_of_other_judges(written: Store, make: Make) -> None:
    observed = to_json({"share": 0.75, "standard_error": 0.1, "low": 0.5, "high": 1, "method": "m"})
    checks = [
        check(make, "position_preference", passed=False, n_checked=8, observed=observed, message="prefers the first"),
        check(make, "self_consistency", observed=to_json({"share": None}), message="asked once"),
        check(make, "not_null", subject_kind="snapshot"),
    ]
    written.publish("checks", "cmp-1", checks)
    written.publish("checks", "controls", [check(make, "controls", batch_id="controls")])
    first, second = rows(written, "from judge_biases order by bias")
    assert first == {
        "comparison_id": "cmp-1",
        "comparison": "old and new",
        "metric": "preference",
        "bias": "position_preference",
        "passed": False,
        "found": True,
        "n": 8,
        "share": 0.75,
        "kappa": None,
        "standard_error": 0.1,
        "low": 0.5,
        "high": 1.0,
        "method": "m",
        "message": "prefers the first",
        "reason_code": None,
    }
    nothing = dict.fromkeys(("passed", "n", "share", "low", "high"))
    assert second.items() >= {**nothing, "message": "asked once"}.items() and not second["found"]


# Queries of the docs about comparisons


DOCS = (Path(__file__).parents[2] / "docs" / "guides" / "queries.md").read_text(encoding="utf-8")
COMPARISONS = DOCS.partition("## Comparisons\n")[2].partition("\n## ")[0]
QUERIES = re.findall(r"```sql\n(.*?)```", COMPARISONS, flags=re.S)


def test_queries_of_the_docs_find_something(store: Store, make: Make) -> None:
    compared = Compared(store, examples=["q0", "q1"], both_orders=True)
    compared.answer(0, "q0", "a longer answer than that of the other")
    compared.judge("q0", "left", "left")
    compared.judge("q1", "left", "right")
    compared.write()
    store.publish("ratings", "cmp-1", [rating(make)])
    store.publish("checks", "cmp-1", [check(make, "flip_share", passed=False)])
    for query in QUERIES:
        assert len(rows(store, query)) == 1, query
