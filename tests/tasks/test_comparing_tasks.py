"""The steps of a comparison without Prefect: what is settled, begun, judged, ended, gone on with, and refused."""

import asyncio
import os
import re
import time
from collections import Counter
from typing import Any

import pytest
from matched import (
    FAILED,
    NEVER,
    asked,
    begun,
    compared,
    experiment,
    judgements,
    named,
    rows_of,
    spec_of,
)

from evaluators.preference import Preference
from evaluators.subject import ExampleView, RunView
from specs.errors import InputError
from store.parquet import Store
from store.preferences import preferences_of
from store.records import ComparisonRow, ScoreRow, derived_id
from tasks import standings
from tasks.compare import compare_chunk
from tasks.finish_comparison import finish_comparison
from tasks.pairs import pair_chunks
from tasks.settle_comparison import settled
from tasks.start import without_places
from tasks.start_comparison import start_comparison
from tasks.weigh_preferences import weigh_preferences

Outputs = list[dict[str, Any]]
N = 12
NAMES = [f"q{i:02}" for i in range(N)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few resamples, no waiting for the disk, and nothing counted yet."""
    monkeypatch.setattr(standings, "RESAMPLES", 20)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    CALLS.clear()


def two(**fields: Any) -> tuple[str, str]:
    """An old experiment, whose answers are shorter for even numbers and longer for odd ones, and a new one."""
    rows = rows_of(NAMES, **fields)
    old = {name: "xx" if i % 2 == 0 else "xxxx" for i, name in enumerate(NAMES)}
    return experiment("old", old, place=0, rows=rows), experiment(
        "new", dict.fromkeys(NAMES, "yyy"), place=1, rows=rows
    )


def longer(outputs: Outputs) -> list[int]:
    return [len(one["answer"]) for one in outputs]


def judged(experiments: tuple[str, ...], *evaluators: Any, **changes: Any) -> list[ComparisonRow]:
    """The rows of a comparison that has ended, without its verdicts."""
    row = begun(spec_of(experiments, *evaluators, **changes))
    finish_comparison.fn(row)
    return judgements(row.comparison_id)


def said(rows: list[ComparisonRow]) -> dict[str, Any]:
    """The winner of each example; of several orders, if they agree."""
    return {row.example_id: row.winner for row in rows}


def refused(experiments: tuple[str, ...], *evaluators: Any, **changes: Any) -> str:
    """The one line by which a comparison is refused, with nothing written of it."""
    with pytest.raises(InputError) as caught:
        compared(experiments, *evaluators, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Who was shown first, and who won


ORDERS: tuple[dict[str, Any], ...] = ({}, {"randomize_order": False}, {"both_orders": True})


@pytest.mark.parametrize("turned", [False, True])
def test_winner_and_scores_are_those_of_the_experiments_whatever_was_shown_first(turned: bool) -> None:
    def first_is_new(outputs: Outputs) -> Preference:
        return Preference(scores=(float(longer(outputs)[0]), float(longer(outputs)[1])), comment=outputs[0]["answer"])

    old, new = two()
    for order in ORDERS:
        rows = judged((new, old) if turned else (old, new), longer, first_is_new, **order)
        assert len(rows) == 2 * N * (2 if "both_orders" in order else 1)
        for row in rows:
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


def test_a_place_is_mapped_back_to_who_stood_there() -> None:
    def first(outputs: Outputs) -> str:
        return "A"

    def second(outputs: Outputs) -> str:
        return "B"

    for row in judged(two(), first, second, both_orders=True):
        assert (row.winner == row.shown_first) is (row.metric == "first")
        assert (row.winner, row.left_score, row.right_score) in (("left", None, None), ("right", None, None))


def test_every_evaluator_sees_the_same_order() -> None:
    def one(outputs: Outputs) -> str:
        return "A"

    def other(outputs: Outputs) -> str:
        return "A"

    rows = judged(two(), one, other)
    assert said([row for row in rows if row.metric == "one"]) == said([row for row in rows if row.metric == "other"])


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


@pytest.mark.parametrize("load_nested", [False, True])
def test_the_steps_of_the_runs_are_handed_where_asked_for(load_nested: bool) -> None:
    def by_steps(runs: list[RunView]) -> dict[str, Any]:
        return {"winner": "tie", "comment": str([[step["name"] for step in run.steps] for run in runs])}

    rows = judged(two(), by_steps, load_nested=load_nested)
    assert {row.comment for row in rows} == {"[['search'], ['search']]" if load_nested else "[[], []]"}


def test_what_an_evaluator_writes_to_what_it_is_shown_reaches_no_other() -> None:
    def writes(outputs: Outputs, runs: list[RunView], example: ExampleView) -> str:
        for output in outputs:
            output.clear()
        runs.reverse()
        example.inputs.clear()
        return "A"

    rows = judged(two(), writes, longer)
    assert Counter(row.winner for row in rows if row.metric == "longer") == {"left": N // 2, "right": N // 2}


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


BAD: dict[str, tuple[Any, str]] = {
    "q00": (object(), "TypeError: returned object, wanted two scores"),
    "q01": ([1], "ValueError: returned the scores [1], wanted 2"),
    "q02": ([float("nan"), 1], "ValueError: returned the score nan, wanted a finite number"),
    "q03": ("the former", "ValueError: returned 'the former', wanted two scores"),
    "q04": ({"scores": {"x": 1, "y": 2}}, "ValueError: returned scores of ['x', 'y'], wanted one of each run shown"),
    "q05": ({"winner": "A", "scores": [0, 1]}, "ValueError: returned the winner first with the scores [0.0, 1.0]"),
    "q06": ({"results": []}, "ValueError: returned nothing"),
    "q07": ([{"key": "one", "winner": "A"}] * 2, "ValueError: returned 2 preferences called 'one'"),
}
"""What is returned of some examples, and how the error begins."""


def test_nonsense_is_a_failed_row_with_its_error_and_harms_no_other() -> None:
    def odd(example: ExampleView) -> Any:
        return BAD[example.id][0] if example.id in BAD else "A"

    rows = judged(two(), odd, longer)
    failed = {row.example_id: row for row in rows if row.status != "scored"}
    assert {(row.metric, row.status, row.error_kind, row.winner, row.left_score) for row in failed.values()} == {
        ("odd", "failed", "bad_return", None, None)
    }
    assert {name: row.error[: len(BAD[name][1])] for name, row in failed.items() if row.error} == {
        name: error for name, (_, error) in BAD.items()
    }
    assert len(rows) == 2 * N


def test_one_that_raises_or_does_not_apply_is_no_tie() -> None:
    def raises(example: ExampleView) -> str:
        if example.id == "q00":
            raise RuntimeError("cannot say")
        return "A"

    def seldom(example: ExampleView) -> Any:
        return {"q00": None, "q01": [None, None]}.get(example.id, "B")

    rows = {(row.metric, row.example_id): row for row in judged(two(), raises, seldom)}
    of = [(row.status, row.winner, row.error_kind, row.error) for row in rows.values() if row.status != "scored"]
    assert Counter(of) == {
        ("failed", None, "raised", "RuntimeError: cannot say"): 1,
        ("not_applicable", None, None, None): 2,
    }
    ended = asked("select state, reason, missing, judged from comparison_overview")
    assert ended == [("completed", None, 1, 2 * N - 1)]


def test_metrics_by_other_names_have_a_row_each_and_so_has_where_it_failed_or_left_one_out() -> None:
    def several(example: ExampleView) -> Any:
        if example.id == "q00":
            raise RuntimeError("cannot say")
        if example.id == "q01":
            return {"key": "tone", "winner": "A"}
        return {"results": [{"key": "tone", "winner": "A"}, {"key": "style", "winner": "tie"}]}

    rows = judged(two(), several, both_orders=True)
    assert Counter(row.metric for row in rows) == {"tone": 2 * N, "style": 2 * N}
    of = {(row.metric, row.example_id): (row.status, row.error) for row in rows}
    assert of["tone", "q00"] == of["style", "q00"] == ("failed", "RuntimeError: cannot say")
    assert (of["tone", "q01"][0], of["style", "q01"][0]) == ("scored", "not_applicable")
    assert len({row.judgement_id for row in rows}) == 4 * N


def test_what_was_judged_before_in_the_other_order_is_a_row_of_that_order() -> None:
    def recorded(outputs: Outputs) -> Preference:
        return Preference(winner="first", shown_first="second")

    experiments = two()
    rows = judged(experiments, recorded, randomize_order=False)
    assert {(row.shown_first, row.winner, row.status) for row in rows} == {("right", "left", "scored")}
    assert len(rows) == N
    left_out = judged(experiments, recorded, both_orders=True)
    assert {row.status for row in left_out} == {"sampled_out"} and len(left_out) == 2 * N
    assert {row.comment for row in left_out} == {"was judged before, in the other order only"}


def test_asked_in_both_orders_a_verdict_recorded_in_one_stands_for_the_pair() -> None:
    def recorded(runs: list[RunView]) -> Preference:
        return Preference(winner="first", shown_first="first" if runs[0].experiment == "old" else "second")

    row = compared(two(), recorded, both_orders=True)
    found = asked("select outcome, status, orders, shown_first, error from pair_outcomes")
    assert found == [("left", "scored", 1, "left", None)] * N
    assert asked("select missing, judged, ties from comparison_overview") == [(0, 2 * N, 0)]
    assert row.state == "completed"


@pytest.mark.parametrize("name", ["quality", "length"])
def test_a_returned_key_that_an_item_metric_bears_is_a_failed_row(name: str) -> None:
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


def keep_score(owner: str, metric: str) -> None:
    """A score that an item evaluator gave."""
    score = ScoreRow(
        score_id=f"{owner} {metric}",
        subject_kind="run",
        subject_id="run-1",
        experiment_id=owner,
        metric=metric,
        value=1.0,
        status="scored",
        evaluator=metric,
        evaluator_version="v1",
    )
    Store().append("scores", owner, "p", [score])


def test_a_plain_evaluator_that_hangs_is_ended_in_its_time() -> None:
    def hangs(outputs: Outputs, example: ExampleView) -> list[int]:
        if example.id == "q02":
            time.sleep(3600)
        return [len(one["answer"]) for one in outputs]

    began = time.monotonic()
    rows = judged(two(), {**named(hangs), "timeout_s": 1.0}, both_orders=True)
    assert time.monotonic() - began < 30
    lost = [(row.example_id, row.status, row.error_kind, row.error) for row in rows if row.status != "scored"]
    assert lost == [("q02", "failed", "too_slow", "took longer than 1 s, and was ended")] * 2
    assert {row.example_id: row.winner for row in rows}["q01"] == "left"
    assert Counter(row.winner for row in rows) == {"left": N, "right": N - 2, None: 2}


# Which pairs


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


def failing(policy: str) -> tuple[list[ComparisonRow], int]:
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
        ("q", "right", "scored", "failed output", "left failed: no answer to q"),
        ("r", "left", "scored", "failed output", "right failed: no answer to r"),
        ("s", "tie", "scored", "failed output", "left failed: no answer to s; right failed: no answer to s"),
    }
    assert len(rows) == 8 and {row.cost_usd for row in rows if row.decided_by} == {0.0}
    overview = asked("select judged, settled_without_asking, missing from comparison_overview")
    assert overview == [(2, 6, 0)]


def test_or_the_pair_is_left_out() -> None:
    rows, calls = failing("left_out")
    assert calls == 2
    assert {(row.example_id, row.winner, row.status, row.decided_by) for row in rows} == {
        ("p", "tie", "scored", None),
        *((example, None, "not_applicable", "failed output") for example in "qrs"),
    }
    assert dict(asked("select example_id, status from pair_outcomes")) == {"p": "scored"} | dict.fromkeys(
        "qrs", "left_out"
    )


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


# Three and more


def three() -> tuple[str, str, str]:
    """Answers by which each beats the next in two thirds of the examples: a circle."""
    ring = ["abc", "bca", "cab"]
    answers = [{f"q{i}": "x" * (1 + ring[i % 3].index(name)) for i in range(30)} for name in "abc"]
    a, b, c = (experiment(name, one, place=place) for place, (name, one) in enumerate(zip("abc", answers, strict=True)))
    return a, b, c


def test_three_that_beat_each_other_in_a_circle_are_told() -> None:
    row = compared(three(), longer, both_orders=True)
    assert len(judgements(row.comparison_id)) == 3 * 30 * 2
    ((passed, message),) = asked("select passed, message from judge_habits where habit = 'cycles'")
    assert (passed, message) == (None, "in a circle, maybe by chance: a beats c beats b beats a")
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


def test_the_baseline_is_measured_by_wherever_it_stands_in_the_list() -> None:
    compared(three(), longer, both_orders=True, baseline="c")
    verdicts = asked("select candidate, baseline from win_rates where not length_controlled order by all")
    assert verdicts == [("a", "c"), ("b", "a"), ("b", "c")]


# Going on


CALLS: list[tuple[str, ...]] = []
"""The experiments of each pair that `counted` was asked about."""


def counted(outputs: Outputs, runs: list[RunView]) -> list[int]:
    CALLS.append(tuple(sorted(str(run.experiment) for run in runs)))
    return longer(outputs)


def test_one_more_experiment_is_judged_against_the_others_only() -> None:
    a, b, c = three()
    first = compared([a, b], counted, run_key="k", both_orders=True)
    before = {row.judgement_id: row for row in judgements(first.comparison_id)}
    CALLS.clear()
    second = compared([a, b, c], counted, run_key="k", both_orders=True)
    assert second.comparison_id == first.comparison_id
    assert Counter(CALLS) == {("a", "c"): 60, ("b", "c"): 60}
    after = {row.judgement_id: row for row in judgements(first.comparison_id)}
    assert {key: after[key] for key in before} == before and len(after) == 180
    assert asked("select n_experiments, planned, judged, state from comparison_overview") == [
        (3, 180, 180, "completed")
    ]
    assert len(asked("select 1 from leaderboard")) == 3, "ratings are of all"
    CALLS.clear()
    compared([a, b, c], counted, run_key="k", both_orders=True)
    assert CALLS == []


def test_a_comparison_that_is_done_is_as_it_was() -> None:
    experiments = two()
    first = compared(experiments, counted, run_key="k")
    again = compared(experiments, counted, run_key="k")
    assert (again, len(CALLS)) == (first, N)
    other = compared(experiments, counted)
    assert other.comparison_id != first.comparison_id and len(CALLS) == 2 * N, "without a key it is another one"


def shorter(outputs: Outputs) -> list[int]:
    return [-one for one in longer(outputs)]


def test_a_comparison_is_not_gone_on_with_by_another_spec() -> None:
    experiments = two()
    compared(experiments, longer, run_key="k")
    other = refused(experiments, {**named(shorter), "name": "longer"}, run_key="k")
    began = r"comparison 'old vs new' \(cmp-\w+\): began with evaluators longer@\w+, got longer@\w+; "
    assert re.fullmatch(began + "wanted a run_key other than 'k'", other)
    for changes, message in (
        ({"both_orders": True}, "both_orders False, got True"),
        ({"randomize_order": False}, "randomize_order True, got False"),
        ({"seed": 1}, "seed 0, got 1"),
        ({"failed_output": "left_out"}, "failed_output_policy loses, got left_out"),
    ):
        said_of_it = refused(experiments, longer, run_key="k", **changes)
        assert said_of_it.endswith(f"began with {message}; wanted a run_key other than 'k'")
    assert asked("select count(*), any_value(state) from comparison_sets") == [(1, "completed")]


def test_experiments_may_follow_but_not_change_their_places() -> None:
    a, b, c = three()
    compared([a, b], longer, run_key="k")
    assert f"began with the experiments {a}, {b}, got {b}, {a}: more may follow" in refused((b, a), longer, run_key="k")
    assert "more may follow these" in refused((a, c, b), longer, run_key="k")
    compared([a, b, c], longer, run_key="k")
    assert "more may follow these" in refused((a, b), longer, run_key="k")


def test_one_more_that_shares_fewer_examples_is_refused() -> None:
    old, new = two()
    few = experiment("few", dict.fromkeys(NAMES[:5], "x"), place=2)
    compared([old, new], longer, run_key="k")
    wanted = f"began with {N} shared examples, with those that follow 5; wanted a run_key other than 'k'"
    assert wanted in refused((old, new, few), longer, run_key="k")


def test_one_more_with_fewer_repetitions_is_refused() -> None:
    old, new = (experiment(name, {"p": ["x", "y"]}, place=place) for place, name in enumerate(("old", "new")))
    once = experiment("once", {"p": "x"}, place=2)
    compared([old, new], longer, run_key="k")
    assert "began with repetitions 2, got 1" in refused((old, new, once), longer, run_key="k")


def test_only_what_is_not_judged_yet_is_judged() -> None:
    """As where a process has ended between two chunks."""
    spec = spec_of(two(), counted, run_key="k", chunk_size=5)
    row = start_comparison.fn(settled(spec))
    first, *others = pair_chunks(row)
    compare_chunk.fn(first)
    assert (len(CALLS), len(others)) == (5, 2)
    assert finish_comparison.fn(row) == [f"comparison {row.name!r} ({row.comparison_id}): not done: 7 of 12 by counted"]
    assert asked("select state, missing from comparison_overview") == [("incomplete", 7)]
    finish_comparison.fn(begun(spec))
    assert len(CALLS) == N and len(judgements(row.comparison_id)) == N
    assert asked("select state, reason from comparison_sets") == [("completed", None)]


# Refused before anything is called


def item(inputs: dict[str, Any], outputs: dict[str, Any], run: RunView) -> bool:
    """Judges one answer."""
    return True


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"evaluators": ["exact_match"]}, "evaluator 'exact_match': "),
    (
        {"evaluators": [item]},
        "evaluator 'item': asks for 'run', wanted any of inputs, outputs, ",
    ),
    (
        {"evaluators": [{**named(longer), "name": "length"}]},
        "'length': an item metric of the experiments is called so",
    ),
    ({"evaluators": [{**named(longer), "name": "quality"}]}, "wanted another name, such as pairwise_quality"),
    ({"evaluators": [{**named(longer), "args": {"x": 1}}]}, "evaluator 'longer': got the setting 'x'"),
    ({"evaluators": ["pairwise_preferenc"]}, "pairwise_preference"),
    ({"evaluators": ["nowhere:judge"]}, "nowhere"),
    ({"experiments": ["old"] * 2}, "experiments: got old, old, which is one experiment, wanted two at least"),
    ({"experiments": ["old", "newest"]}, "experiment 'newest': not in "),
    ({"baseline": "other"}, "experiment 'other': not in "),
    ({"baseline": "third"}, "baseline: got 'third', wanted one of old, new"),
    ({"experiments": ["old", "third"]}, "experiments: old and third share no example (none has the same id)"),
    (
        {"by": ["metadata.topc"]},
        "by: no example has 'metadata.topc', wanted split, or a path such as metadata.topic",
    ),
    ({"resume": "cmp-none"}, "resume: got 'cmp-none', wanted the id of a comparison in "),
]
"""Of two experiments that share their examples, and the words by which it is refused."""


def test_what_cannot_work_is_refused_in_one_line_with_nothing_written() -> None:
    old, _ = two(metadata={"topic": "x"})
    keep_score(old, "quality")
    experiment("third", {"z": "x"}, place=2)
    for changes, message in REFUSED:
        fields = {"experiments": ("old", "new"), "evaluators": [longer]} | changes
        assert message in refused(fields.pop("experiments"), *fields.pop("evaluators"), **fields)
    assert asked("select count(*) from comparison_sets") == [(0,)]


def test_the_same_id_with_other_inputs_is_no_shared_example() -> None:
    old = experiment("old", {"a": "x"}, place=0)
    new = experiment("new", {"a": "x"}, place=1, rows=[{"id": "a", "inputs": {"question": "other?"}}])
    assert "share no example (1 have the same id and other inputs)" in refused((old, new), longer)


def test_experiments_are_found_by_name_id_and_run_group() -> None:
    a, b, c = three()
    spec = settled(spec_of(["group of b", "a", c, "b"], longer, baseline="c"))
    assert (spec.experiments, spec.baseline, spec.name) == ([b, a, c], c, "b vs a vs c")


def several(outputs: Outputs) -> list[dict[str, Any]]:
    return [{"key": name, "winner": "A" if outputs[0]["answer"] < outputs[1]["answer"] else "B"} for name in ("x", "y")]


def test_a_failed_run_loses_and_one_never_made_is_missing_by_every_metric_of_an_evaluator() -> None:
    answers = {f"q{i:02}": "b" for i in range(6)}
    old = experiment("old", answers, place=0)
    new = experiment("new", {**answers, "q00": FAILED, "q01": NEVER}, place=1)
    compared((old, new), several, both_orders=True)
    counted = asked(
        """select metric, count(*) filter (outcome = 'left' and decided_by = 'failed output'),
                  count(*) filter (status = 'missing'), count(*) from pair_outcomes group by metric order by metric"""
    )
    assert counted == [("x", 1, 1, 6), ("y", 1, 1, 6)]


def test_what_a_comparison_never_came_to_is_missing_in_its_verdict() -> None:
    answers = [{f"q{i:02}": text for i in range(12)} for text in ("a", "b")]
    old, new = (experiment(name, one, place=place) for place, (name, one) in enumerate(zip("on", answers, strict=True)))
    compared((old, new), several, both_orders=True)
    store = Store()
    (row,) = store.read("comparison_sets", asked("select comparison_id from comparison_sets")[0][0])
    half = [one for one in store.read("comparisons", row.comparison_id) if one.example_id < "q06"]
    store.publish("comparisons", row.comparison_id, half)
    weigh_preferences.fn(row)
    found = asked("select missing, conclusion, reason from win_rates where metric = 'x' order by length_controlled")
    assert [one[:2] for one in found] == [(6, "not_enough_evidence")] * 2
    assert "6 missing could turn it" in found[0][2] and found[1][2].startswith("6 of 12 pairs have no verdict")


def test_a_pair_settled_by_a_failed_run_is_judged_when_the_run_has_its_answer() -> None:
    answers = {f"q{i:02}": "b" for i in range(6)}
    old, new = (experiment("old", answers, place=0), experiment("new", {**answers, "q00": FAILED}, place=1))
    compared((old, new), several, run_key="mended")
    assert asked("select count(*) from comparisons where decided_by = 'failed output'")[0][0] == 2
    experiment("new", answers, place=1)
    compared((old, new), several, run_key="mended")
    assert asked("select count(*), count(distinct example_id) from comparisons where decided_by is null") == [(12, 6)]


def test_two_evaluators_that_give_one_metric_are_told_and_not_exported() -> None:
    def one(outputs: Outputs) -> dict[str, Any]:
        return {"key": "k", "scores": [1, 0]}

    def other(outputs: Outputs) -> dict[str, Any]:
        return {"key": "k", "scores": [0, 1]}

    row = compared(two(), one, other, both_orders=True)
    assert row.reason == "one and other both give 'k', wanted a key of its own for each"
    with pytest.raises(InputError, match="one and other both give 'k'"):
        preferences_of(Store(), row.comparison_id)


def test_which_pairs_are_compared_must_be_as_it_was() -> None:
    experiments = (*two(), experiment("third", dict.fromkeys([f"q{i:02}" for i in range(N)], "z"), place=2))
    compared(experiments, several, run_key="all")
    with pytest.raises(
        InputError, match=r"began with pairs: all, got with .* alone; wanted a run_key other than 'all'"
    ):
        compared(experiments, several, run_key="all", pairs="baseline")


def test_where_a_function_lives_is_no_part_of_what_an_evaluator_is() -> None:
    one, moved = (f'[{{"name":"x","use":"live:x-1-{place}","version":"v"}}]' for place in ("aa", "bb"))
    assert without_places(one) == without_places(moved) == [{"name": "x", "version": "v"}]
    assert without_places(one) != without_places(one.replace('"v"', '"w"'))
    assert without_places('[{"use":"a:b"}]') != without_places('[{"use":"a:c"}]')


def test_an_evaluator_that_ends_the_process_ends_its_judgement_only() -> None:
    def leaves(outputs: Outputs, example: ExampleView) -> str:
        if example.id == "q00":
            raise SystemExit(3)
        return "A"

    rows = judged(two(), leaves)
    assert {(row.example_id, row.error) for row in rows if row.status == "failed"} == {("q00", "SystemExit: 3")}
    assert sum(row.status == "scored" for row in rows) == N - 1


def test_slices_and_the_baseline_are_told_anew_without_judging_again() -> None:
    experiments = two(metadata={"topic": "x"})
    compared(experiments, longer, both_orders=True, run_key="again")
    before = judgements(asked("select comparison_id from comparison_sets")[0][0])
    compared(experiments, longer, both_orders=True, run_key="again", by=["metadata.topic"], baseline=experiments[1])
    assert asked("select distinct baseline, slice from win_rates order by slice") == [
        ("new", "all"),
        ("new", "metadata.topic=x"),
    ]
    assert judgements(before[0].comparison_id) == before
