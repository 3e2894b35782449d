"""How examples changed, from hand-made rows: kinds, directions, pages, lists, and the texts that are shown."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from past import FAILED, Past

from evalflows.analysis.changes import ChangeFilter, ComparedExperiments, change_counts, change_lists, changed_examples
from evalflows.reports.diff import diff_of
from evalflows.reports.example_detail import example_detail
from evalflows.specs.errors import InputError
from evalflows.store.records import OutputRow, derived_id, to_json

LOWER = {"metrics": {"errors": {"higher_is_better": False}}}


def kept(past: Past, version: str, **scores: Any) -> str:
    given = {metric: np.array(values, dtype=float) for metric, values in scores.items()}
    return past.experiment(given, target_version=version, spec=past.spec(**LOWER)).experiment_id


@pytest.fixture
def compared() -> ComparedExperiments:
    """Four examples: right got worse, better, stayed, is missing; errors grew, fell, fell more, stayed."""
    past = Past()
    old = kept(past, "v1", right=[1, 0, 1, 1], errors=[1, 3, 9, 2])
    new = kept(past, "v2", right=[0, 1, 1, FAILED], errors=[2, 2, 5, 2])
    again = kept(past, "v1", right=[1, 0, 0, 1], errors=[1, 3, 9, 2])
    return ComparedExperiments(baseline_experiment_id=old, candidate_experiment_ids=[new, again])


def kinds(counts: Any) -> Mapping[tuple[str, str], str]:
    names = ("improved", "regressed", "same", "flipped", "changed", "missing")
    return {
        (one.candidate_experiment_id, one.metric): " ".join(str(getattr(one, name)) for name in names)
        for one in counts
        if one.metric in ("right", "errors")
    }


def test_counts_follow_the_direction_of_each_metric(compared: ComparedExperiments) -> None:
    assert kinds(change_counts(Past().store, compared)) == {
        ("exp-001", "right"): "1 1 1 0 0 1",
        ("exp-001", "errors"): "2 1 1 0 0 0",
        ("exp-002", "right"): "0 0 3 1 0 0",
        ("exp-002", "errors"): "0 0 4 0 0 0",
    }
    chosen = ComparedExperiments(
        baseline_experiment_id="exp-000", candidate_experiment_ids=["exp-001"], chosen={"exp-001": ["e0", "e3"]}
    )
    assert kinds(change_counts(Past().store, chosen))["exp-001", "right"] == "0 1 0 0 0 1"


def test_changes_are_filtered_and_the_worst_come_first(compared: ComparedExperiments) -> None:
    store = Past().store

    def listed(**wanted: Any) -> list[tuple[Any, ...]]:
        of = ChangeFilter(**{"metrics": ["right", "errors"], "candidates": ["exp-001"], **wanted})
        found = changed_examples(store, compared, of)
        return [(one.example_id, one.metric, one.change, one.gain) for one in found]

    worst = [("e0", "right", "regressed", -1.0), ("e0", "errors", "regressed", -1.0)]
    better = [("e1", "errors", "improved", 1.0), ("e1", "right", "improved", 1.0), ("e2", "errors", "improved", 4.0)]
    assert listed(changes=["regressed"]) == worst
    assert listed(changes=["improved"]) == better
    assert listed(changes=["missing"]) == [("e3", "right", "missing", None)]
    (found,) = changed_examples(store, compared, ChangeFilter(metrics=["right"], changes=["missing"]))
    assert (found.value, found.missing, found.error, found.baseline_error) == (None, 1, "down", None)
    assert listed(changes=["regressed"], once=True) == worst[:1], "by the metric that changed most, for its range"


def test_a_list_has_each_example_once_and_says_how_many_there_are(compared: ComparedExperiments) -> None:
    wanted = ChangeFilter(metrics=["right", "errors"], changes=["regressed", "improved", "flipped"])
    lists = change_lists(Past().store, compared, wanted, limit=1)
    assert [
        (one.candidate_experiment_id, one.change, one.count, [(x.example_id, x.metric) for x in one.examples])
        for one in lists
    ] == [
        ("exp-001", "regressed", 1, [("e0", "right")]),
        ("exp-001", "improved", 2, [("e1", "right")]),
        ("exp-002", "flipped", 1, [("e2", "right")]),
    ]


def test_of_several_repetitions_the_runs_that_show_the_change_are_shown() -> None:
    past = Past(repetitions=2)
    old = kept(past, "v1", right=[[1, 0], [0, 0]])
    new = kept(past, "v2", right=[[0, 0], [0, 1]])
    for owner in (old, new):
        past.store.publish(
            "outputs",
            owner,
            [
                OutputRow(
                    run_id=derived_id(owner, example, repetition),
                    experiment_id=owner,
                    example_id=example,
                    repetition=repetition,
                    outputs=to_json({"answer": f"{owner} {repetition}"}),
                    status="ok",
                )
                for example in ("e0", "e1")
                for repetition in range(2)
            ],
        )
    compared = ComparedExperiments(baseline_experiment_id=old, candidate_experiment_ids=[new])
    worse, better = changed_examples(past.store, compared, ChangeFilter(metrics=["right"]))
    assert (worse.change, worse.baseline_value, worse.value) == ("regressed", 0.5, 0.0)
    assert (worse.baseline_outputs, worse.outputs) == ('{"answer":"exp-000 0"}', '{"answer":"exp-001 0"}')
    assert (better.change, better.baseline_value, better.value) == ("improved", 0.0, 0.5)
    assert (better.baseline_outputs, better.outputs) == ('{"answer":"exp-000 0"}', '{"answer":"exp-001 1"}')
    assert worse.inputs == '{"input":"e0?"}'


def test_everything_of_an_example_is_given_by_run(compared: ComparedExperiments) -> None:
    found = example_detail(Past().store, compared.experiment_ids, "e0")
    assert (found.inputs, [run.experiment_id for run in found.runs]) == (
        '{"input":"e0?"}',
        ["exp-000", "exp-001", "exp-002"],
    )
    assert [(score.metric, score.value) for score in found.runs[1].scores] == [("errors", 2.0), ("right", 0.0)]
    with pytest.raises(InputError, match="example 'e9': in none of the experiments exp-000, exp-001, exp-002"):
        example_detail(Past().store, compared.experiment_ids, "e9")


def test_a_diff_has_results_notes_counts_and_lists(compared: ComparedExperiments) -> None:
    found = diff_of(Past().store, "exp-000", ["exp-001", "exp-002"], metrics=["right"], limit=3)
    assert [(one.metric, one.baseline_experiment_id) for one in found.results] == [
        ("right", None),
        ("right", "exp-000"),
        ("right", "exp-000"),
    ]
    assert {one.metric for one in found.counts} == {"right"}
    kinds = [(one.candidate_experiment_id, one.change, one.count) for one in found.lists]
    of_new = [("exp-001", change, 1) for change in ("regressed", "improved", "missing")]
    assert kinds == [*of_new, ("exp-002", "flipped", 1)]
    assert {(note.candidate_experiment_id, note.what) for note in found.notes} >= {("exp-002", "target")}
