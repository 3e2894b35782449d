"""import_labels: what is stored, what is rejected and where, and the views that join labels with judgements."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from labelled import judged, run_of, score, write_csv
from matched import asked

from evalflows.analysis.label_sampling import next_to_label
from evalflows.analysis.labels import judge_standings, label_check
from evalflows.reports.example_detail import labels_of
from evalflows.specs.errors import InputError
from evalflows.stats.agreement import agreement
from evalflows.store.labels import MACHINE, Imported, add_label, import_labels
from evalflows.store.queries.failures import bad_score, failures_of_experiments
from evalflows.store.queries.labels import judged_and_labelled, listed_batches
from evalflows.store.queries.review_items import judged_metrics, labelled_subjects, reviewed
from evalflows.store.sql import connect
from evalflows.store.store import Store
from evalflows.store.views import view_files

N = 6
NAMES = [f"q{i}" for i in range(N)]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def owner() -> str:
    """An experiment with six answers; the judge says yes to all but the last."""
    return judged("small", {name: float(name != "q5") for name in NAMES})


def kept(*rows: dict[str, Any], **options: Any) -> Imported:
    return import_labels(Store(), write_csv("labels.csv", rows), **options)


def refused(*rows: dict[str, Any], **options: Any) -> str:
    with pytest.raises(InputError) as raised:
        kept(*rows, **options)
    assert Store().query("select count(*) from source.labels") == [(0,)]  # nothing half-written
    return str(raised.value)


def test_a_label_is_kept_with_all_that_the_file_says(owner: str) -> None:
    run = run_of(owner, "q1")
    row = {"run_id": run, "metric": "correct", "value": "no", "labeller": "ann", "comment": "It is Lyon."}
    row |= {"labelled_at": "2026-03-01T10:00:00+01:00", "drawn": "fair", "team": "blue"}
    (label,) = kept(row).labels
    assert (label.subject_kind, label.subject_id, label.experiment_id, label.example_id) == ("run", run, owner, "q1")
    assert (label.metric, label.value, label.label, label.data_type) == ("correct", 0.0, None, "BOOLEAN")
    assert (label.labeller, label.comment, label.source) == ("ann", "It is Lyon.", "labels.csv")
    assert label.labelled_at == datetime(2026, 3, 1, 9, tzinfo=UTC)
    assert json.loads(label.metadata or "") == {"drawn": "fair", "team": "blue"}
    assert Store().read("labels", label.batch_id) == [label]


def test_a_value_is_a_number_yes_or_no_or_a_label(owner: str) -> None:
    for metric, (cell, *wanted) in enumerate(
        (
            ("yes", 1.0, None, "BOOLEAN"),
            ("False", 0.0, None, "BOOLEAN"),
            ("0.25", 0.25, None, "NUMERIC"),
            ("-3", -3.0, None, "NUMERIC"),
            ("polite", None, "polite", "CATEGORICAL"),
        )
    ):
        (found,) = kept({"run_id": run_of(owner, "q0"), "value": cell}, metric=str(metric)).labels
        assert [found.value, found.label, found.data_type] == wanted
    (found,) = kept({"run_id": run_of(owner, "q0"), "label": "3"}, metric="tone").labels
    assert (found.value, found.label) == (None, "3"), "a label stays one"


@pytest.mark.parametrize("cell", ["up", "👍"])
def test_a_thumb_is_yes_or_no_and_its_source_is_feedback(owner: str, cell: str) -> None:
    rows = [{"run_id": run_of(owner, "q0"), "feedback": cell}, {"run_id": run_of(owner, "q1"), "feedback": "down"}]
    up, down = kept(*rows, metric="correct").labels
    assert (up.value, down.value, up.data_type) == (1.0, 0.0, "BOOLEAN")
    assert (up.source, down.source) == ("feedback", "feedback")
    assert asked("select distinct is_fair from current_labels") == [(False,)]


def test_a_run_may_be_named_by_experiment_example_and_repetition() -> None:
    owner = judged("twice", {"q0": [1.0, 0.0], "q1": [1.0, 1.0]})
    path = Path("labels.jsonl")
    rows = [{"experiment": "twice", "example_id": "q0", "repetition": r, "value": r == 0} for r in (0, 1)]
    path.write_text("\n".join(map(json.dumps, rows)))
    first, second = import_labels(Store(), path, metric="correct", labeller="ann").labels
    assert [first.subject_id, second.subject_id] == [run_of(owner, "q0", 0), run_of(owner, "q0", 1)]
    assert (first.value, second.value, first.labeller) == (1.0, 0.0, "ann")


def test_the_same_labels_again_change_nothing_in_whatever_order(owner: str) -> None:
    rows = [{"run_id": run_of(owner, name), "metric": "correct", "value": 1} for name in NAMES]
    first, again = kept(*rows), kept(*reversed(rows))
    assert (first.already_imported, again.already_imported) == (False, True)
    assert first.batch_id == again.batch_id
    assert len(asked("from labels")) == N
    found = kept(*(row | {"value": "yes" if n == 2 else ""} for n, row in enumerate(rows)))
    assert (len(found.labels), found.left_empty) == (1, N - 1), "rows that are not filled in are left out"


def test_of_one_labeller_the_later_label_counts_and_of_two_both(owner: str) -> None:
    of = {"run_id": run_of(owner, "q0"), "metric": "correct", "labeller": "ann"}
    kept({**of, "value": 1})
    kept({**of, "value": 0}, {**of, "value": 1, "labeller": "ben"})
    assert asked("select labeller, value from current_labels order by 1") == [("ann", 0.0), ("ben", 1.0)]
    assert len(asked("from labels")) == 3


def test_of_two_answers_the_older_experiment_is_left_whoever_is_named_first() -> None:
    old, new = judged("old", {"q0": 1.0, "q1": 1.0}, place=0), judged("new", {"q0": 1.0, "q1": 1.0}, place=1)
    of = {"experiment": "new", "other_experiment": "old", "metric": "better"}
    found = kept({**of, "example_id": "q0", "winner": "new"}, {**of, "example_id": "q1", "winner": "tie"}).labels
    assert [(one.subject_id, one.other_run_id) for one in found] == [
        (run_of(old, name), run_of(new, name)) for name in ("q0", "q1")
    ]
    assert [(one.label, one.value) for one in found] == [("right", 0.0), ("tie", 0.5)]


OF = {"metric": "correct", "value": "1"}


MISTAKES: list[tuple[list[dict[str, Any]], str]] = [
    ([{"run_id": "nothing", **OF}], "labels.csv:2: run_id: got 'nothing', wanted a run of an experiment in"),
    ([{"experiment": "nothing", "example_id": "q0", **OF}], "labels.csv:2: experiment 'nothing': not in"),
    ([{**OF, "example_id": "q9"}], "labels.csv:2: example_id: got 'q9', but exp-00-small has no run of it"),
    ([{"experiment": "small", **OF}], "labels.csv:2: got experiment, metric, value, wanted run_id, or experiment and"),
    ([{"value": "1"}], "labels.csv:2: got no metric, wanted a column"),
    ([{"experiment": "small", "example_id": "q0", "vlaue": "1"}], "got experiment, example_id, vlaue"),
    ([{**OF, "label": "x"}], "labels.csv:2: got value and label, wanted one of them"),
    ([{"value": ""}], "labels.csv: has no labels, wanted at least one"),
    ([{**OF, "value": "nan"}], "value: got 'nan', wanted a finite number"),
    ([{**OF, "value": "1e300"}], "value: got '1e300', wanted a number between -1e+60 and 1e+60"),
    ([{"metric": "correct", "feedback": "meh"}], "feedback: got 'meh', wanted up or down"),
    ([{**OF, "drawn": "somehow"}], "drawn: got 'somehow', wanted fair or uncertain"),
    ([{**OF, "chance": "2"}], "chance: got 2, wanted more than 0 and at most 1"),
    ([{**OF, "labelled_at": "today"}], "labelled_at: got 'today', wanted a time such as"),
    ([{**OF, "repetition": "-1"}], "repetition: got '-1', wanted a whole number of at least 0"),
    ([{**OF, "repetition": "1"}], "example_id: got 'q0', but exp-00-small has no run of it with repetition 1"),
    ([OF, {**OF, "value": "0"}], "labels.csv:3: got a second label of this run (the first is in row 2), wanted"),
    ([OF, {**OF, "example_id": "q1", "value": "ok"}], "labels.csv:3: correct: got 'ok', a label, wanted"),
    ([{"metric": "m", "winner": "small"}], "winner: got no other_experiment"),
    ([{**OF, "other_experiment": "small"}], "other_experiment: got 'small', the same experiment, wanted another one"),
    ([{**OF, "other_experiment": "large"}], "other_experiment: got no winner, wanted one of the two"),
    ([{"metric": "m", "winner": "x", "other_experiment": "large"}], "winner: got 'x', wanted 'small', 'large'"),
]


def test_a_mistake_is_one_line_with_its_row_and_nothing_is_kept(owner: str) -> None:
    judged("large", {"q0": 1.0}, place=1)
    place = {"experiment": "small", "example_id": "q0"}
    for rows, said in MISTAKES:
        given = [row if {"run_id", "experiment", "vlaue"} & {*row} else {**place, **row} for row in rows]
        assert said in refused(*given), said


def test_of_several_repetitions_one_must_be_named() -> None:
    judged("twice", {"q0": [1.0, 0.0]})
    said = refused({"experiment": "twice", "example_id": "q0", "metric": "correct", "value": "1"})
    assert "example 'q0' has 2 runs, wanted a column repetition" in said


# The views


def test_what_was_chosen_for_its_doubt_is_fair_once_its_turn_would_have_come(owner: str) -> None:
    by_lot = [run for (run,) in asked("select run_id from outputs order by md5(run_id)")]
    drawn = {0: "uncertain", 1: "fair", 2: "uncertain", 3: "fair", 4: "uncertain"}
    kept(*({"run_id": by_lot[lot], "value": 1, "drawn": how} for lot, how in drawn.items()), metric="correct")
    found = dict(asked("select subject_id, is_fair from current_labels"))
    assert [found[by_lot[lot]] for lot in drawn] == [True, True, True, True, False]


def test_judges_are_told_apart_and_measured_as_stats_measures_them() -> None:
    truth = {f"q{i:02}": float(i % 3 > 0) for i in range(30)}
    good = {name: 1.0 - value if name == "q07" else value for name, value in truth.items()}
    owner = judged("small", good, version="good")
    score(owner, dict.fromkeys(truth, 1.0), version="always", model=None)
    kept(*({"run_id": run_of(owner, name), "value": value} for name, value in truth.items()), metric="correct")
    columns = "evaluator_version, n_labels, agreement, kappa, bias"
    found = {version: rest for version, *rest in asked(f"select {columns} from judge_quality where metric = 'correct'")}
    known = agreement([*good.values()], [*truth.values()])
    assert found["good"] == pytest.approx([30, known.share, known.kappa, -1 / 30])
    assert found["always"] == pytest.approx([30, 20 / 30, 0.0, 10 / 30])


def test_batches_are_listed_and_what_is_not_there_is_said(owner: str) -> None:
    rows = [{"run_id": run_of(owner, name), "value": 1, "labeller": name[-1]} for name in NAMES[:2]]
    batch = kept(*rows, metric="right").batch_id
    (found,) = listed_batches(Store())
    assert (found.batch_id, found.source, found.metrics) == (batch, "labels.csv", "right")
    assert (found.n_labels, found.n_labellers, found.experiments) == (2, 2, "small")
    with pytest.raises(InputError, match="metric 'tone': not in small, wanted one of: correct"):
        judged_and_labelled(Store(), "small", "tone", "right")
    with pytest.raises(InputError, match="'correct': got no labels for small, wanted one of: right"):
        judged_and_labelled(Store(), "small", "correct", "correct")


def readings(owner: str, views: Iterable[str]) -> dict[str, str]:
    """What views and every reader of people's labels say."""
    store = Store()
    with connect() as catalog:
        found: dict[str, Any] = {name: sorted(map(str, catalog.execute(f"from {name}").fetchall())) for name in views}
    found["validation"] = label_check("b", judged_and_labelled(store, owner, "correct", "correct"), "v1", 0.95).observed
    found["standings"] = judge_standings(store)
    found["next"] = next_to_label(owner, "correct", "correct", N)
    found["review"] = (reviewed(store, owner, "correct").labels, judged_metrics(store), labelled_subjects(store, owner))
    found["failure modes"] = failures_of_experiments(store, [owner], [bad_score("correct<1")])
    return {name: str(one) for name, one in found.items()}


