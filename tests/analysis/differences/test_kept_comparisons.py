"""A comparison is kept in the process for as long as the rows that it rests on are the same."""

from dataclasses import replace
from typing import Any

import pytest
from answered import answered

from evalflows.reports.kept_comparisons import KeptComparison, KeptComparisons
from evalflows.store.leases import hold_lease
from evalflows.store.records import BaselineRow, CheckRow, ExperimentRow, controls_batch, now
from evalflows.store.store import Store

EXAMPLES = [f"q{place}" for place in range(5)]
BASE, CANDIDATE = "exp-00-old", "exp-01-new"


@pytest.fixture(autouse=True)
def systems() -> None:
    for place, name in enumerate(("old", "new")):
        scores = {"right": {one: float(place) for one in EXAMPLES}}
        answered(name, dict.fromkeys(EXAMPLES, name), scores, place=place)


def asked(kept: KeptComparisons) -> KeptComparison:
    return kept.get(Store(), BASE, [CANDIDATE])


def test_what_did_not_change_is_not_made_again() -> None:
    kept = KeptComparisons()
    first = asked(kept)
    answered("another", {"q0": "x"}, {"right": {"q0": 1.0}}, place=7)
    assert asked(kept) is first and kept.get(Store(), CANDIDATE, [BASE]) is not first
    assert first.metrics == ["right", "answer_length"]


def add_score(store: Store) -> None:
    row = store.read("judgements", CANDIDATE)[0]
    store.append("judgements", CANDIDATE, "more", [replace(row, value=0.5, recorded_at=now())])


def seal(store: Store) -> None:
    store.seal(BASE, ("judgements",))


def validate_judge(store: Store) -> None:
    batch = controls_batch("group of new")
    row = CheckRow(
        check_id="c", batch_id=batch, subject_kind="judge", subject_id="right", name="controls", passed=False
    )
    store.publish("checks", batch, [row])


def approve(store: Store) -> None:
    store.publish("baselines", "b", [BaselineRow(baseline_id="b", name="x", experiment_id=BASE, approved_by="me")])


def test_rows_that_it_rests_on_make_it_anew() -> None:
    kept = KeptComparisons()
    before = asked(kept)
    for change in (add_score, seal, validate_judge, approve):
        change(Store())
        again = asked(kept)
        assert again is not before and asked(kept) is again, change.__name__
        before = again
    (found,) = (one for one in before.diff.results if one.metric == "right" and one.experiment_id == CANDIDATE)
    assert found.reason_code == "judge_failed_validation"


def test_nothing_is_kept_while_one_of_them_runs() -> None:
    store, kept = Store(), KeptComparisons()
    (row,) = store.read("experiments", CANDIDATE)
    fields: dict[str, Any] = {name: getattr(row, name) for name in ExperimentRow.__slots__ if name != "recorded_at"}
    store.append("experiments", CANDIDATE, "again", [ExperimentRow(**fields | {"state": "running"})])
    with hold_lease(store, row.run_group, "run", wait=False):
        running = asked(kept)
        assert running.is_running and asked(kept) is not running
    ended = asked(kept)
    assert not ended.is_running, "interrupted: nobody works on it"
    assert asked(kept) is ended


def test_the_oldest_give_way_when_there_are_too_many_changes() -> None:
    kept = KeptComparisons(most_changes=7)
    first = asked(kept)
    first.changes(["right"])
    assert first.size == 5
    second = kept.get(Store(), CANDIDATE, [BASE])
    second.changes(["right"])
    answered("third", dict.fromkeys(EXAMPLES, "x"), {"right": dict.fromkeys(EXAMPLES, 1.0)}, place=2)
    third = kept.get(Store(), BASE, ["exp-02-third"])
    assert kept.get(Store(), CANDIDATE, [BASE]) is second and kept.get(Store(), BASE, ["exp-02-third"]) is third
    assert asked(kept) is not first


def test_changes_are_read_once_and_by_metric() -> None:
    one = asked(KeptComparisons())
    (changes,) = one.changes(["right"])
    assert {example: [change.gain for change in some] for example, some in changes.items()} == {
        one: [1.0] for one in EXAMPLES
    }
    assert one.changes(["right"])[0] is changes
    assert [example.example_id for example in one.examples] == EXAMPLES
