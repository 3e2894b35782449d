"""Trace evaluations: what is new is judged once, by each version of each evaluator, whatever comes late or fails."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import rows
from made_traces import BEGAN, observation, traces, write

from evalflows import evaluate_traces
from evalflows.evaluators.views import RunView
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.reference import refer
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store import Store
from evalflows.store.queries.traces import batch_row
from evalflows.store.trace_records import WatermarkRow

pytestmark = pytest.mark.usefixtures("without_prefect")

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
    assert rows("select distinct metric, evaluator, value from scores") == [("length", "length", 8.0)]

    nothing = start(spec())
    assert (nothing.items_fetched, nothing.scores_created) == (0, 0)

    write(store, traces(2, first=3))
    second = start(spec())
    assert (second.items_fetched, second.scores_created) == (2, 2)
    assert sorted(judged) == [f"answer {n}" for n in range(5)]
    assert first.until is not None and second.since == nothing.until

    write(store, traces(1, first=5))
    start(spec(evaluators=[refer(length), refer(brief)]))
    assert (len(scores()), scores("brief")) == (6, {"t5": 1.0}), "an added evaluator judges only what is new"
    other = start(spec(name="another"))
    assert (other.items_fetched, other.scores_created) == (6, 6), "each evaluation judges for itself"
    assert rows("select count(*) - count(distinct score_id) from scores") == [(0,)]


@pytest.mark.slow
def test_what_still_grows_waits_and_what_ended_long_ago_does_not(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    settles = spec(settle_s=3600)
    write(store, traces(3))
    with monkeypatch.context() as deployed:
        deployed.setattr("evalflows.tasks.evaluate_traces.restricted_folder", Path.cwd)
        assert start(settles).items_fetched == 0, "received spans of an outage may still lack others"
    write(store, traces(1, first=3, began=datetime.now(UTC)))
    write(store, traces(2, first=4))
    assert start(settles).items_fetched == 3, "in order of their recording, up to the first that still grows"
    assert start(settles).items_fetched == 0
    assert start(spec()).items_fetched == 3, "none is left out"


@pytest.mark.slow
def test_late_spans_join_their_trace_which_is_judged_once_its_root_is_there(store: Store) -> None:
    child = observation("t0", "child", parent="root", type="tool", input=None, output=None)
    write(store, [child, observation("t1", output=None, status="error"), *traces(1, first=2)])
    batch = start(spec())
    assert (batch.items_processed, batch.items_failed, judged) == (1, 2, ["answer 2"]), "what is not there is no blank"
    assert rows("select subject_id, error from trace_scores where status = 'failed' order by 1") == [
        ("t0", "no output to judge: its output was not captured"),
        ("t1", "no output to judge: the application failed"),
    ]
    late = observation("t2", "late", parent="root", name="tool", began=BEGAN + timedelta(seconds=1))
    write(store, [*traces(1), late])
    start(spec())
    assert scores() == {"t0": 8.0, "t1": None, "t2": 8.0}
    assert judged.count("answer 2") == 1
    assert rows("select trace_id, observations from traces order by 1") == [("t0", 2), ("t1", 1), ("t2", 2)]


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


@pytest.mark.slow
def test_another_mapper_judges_items_again_in_a_backfill(store: Store) -> None:
    write(store, traces(2))
    start(spec())
    mapper = {"output": "input"}
    assert start(spec(mapper=mapper)).items_fetched == 0
    batch = start(spec(mapper=mapper), newest_first=True)
    assert (batch.items_fetched, batch.scores_created) == (2, 2)
    assert start(spec(mapper=mapper), newest_first=True).scores_created == 0
    assert rows("select value, count(*) from trace_scores group by 1 order by 1") == [(8.0, 2), (len(judged[-1]), 2)]


@pytest.mark.slow
def test_a_root_of_the_day_before_that_comes_late_is_not_judged_twice(store: Store) -> None:
    midnight = BEGAN.replace(hour=0) + timedelta(days=1)
    write(store, [observation("t0", "child", parent="root", began=midnight + timedelta(seconds=1))])
    start(spec())
    write(store, [observation("t0", began=midnight - timedelta(seconds=1), seconds=5.0)])
    start(spec())
    assert (len(judged), rows("select count(*) from scores")) == (1, [(1,)])


@pytest.mark.slow
def test_max_items_stops_and_the_next_start_goes_on_from_there_in_batches_of_any_size(store: Store) -> None:
    write(store, traces(5))  # recorded at the same moment
    for count, until in ((2, "t1"), (2, "t3"), (1, None)):
        batch = start(spec(max_items=2))
        assert (batch.items_fetched, batch.until_id) == (count, until)
    assert judged == [f"answer {n}" for n in range(5)]
    write(store, traces(25, first=5, apart_s=7200.0))  # of three days
    batch = start(spec(fetch_batch_size=4))
    assert (batch.items_fetched, batch.scores_created) == (25, 25)
    assert sorted(judged) == sorted(f"answer {n}" for n in range(30))
    assert len(rows("select distinct right(experiment_id, 10) from staging.scores")) == 3


def spoken(outputs: dict[str, Any]) -> int:
    return len(outputs["messages"])


@pytest.mark.slow
def test_observations_and_sessions_are_items(store: Store) -> None:
    tool = {"parent": "root", "type": "tool", "began": BEGAN + timedelta(seconds=1)}
    calls = [observation("t0", "a", output="first", **tool), observation("t0", "b", output="2", **tool)]
    write(store, [*traces(2, attributes={"session.id": "s1"}), *calls])
    start(spec(scope="observations", filter="type = 'tool'"))
    assert scores() == {"t0/t0-a": 5.0, "t0/t0-b": 1.0}
    assert rows("select distinct subject_kind, trace_id from trace_scores") == [("observation", "t0")]
    start(spec(name="sessions", scope="sessions", evaluators=[refer(spoken)]))
    assert scores("spoken") == {"s1": 4.0}


def counted(output: list[str]) -> int:
    return len(output) if output == ["document a", "document b"] else -1


def used_search(run: RunView) -> bool:
    (step,) = (one for one in run.steps if one["kind"] == "tool")
    return (step["name"], step["inputs"], step["outputs"]) == ("search", {"query": "x"}, {"hits": 3})


@pytest.mark.slow
def test_paths_map_observations_and_tool_calls_are_the_steps_that_evaluators_of_agents_read(store: Store) -> None:
    of_root = {"parent": "root", "began": BEGAN + timedelta(seconds=1)}
    found = [observation("t0", n, type="retriever", output=f"document {n}", **of_root) for n in "ab"]
    said = {"input": '{"query": "x"}', "output": '{"hits": 3}', "attributes": {"tool.name": "search"}}
    search = observation("t0", "search", type="tool", name="search", **said, **of_root)
    write(store, [*traces(1), *found, search])
    start(spec(mapper={"output": "observations[type=retriever].output"}, evaluators=[refer(counted)]))
    start(spec(name="steps", evaluators=[refer(used_search)]))
    assert (scores("counted"), scores("used_search")) == ({"t0": 2.0}, {"t0": 1.0})


def test_a_spec_that_cannot_work_is_refused(store: Store) -> None:
    write(store, traces(1))
    for changes, message in (
        ({"filter": {"colour": "red"}}, "filter: got the column 'colour' for traces, wanted one of "),
        ({"filter": "colour = 'red'"}, "filter: .*colour"),
        ({"mapper": "no.module:mapper"}, "no.module"),
        ({"mapper": {"output": "a b"}}, "path 'a b'"),
        ({"task_runner": "processes", "evaluators": ["faithfulness"]}, "task_runner: got processes, wanted recorded"),
        ({"task_runner": "processes", "mapper": refer(lambda item: {})}, "mapper: got a function that only this"),
        ({"composites": [{"name": "c", "weights": {"nothing": 1.0}}], "evaluators": ["exact_match"]}, "nothing"),
    ):
        with pytest.raises((InputError, IncompleteError), match=message):
            start(spec(**changes))
    assert rows("select count(*) from scores") == [(0,)]
