"""Pairs: which are compared, who is shown first, and that nothing but the seed and the runs decides it."""

from collections.abc import Sequence
from itertools import combinations, permutations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from store_rows import make_row

from evalflows.engine.chunks import MIN_CHUNK_SIZE
from evalflows.engine.pair_trials import (
    MAX_CHUNK_SIZE,
    MAX_PAIR_CHUNKS,
    PairChunk,
    PairTrial,
    baseline_of,
    n_trials,
    orders,
    pair_chunk_size,
    pair_chunks,
    pairs_of,
    planned_pairs,
    trials_of,
)
from evalflows.specs.comparison import ComparisonSpec
from evalflows.store.records import ComparisonSetRow, ExampleRow


def spec(*experiments: str, **fields: Any) -> ComparisonSpec:
    return ComparisonSpec.model_validate(
        {"experiments": list(experiments or ("old", "new")), "evaluators": "app:judge"} | fields
    )


def examples(count: int) -> list[ExampleRow]:
    return [ExampleRow(snapshot_id="s", example_id=f"q{i}", position=i, inputs="{}") for i in range(count)]


def comparison(asked: ComparisonSpec, n_shared: int, **fields: Any) -> ComparisonSetRow:
    named = {"comparison_id": "cmp-1", "experiments": asked.experiments, "spec": asked.model_dump_json()}
    of_spec = {"randomize_order": asked.randomize_order, "both_orders": asked.both_orders, "seed": asked.seed}
    sizes = {"repetitions": 1, "chunk_size": 10, "n_shared": n_shared, "state": "running", "evaluators": "[]"}
    row: ComparisonSetRow = make_row("comparison_sets", **named, **of_spec, **sizes | fields)
    return row


def trials(
    asked: ComparisonSpec, count: int = 20, *, comparison_id: str = "cmp-1", repetition: int = 0
) -> list[PairTrial]:
    """Those of all pairs of experiments, on the same examples."""
    return [
        trial
        for named, other in pairs_of(asked)
        for trial in trials_of(PairChunk(comparison_id, named, other, repetition, 0, count), asked, examples(count))
    ]


def first_of(found: Sequence[PairTrial]) -> list[str]:
    """The run shown first in each."""
    return [trial.left_run if trial.shown_first == "left" else trial.right_run for trial in found]


def test_with_the_baseline_only_its_pairs_count_in_the_order_of_the_list() -> None:
    assert pairs_of(spec("c", "a", "b")) == [("c", "a"), ("c", "b"), ("a", "b")]
    assert pairs_of(spec("c", "a", "b", pairs="baseline")) == [("c", "a"), ("c", "b")]
    assert pairs_of(spec("c", "a", "b", pairs="baseline", baseline="b")) == [("c", "b"), ("a", "b")]
    assert (baseline_of(spec("c", "a")), baseline_of(spec("c", "a", baseline="a"))) == ("c", "a")


def test_left_is_the_older_experiment_however_they_are_listed() -> None:
    for listed in permutations(("exp-1", "exp-2", "exp-3")):
        found = trials(spec(*listed))
        assert all(trial.left_experiment < trial.right_experiment for trial in found)
        assert {(trial.left_experiment, trial.right_experiment) for trial in found} == {
            *combinations(("exp-1", "exp-2", "exp-3"), 2)
        }


def test_the_draw_is_the_same_in_another_comparison_and_however_they_are_listed() -> None:
    found = first_of(trials(spec("a", "b"), 200))
    assert first_of(trials(spec("a", "b"), 200, comparison_id="cmp-2")) == found
    assert first_of(trials(spec("b", "a"), 200)) == found
    assert first_of(trials(spec("b", "a", pairs="baseline", baseline="b"), 200)) == found
    among_three = [trial for trial in trials(spec("c", "b", "a"), 200) if "c" not in trial.right_experiment]
    assert first_of(among_three) == found


def test_about_half_are_shown_in_each_order_and_each_seed_and_repetition_draws_for_itself() -> None:
    """A fair coin of 2,000 throws is this far from 1,000 once in 30,000 times."""
    drawn = [
        [trial.shown_first for trial in trials(spec("a", "b", seed=seed), 2000, repetition=repetition)]
        for seed, repetition in ((0, 0), (1, 0), (0, 1))
    ]
    assert all(905 < one.count("left") < 1095 for one in drawn)
    for one, other in combinations(drawn, 2):
        assert 905 < sum(a == b for a, b in zip(one, other, strict=True)) < 1095


def test_a_fixed_order_is_that_of_the_list_whichever_is_the_baseline() -> None:
    for listed, side in ((("a", "b"), "left"), (("b", "a"), "right")):
        assert {trial.shown_first for trial in trials(spec(*listed, randomize_order=False))} == {side}
    found = trials(spec("a", "b", "c", pairs="baseline", baseline="b", randomize_order=False))
    firsts = {trial.left_experiment if trial.shown_first == "left" else trial.right_experiment for trial in found}
    assert firsts == {"a", "b"}


@settings(deadline=None)
@given(
    n=st.integers(1, 60),
    size=st.integers(1, 25),
    repetitions=st.integers(1, 3),
    listed=st.permutations(["a", "b", "c", "d"]),
    pairs=st.sampled_from(["all", "baseline"]),
    both=st.booleans(),
)
def test_chunks_hold_every_bout_once(
    n: int, size: int, repetitions: int, listed: list[str], pairs: str, both: bool
) -> None:
    asked = spec(*listed, pairs=pairs, both_orders=both)
    row = comparison(asked, n, repetitions=repetitions, chunk_size=size)
    chunks = list(pair_chunks(row))
    found = [trial for chunk in chunks for trial in trials_of(chunk, asked, examples(n))]
    keys = {(trial.left_run, trial.right_run, trial.shown_first) for trial in found}
    assert len(keys) == len(found) == n_trials(row) == n * repetitions * len(pairs_of(asked)) * orders(asked)
    assert len({chunk.part_name for chunk in chunks}) == len(chunks), "no part is written by two chunks"
    assert {chunk.owner for chunk in chunks} == {"cmp-1"}


def test_a_comparison_that_has_ended_has_no_chunks_and_nothing_planned() -> None:
    asked = spec("a", "b", evaluators=["app:one", "app:two"], both_orders=True)
    assert list(pair_chunks(comparison(asked, 5, state="completed"))) == []
    assert planned_pairs(comparison(asked, 5, state="completed")).owners == frozenset()
    planned = planned_pairs(comparison(asked, 5, repetitions=3))
    assert (planned.owners, planned.judgements) == (frozenset({"cmp-1"}), 5 * 3 * 2 * 2)


def test_a_chunk_is_as_large_as_makes_few_of_them() -> None:
    for n, repetitions, pairs, size in (
        *((10, 1, 1, MIN_CHUNK_SIZE), (100_000, 1, 1, 500)),
        *((100_000, 1, 10, MAX_CHUNK_SIZE), (20_000, 5, 3, 1500)),
    ):
        assert pair_chunk_size(n, repetitions, pairs) == size
        if size < MAX_CHUNK_SIZE:
            assert (
                repetitions * pairs * -(-n // size) <= max(MAX_PAIR_CHUNKS, repetitions * pairs) + repetitions * pairs
            )
