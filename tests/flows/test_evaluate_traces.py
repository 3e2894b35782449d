"""Trace evaluations: what is new is judged once, by each version of each evaluator, whatever comes late or fails."""

from datetime import timedelta
from typing import Any

import pytest
from catalog_rows import rows
from made_traces import BEGAN, observation, traces, write

from evalflows import evaluate_traces
from evalflows.evaluators.subject import RunView
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.reference import refer
from evalflows.specs.trace_evaluation import TraceEvaluationSpec
from evalflows.store import Store
from evalflows.store.queries.trace_batches import batch_row
from evalflows.store.trace_records import WatermarkRow

pytestmark = pytest.mark.usefixtures("prefect_api")

judged: list[str] = []
"""The outputs that `length` has judged, in the order of judging."""


def length(output: str) -> int:
    judged.append(output)
    return len(output)


def limited(output: str, *, most: int = 10) -> bool:
    return len(output) <= most


def brief(output: str) -> bool:
    return len(output) < 9


@pytest.fixture(autouse=True)
def nothing_judged() -> None:
    judged.clear()


def spec(**changes: Any) -> TraceEvaluationSpec:
    fields: dict[str, Any] = {
        "name": "watch",
        "evaluators": [refer(length)],
        "settle_s": 0,
        "chunk_retry_delay_s": 0.05,
    }
    return TraceEvaluationSpec.model_validate(fields | changes)


def start(given: TraceEvaluationSpec, **settings: Any) -> WatermarkRow:
    return batch_row(Store(), evaluate_traces(given, **settings))


def scores(metric: str = "length") -> dict[str, float | None]:
    found = rows("select subject_id, value from trace_scores where metric = ? order by 1", metric)
    return dict(found)


@pytest.mark.slow
def test_each_start_judges_what_is_new_since_the_last_one(store: Store) -> None:
    write(store, traces(3))
    first = start(spec())
    assert (first.state, first.items_fetched, first.scores_created) == ("completed", 3, 3)
    assert scores() == {"t0": 8.0, "t1": 8.0, "t2": 8.0}

    nothing = start(spec())
    assert (nothing.items_fetched, nothing.scores_created) == (0, 0)

    write(store, traces(2, first=3))
    second = start(spec())
    assert (second.items_fetched, second.scores_created) == (2, 2)
    assert sorted(judged) == [f"answer {n}" for n in range(5)]
    assert first.until is not None and second.since == nothing.until


@pytest.mark.slow
def test_what_still_grows_waits_until_it_has_settled(store: Store) -> None:
    write(store, traces(3))
    assert start(spec(settle_s=3600)).items_fetched == 0
    assert start(spec(settle_s=0)).items_fetched == 3


@pytest.mark.slow
def test_a_late_span_joins_its_trace_which_is_not_judged_again(store: Store) -> None:
    write(store, traces(2))
    start(spec())
    late = observation("t1", "late", parent="root", name="tool", began=BEGAN + timedelta(seconds=1))
    write(store, [late])
    start(spec())
    assert judged.count("answer 1") == 1
    assert rows("select trace_id, observations from traces order by 1") == [("t0", 1), ("t1", 2)]
    assert len(scores()) == 2


@pytest.mark.slow
def test_a_root_that_comes_after_its_children_is_judged_when_it_is_there(store: Store) -> None:
    write(store, [observation("t0", "child", parent="root", type="tool", input=None, output=None)])
    start(spec())
    assert rows("select status, error from trace_scores") == [
        ("failed", "no output to judge: its output was not captured")
    ]
    write(store, traces(1))
    start(spec())
    assert rows("select status, value from trace_scores") == [("scored", 8.0)]


@pytest.mark.slow
def test_what_was_not_captured_is_no_blank_that_a_judge_judges(store: Store) -> None:
    write(store, [observation("t0", output=None), observation("t1", output=None, status="error")])
    batch = start(spec())
    assert (batch.items_processed, batch.items_failed) == (0, 2)
    assert judged == []
    assert rows("select subject_id, value, status, error from trace_scores order by 1") == [
        ("t0", None, "failed", "no output to judge: its output was not captured"),
        ("t1", None, "failed", "no output to judge: the application failed"),
    ]


@pytest.mark.slow
def test_a_changed_evaluator_judges_old_items_only_in_a_backfill(store: Store) -> None:
    write(store, traces(4))
    start(spec(evaluators=[{"use": refer(limited), "version": "1"}]))
    changed = spec(evaluators=[{"use": refer(limited), "version": "2", "args": {"most": 20}}])
    assert start(changed).items_fetched == 0

    since, until = BEGAN + timedelta(seconds=60), BEGAN + timedelta(seconds=121)
    batch = start(changed, backfill_from=since, backfill_to=until)
    assert (batch.kind, batch.items_fetched, batch.scores_created) == ("backfill", 2, 2)
    assert rows("select declared_version, count(*) from scores group by 1 order by 1") == [("1", 4), ("2", 2)]

    again = start(changed, backfill_from=since, backfill_to=until)
    assert (again.items_fetched, again.scores_created) == (2, 0)
    write(store, traces(1, first=4))
    assert start(changed).items_fetched == 1, "a backfill does not move the watermark"


