"""Resuming a comparison: only what is missing is judged, and another spec is refused."""

import re
from collections import Counter

import pytest
from comparing import CALLS, N, Outputs, counted, longer, refused, several, three, two
from matched import FAILED, asked, begun, compared, experiment, judgements, named, spec_of

from evalflows.engine.pair_trials import pair_chunks
from evalflows.specs.errors import InputError
from evalflows.tasks.compare import check_and_resolve
from evalflows.tasks.finish import finish
from evalflows.tasks.start import start_comparison
from evalflows.tasks.work_through import judge


@pytest.mark.slow
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


def shorter(outputs: Outputs) -> list[int]:
    return [-one for one in longer(outputs)]


@pytest.mark.slow
def test_a_comparison_is_not_gone_on_with_by_another_spec() -> None:
    experiments = two()
    compared(experiments, longer, run_key="k")
    other = refused(experiments, {**named(shorter), "name": "longer"}, run_key="k")
    began = r"comparison 'old vs new' \(cmp-\w+\), started [-\d]+ [\d:]+ UTC: then with evaluators longer@\w+, now "
    remedy = "wanted a run_key other than 'k', or --fresh for a new comparison"
    assert re.fullmatch(rf"{began}with longer@\w+ \([\w.]+\.shorter changed\); {remedy}", other)
    for changes, message in (
        ({"both_orders": True}, "both_orders False, now with True"),
        ({"randomize_order": False}, "randomize_order True, now with False"),
        ({"seed": 1}, "seed 0, now with 1"),
        ({"failed_output": "left_out"}, "failed_output_policy loses, now with left_out"),
    ):
        said_of_it = refused(experiments, longer, run_key="k", **changes)
        assert said_of_it.endswith(f"then with {message}; {remedy}")
    assert asked("select count(*), any_value(state) from comparison_sets") == [(1, "completed")]


@pytest.mark.slow
def test_experiments_may_follow_but_not_change_their_places() -> None:
    a, b, c = three()
    compared([a, b], longer, run_key="k")
    assert f"then with experiments {a}, {b}, now with {b}, {a} (new ones may only" in refused(
        (b, a), longer, run_key="k"
    )
    assert "(new ones may only be appended)" in refused((a, c, b), longer, run_key="k")
    few = experiment("few", dict.fromkeys([f"q{i}" for i in range(5)], "x"), place=3)
    assert "shared examples, with the new experiments 5" in refused((a, b, few), longer, run_key="k")
    compared([a, b, c], longer, run_key="k")
    assert "(new ones may only be appended)" in refused((a, b), longer, run_key="k")
    with pytest.raises(InputError, match=r"then with pairs: all, now with those with .* alone"):
        compared([a, b, c], longer, run_key="k", pairs="baseline")


def test_only_what_is_not_judged_yet_is_judged() -> None:
    """As where a process has ended between two chunks."""
    spec = spec_of(two(), counted, run_key="k", chunk_size=5)
    run = check_and_resolve(spec)
    row = start_comparison.fn(run)
    first, *others = pair_chunks(row)
    judge.fn(run, first)
    assert (len(CALLS), len(others)) == (5, 2)
    lacking = finish.fn(run, [row])
    assert lacking == [f"comparison {row.name!r} ({row.comparison_id}): not done: 7 of 12 by counted"]
    assert asked("select state, missing from comparison_overview") == [("incomplete", 7)]
    again, begun_again = begun(spec)
    finish.fn(again, [begun_again])
    assert len(CALLS) == N and len(judgements(row.comparison_id)) == N
    assert asked("select state, reason from comparison_sets") == [("completed", None)]


@pytest.mark.slow
def test_a_pair_settled_by_a_failed_run_is_judged_when_the_run_has_its_answer() -> None:
    answers = {f"q{i:02}": "b" for i in range(6)}
    old, new = (experiment("old", answers, place=0), experiment("new", {**answers, "q00": FAILED}, place=1))
    compared((old, new), several, run_key="mended")
    assert asked("select count(*) from comparisons where decided_by = 'failed_output'")[0][0] == 2
    experiment("new", answers, place=1)
    compared((old, new), several, run_key="mended")
    assert asked("select count(*), count(distinct example_id) from comparisons where decided_by is null") == [(12, 6)]