@pytest.mark.slow
def test_a_machines_label_counts_nowhere_as_a_persons(owner: str) -> None:
    runs = [run_of(owner, name) for name in NAMES]
    kept(*({"run_id": run, "value": 1, "labeller": "ann"} for run in runs[1:5]), metric="correct")
    views = [path.stem for path in view_files() if path.stem != "machine_labels"]
    before = readings(owner, views)
    said = [{"run_id": run, "value": 0, "labeller": "ann", "comment": "Rude."} for run in runs]
    kept(*said, metric="correct", machine="gpt")
    add_label(Store(), "b1", said[0] | {"metric": "correct"}, MACHINE)
    assert readings(owner, views) == before
    add_label(Store(), "b2", {"run_id": runs[5], "metric": "correct", "value": 0, "labeller": "gpt", "comment": "Hm."})
    heard = readings(owner, ["labels", "current_labels", "judge_labels", "judge_quality"])
    assert not {name for name, one in heard.items() if one == before[name]}, "a person of that name counts"
    given = "select labeller, count(*) from machine_labels group by all order by 1"
    assert asked(given) == [("ann", 1), ("gpt", N)]
    assert [one.by_machine for one in labels_of(Store(), owner, runs[5:])] == [False, True]
    assert [one.source for one in listed_batches(Store())] == ["review", "machine", "machine", "labels.csv"]
