"""Slices of a comparison, and its judgements as read from the store."""

from typing import Any

import pandas as pd
from matched import FAILED, NEVER, asked, compared, experiment, rows_of
from preferred import Pair, preferences

from evalflows.analysis.preferences import MAX_SLICE_VALUES, preferences_in, slices
from evalflows.engine.pairs import experiments_of
from evalflows.store.queries.shared_examples import shared_examples
from evalflows.store.store import Store


def test_slices_are_the_requested_fields_and_several_splits() -> None:
    a = experiment("a", dict.fromkeys("pqr", "yes"), rows=[
        *rows_of("p", split="train", metadata={"topic": "x"}),
        *rows_of("q", split="test", metadata={"topic": "y"}),
        *rows_of("r", split="test"),
    ])  # fmt: skip
    examples = Store().read("examples", Store().read("experiments", a)[0].snapshot_id)
    assert dict(slices(examples, ["metadata.topic", "split"])) == {
        "split=test": {"q", "r"},
        "split=train": {"p"},
        "metadata.topic=x": {"p"},
        "metadata.topic=y": {"q"},
    }
    assert list(slices(examples[:1], [])) == [], "one split is no slice"


def test_a_field_with_too_many_values_gives_no_slices() -> None:
    for count, wanted in ((MAX_SLICE_VALUES, MAX_SLICE_VALUES), (MAX_SLICE_VALUES + 1, 0)):
        names = [f"q{i}" for i in range(count)]
        rows = [rows_of([name], metadata={"id": name})[0] for name in names]
        one = experiment(f"e{count}", dict.fromkeys(names, "yes"), rows=rows)
        examples = Store().read("examples", Store().read("experiments", one)[0].snapshot_id)
        assert len(list(slices(examples, ["metadata.id"]))) == wanted


def prefers(outputs: list[dict[str, Any]]) -> dict[str, Any]:
    """Two metrics: the better by its name, and always the first."""
    return {"results": [{"key": "fair", "winner": _by_name(outputs)}, {"key": "first", "winner": "A"}]}


def _by_name(outputs: list[dict[str, Any]]) -> str:
    one, other = (output["answer"] for output in outputs)
    return "tie" if one == other else "A" if one > other else "B"


def test_frames_in_memory_equal_those_from_the_store() -> None:
    rows = [*rows_of(["q0", "q1", "q2", "q3", "q4"]), *rows_of(["q5"], cluster="k")]
    answers = {"q0": "a", "q1": "bbb", "q2": "c", "q3": FAILED, "q4": NEVER, "q5": "z"}
    old = experiment("old", answers, place=0, rows=rows)
    new = experiment("new", {"q0": "b", "q1": "a", "q2": "c", "q3": "d", "q4": "e", "q5": "z"}, place=1, rows=rows)
    row = compared([new, old], prefers, both_orders=True)
    examples = shared_examples(Store(), experiments_of(Store(), [new, old])).examples
    fair, first = preferences_in(Store(), row, examples)
    names: dict[str, Any] = {"left": old, "right": new}
    pairs = [
        Pair("q0", "right", "right", longer=0.0, **names),
        Pair("q1", "left", "left", longer=2.0, **names),
        Pair("q2", "tie", "tie", longer=0.0, **names),
        Pair("q3", "right", "right", asked=False, **names),
        Pair("q4", "tie", "tie", missing=True, **names),
        Pair("q5", "tie", "tie", longer=0.0, cluster="k", **names),
    ]
    wanted = preferences(pairs, "fair")
    keys = ["example_id", "shown_first"]
    assert [one.metric for one in (fair, first)] == ["fair", "first"]
    pd.testing.assert_frame_equal(fair.outcomes[list(wanted.outcomes)], wanted.outcomes, check_dtype=False)
    pd.testing.assert_frame_equal(
        fair.judgements.sort_values(keys, ignore_index=True),
        wanted.judgements.sort_values(keys, ignore_index=True),
        check_dtype=False,
    )
    assert list(first.outcomes.outcome[:3]) == ["flipped"] * 3


def test_resuming_a_comparison_replaces_its_results() -> None:
    old = experiment("old", {f"q{i}": "a" for i in range(20)}, place=0)
    new = experiment("new", {f"q{i}": "b" for i in range(20)}, place=1)
    row = compared([old, new], prefers, both_orders=True)
    compared([old, new], prefers, both_orders=True, resume=row.comparison_id)
    verdicts = asked(
        """select metric, conclusion, slice, count(*) from win_rates where not length_controlled
           group by all order by all"""
    )
    assert verdicts == [("fair", "better", "all", 1), ("first", "not_enough_evidence", "all", 1)]
    assert asked("select metric, bias, count(*) from judge_biases group by all having count(*) > 1") == []
    assert {bias for (bias,) in asked("select bias from judge_biases where metric = 'fair'")} == {
        *("position_preference", "flip_share", "length_preference", "self_consistency"),
        "agreement with first",
    }
    board = asked("select experiment, rank from leaderboard where metric = 'fair' order by rank")
    assert board == [("new", 1), ("old", 2)]