def loud(item: Any) -> dict[str, Any]:
    return {"input": item.input, "output": f"{item.output}!"}


@pytest.mark.slow
@pytest.mark.parametrize("mapper", [refer(loud), {"output": "input"}])
def test_another_mapper_judges_items_again_in_a_backfill(store: Store, mapper: Any) -> None:
    write(store, traces(2))
    start(spec())
    assert start(spec(mapper=mapper)).items_fetched == 0
    batch = start(spec(mapper=mapper), newest_first=True)
    assert (batch.items_fetched, batch.scores_created) == (2, 2)
    assert start(spec(mapper=mapper), newest_first=True).scores_created == 0
    assert rows("select value, count(*) from trace_scores group by 1 order by 1") == [
        (8.0, 2),
        (len(judged[-1]), 2),
    ]


@pytest.mark.slow
def test_an_added_evaluator_judges_only_what_is_new(store: Store) -> None:
    write(store, traces(2))
    start(spec())
    write(store, traces(1, first=2))
    start(spec(evaluators=[refer(length), refer(brief)]))
    assert (len(scores()), scores("brief")) == (3, {"t2": 1.0})


@pytest.mark.slow
def test_each_evaluation_judges_for_itself(store: Store) -> None:
    write(store, traces(3))
    start(spec())
    batch = start(spec(name="another"))
    assert (batch.items_fetched, batch.scores_created, len(judged)) == (3, 3, 6)
    assert rows("select count(*), count(distinct score_id) from scores") == [(6, 6)]


@pytest.mark.slow
def test_a_root_of_the_day_before_that_comes_late_is_not_judged_twice(store: Store) -> None:
    midnight = BEGAN.replace(hour=0) + timedelta(days=1)
    write(store, [observation("t0", "child", parent="root", began=midnight + timedelta(seconds=1))])
    start(spec())
    write(store, [observation("t0", began=midnight - timedelta(seconds=1), seconds=5.0)])
    start(spec())
    assert (len(judged), rows("select count(*) from scores")) == (1, [(1,)])


@pytest.mark.slow
def test_max_items_stops_and_the_next_start_goes_on_from_there(store: Store) -> None:
    write(store, traces(5))  # recorded at the same moment
    first = start(spec(max_items=2))
    assert (first.items_fetched, first.until_id) == (2, "t1")
    second = start(spec(max_items=2))
    assert (second.items_fetched, second.until_id) == (2, "t3")
    third = start(spec(max_items=2))
    assert (third.items_fetched, third.until_id) == (1, None)
    assert judged == [f"answer {n}" for n in range(5)]


@pytest.mark.slow
def test_small_batches_judge_everything_once(store: Store) -> None:
    write(store, traces(25, apart_s=7200.0))  # of three days
    batch = start(spec(fetch_batch_size=4))
    assert (batch.items_fetched, batch.scores_created) == (25, 25)
    assert sorted(judged) == sorted(f"answer {n}" for n in range(25))
    owners = rows("select distinct right(experiment_id, 10) from source.scores order by 1")
    assert owners == [("2026-03-02",), ("2026-03-03",), ("2026-03-04",)]


def test_a_filter_and_the_newest_first(store: Store) -> None:
    write(store, traces(2, attributes={"tag.tags": ["production"]}) + traces(2, first=2))
    batch = start(spec(filter={"tags": ["production"], "name": "user-query"}), newest_first=True)
    assert (batch.items_fetched, judged) == (2, ["answer 1", "answer 0"])


@pytest.mark.slow
def test_composites_combine_the_scores_of_an_item(store: Store) -> None:
    write(store, traces(2))
    composite = {"name": "overall", "weights": {"length": 0.75, "brief": 0.25}}
    metrics = {"length": {"range": [0, 10], "higher_is_better": True}}
    batch = start(spec(evaluators=[refer(length), refer(brief)], composites=[composite], metrics=metrics))
    assert batch.composite_scores_created == 2
    assert scores("overall") == {"t0": pytest.approx(0.85), "t1": pytest.approx(0.85)}


@pytest.mark.slow
def test_a_score_called_length_stands_beside_no_measure(store: Store) -> None:
    write(store, traces(1))
    start(spec())
    assert rows("select metric, evaluator, value from scores") == [("length", "length", 8.0)]


@pytest.mark.slow
def test_observations_are_items(store: Store) -> None:
    tool = {"parent": "root", "type": "tool", "began": BEGAN + timedelta(seconds=1)}
    write(
        store, [*traces(2), observation("t0", "a", output="first", **tool), observation("t0", "b", output="2", **tool)]
    )
    start(spec(scope="observations", filter="type = 'tool'"))
    assert scores() == {"t0/t0-a": 5.0, "t0/t0-b": 1.0}
    assert rows("select distinct subject_kind, trace_id from trace_scores") == [("observation", "t0")]


def spoken(outputs: dict[str, Any]) -> int:
    return len(outputs["messages"])


@pytest.mark.slow
def test_sessions_are_whole_conversations(store: Store) -> None:
    write(store, traces(3, attributes={"session.id": "s1"}) + traces(1, first=3))
    start(spec(scope="sessions", evaluators=[refer(spoken)]))
    assert rows("select subject_kind, subject_id, value from trace_scores") == [("session", "s1", 6.0)]


def of_item(item: Any) -> dict[str, Any]:
    if item.id == "t1":
        raise ValueError("no such field")
    return {"input": item.input, "output": item.output.upper()}


@pytest.mark.slow
def test_a_mapper_that_raises_fails_its_item_only(store: Store) -> None:
    write(store, traces(3))
    batch = start(spec(mapper=refer(of_item)))
    assert (batch.items_processed, batch.items_failed) == (2, 1)
    assert sorted(judged) == ["ANSWER 0", "ANSWER 2"]
    (error,) = rows("select error from trace_scores where status = 'failed'")[0]
    assert "mapper: ValueError: no such field" in error and "in of_item" in error


@pytest.mark.slow
def test_paths_map_a_list_of_all_observations_of_a_type(store: Store) -> None:
    found = {"parent": "root", "type": "retriever", "began": BEGAN + timedelta(seconds=1)}
    write(store, [*traces(1), *(observation("t0", n, output=f"document {n}", **found) for n in "ab")])
    start(spec(mapper={"output": "observations[type=retriever].output"}, evaluators=[refer(counted)]))
    assert scores("counted") == {"t0": 2.0}


def counted(output: list[str]) -> int:
    assert output == ["document a", "document b"]
    return len(output)


@pytest.mark.slow
def test_tool_calls_are_the_steps_that_evaluators_of_agents_read(store: Store) -> None:
    search = observation(
        "t0",
        "search",
        parent="root",
        type="tool",
        name="search",
        input='{"query": "x"}',
        output='{"hits": 3}',
        attributes={"tool.name": "search"},
        began=BEGAN + timedelta(seconds=1),
    )
    write(store, [*traces(1), search])
    start(spec(evaluators=[refer(used_search)]))
    assert scores("used_search") == {"t0": 1.0}


def used_search(run: RunView) -> bool:
    (step,) = run.steps
    return (step["kind"], step["name"], step["inputs"], step["outputs"]) == (
        "tool",
        "search",
        {"query": "x"},
        {"hits": 3},
    )


@pytest.mark.slow
def test_resume_judges_the_rest_of_a_backfill(store: Store) -> None:
    write(store, traces(5))
    first = start(spec(max_items=2), newest_first=True)
    rest = start(spec(), newest_first=True, resume=first.batch_id)
    assert (rest.items_fetched, rest.resumed_from) == (3, first.batch_id)
    assert judged == [f"answer {n}" for n in (4, 3, 2, 1, 0)]
    with pytest.raises(InputError, match="wanted a batch that stopped before its last item"):
        start(spec(), newest_first=True, resume=rest.batch_id)


@pytest.mark.slow
def test_a_clock_that_was_set_back_hides_nothing(store: Store) -> None:
    early = observation("t0", began=BEGAN, seconds=-5.0)
    write(store, [early])
    start(spec())
    assert rows("select latency_s from traces") == [(None,)]
    assert scores() == {"t0": 6.0}


def broken(output: str) -> float:
    raise RuntimeError("the judge is broken")


@pytest.mark.slow
def test_a_failing_evaluator_is_counted_and_does_not_stop_the_others(store: Store) -> None:
    write(store, traces(2))
    batch = start(spec(evaluators=[refer(length), refer(broken)]))
    assert (batch.state, batch.scores_created, batch.items_failed) == ("completed", 2, 0)
    assert rows("select metric, status, count(*) from trace_scores group by all order by 1") == [
        ("broken", "failed", 2),
        ("length", "scored", 2),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"filter": {"colour": "red"}}, "filter: got the column 'colour' for traces, wanted one of "),
        ({"filter": "colour = 'red'"}, "filter: .*colour"),
        ({"mapper": "no.module:mapper"}, "no.module"),
        ({"mapper": {"output": "a b"}}, "path 'a b'"),
        ({"composites": [{"name": "c", "weights": {"nothing": 1.0}}], "evaluators": ["exact_match"]}, "nothing"),
    ],
)
def test_a_spec_that_cannot_work_is_refused(store: Store, changes: dict[str, Any], message: str) -> None:
    write(store, traces(1))
    with pytest.raises((InputError, IncompleteError), match=message):
        start(spec(**changes))
    assert rows("select count(*) from scores") == [(0,)]
