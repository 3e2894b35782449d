"""Windows as sums: counted by hand, by slice, session and sampling rate; and the view of the same windows."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from made_windows import IDENTITY, START, Production, write_traces

from evalflows.specs.errors import InputError
from evalflows.store import connect
from evalflows.store.queries.windows import (
    MEASURED_VERSION,
    Window,
    WindowsWanted,
    days_with_windows,
    first_day,
    last_day,
    traces_of_day,
    windows_of_day,
)
from evalflows.store.store import Store

Make = Callable[..., Any]
DAY = START.date()


def wanted(**fields: Any) -> WindowsWanted:
    given = {"evaluation_id": IDENTITY, "scope": "traces", "versions": ["v1"], "condition": None, "size": "day"}
    return WindowsWanted(**given | fields)


def of(windows: list[Window], metric: str = "accuracy", sums: str = "value") -> dict[str, Window]:
    return {window.slice: window for window in windows if (window.metric, window.of) == (metric, sums)}


def score(make: Make, trace: str, value: float | None, at: datetime = START, **fields: Any) -> Any:
    said = {"status": "scored"} if value is not None else {"status": "failed", "error": "boom"}
    name = f"{trace} {fields.get('metric')} {fields.get('evaluator_version')}"
    of = {"judgement_id": name, "subject_kind": "trace", "subject_id": trace, "experiment_id": f"{IDENTITY}-{DAY}"}
    by = {"metric": "accuracy", "value": value, "evaluator_version": "v1", "subject_at": at}
    return make("judgements", **{**of, **by, **said, **fields})


def test_sessions_are_clusters_and_samples_are_weighted(store: Store, make: Make) -> None:
    sessions = ("a", "a", "b", None)
    moments = [START + timedelta(hours=hour) for hour in range(4)]
    ids = [
        write_traces(store, make, [at], attributes=f'{{"session.id":"{session}"}}' if session else "{}")[0]
        for at, session in zip(moments, sessions, strict=True)
    ]
    scores = [
        score(make, ids[0], 1.0, moments[0]),
        score(make, ids[1], 0.0, moments[1], sampling_rate=0.5),
        score(make, ids[2], 1.0, moments[2]),
        score(make, ids[3], None, moments[3]),
        score(make, ids[3], 0.3, moments[3], evaluator_version="old"),
        score(make, ids[3], 0.3, moments[3], status="not_applicable", metric="other"),
    ]
    store.append("judgements", f"{IDENTITY}-{DAY}", "p", scores)
    found = windows_of_day(store, wanted(), DAY)
    value, failure = of(found)["all"], of(found, sums="failure")["all"]
    assert (value.n, value.missing, value.clusters) == (3, 1, 2)
    assert (value.weight, value.total, value.total_squares, value.products, value.weight_squares) == (4, 2, 2, 4, 10)
    assert (value.lowest, value.highest, value.is_binary) == (0.0, 1.0, True)
    assert (failure.n, failure.clusters, failure.weight, failure.total) == (4, 3, 5, 1)
    hours = windows_of_day(store, wanted(size="hour"), DAY)
    assert [w.start.hour for w in hours if (w.metric, w.of) == ("accuracy", "failure")] == [0, 1, 2, 3]


def test_slices_are_the_values_of_tags_versions_environments_and_metadata(store: Store, make: Make) -> None:
    attributes = '{"langfuse.trace.tags":["eu","paying"],"langfuse.trace.metadata.plan":"o\'paid","metadata.seats":3}'
    of_version = {"attributes": attributes, "resource": '{"service.version":"1.4","deployment.environment":"prod"}'}
    (first,) = write_traces(store, make, [START], **of_version)
    (second,) = write_traces(store, make, [START + timedelta(minutes=1)], status="error", attributes='{"plan":"free"}')
    rows = [score(make, first, 1.0), score(make, second, 0.0), score(make, "of no trace in the store", 0.0)]
    store.append("judgements", f"{IDENTITY}-{DAY}", "p", rows)
    dimensions = ["tag", "version", "environment", "model", "metadata.plan", "metadata.seats"]
    found = windows_of_day(store, wanted(dimensions=dimensions), DAY)
    assert {part: (window.n, window.total) for part, window in of(found).items()} == {
        "all": (3, 1),
        "tag=eu": (1, 1),
        "tag=paying": (1, 1),
        "version=1.4": (1, 1),
        "environment=prod": (1, 1),
        "metadata.plan=o'paid": (1, 1),
        "metadata.plan=free": (1, 0),
        "metadata.seats=3": (1, 1),
    }
    within = windows_of_day(store, wanted(within="metadata.plan=o'paid", dimensions=["version"]), DAY)
    assert of(within).keys() == {"all", "version=1.4"} and of(within)["all"].n == 1
    by_plan = traces_of_day(store, wanted(dimensions=["metadata.plan"]), DAY)
    assert {took.slice: took.errors for took in by_plan} == {
        "all": 1,
        "metadata.plan=o'paid": 0,
        "metadata.plan=free": 1,
    }
    assert of(found, "traces", "failure")["all"].total == 1
    latency = of(found, "latency")["all"]
    assert (latency.n, latency.total, latency.evaluator_version) == (2, 4.0, MEASURED_VERSION)
    (took,) = traces_of_day(store, wanted(condition="status = 'error'"), DAY)
    assert (took.traces, took.errors, took.latency_p50_s, took.cost_usd) == (1, 1, 2.0, None)
    with pytest.raises(InputError, match=r"windows: sql: .*no_such_column"):
        windows_of_day(store, wanted(condition="no_such_column = 1"), DAY)


def test_observations_and_sessions_have_the_fields_of_their_traces(store: Store, make: Make) -> None:
    (trace,) = write_traces(store, make, [START], attributes='{"session.id":"a","langfuse.trace.tags":["eu"]}')
    subjects = {"observation": f"{trace}/{trace[:16]}", "session": "a"}
    rows = [
        score(make, subject, 1.0, subject_kind=kind, judgement_id=kind, metric=kind)
        for kind, subject in subjects.items()
    ]
    store.append("judgements", f"{IDENTITY}-{DAY}", "p", rows)
    for kind in subjects:
        found = windows_of_day(store, wanted(scope=f"{kind}s", dimensions=["tag"]), DAY)
        assert of(found, kind).keys() == {"all", "tag=eu"}, kind


def test_the_view_agrees_with_the_sums(store: Store, make: Make) -> None:
    made = Production(store, make, n=40)
    made.windows(0.75, 0.5, failed=4)
    assert (first_day(store, IDENTITY), last_day(store, IDENTITY)) == (DAY, DAY + timedelta(days=1))
    assert first_day(store, "eval-none") is None
    with connect() as catalog:
        query = """select epoch_us(window_start), n, missing, mean, failure_share from trace_windows
                   where evaluation_id = ? and size = 'day' order by 1"""
        rows = catalog.execute(query, [IDENTITY]).fetchall()
    for number, (start, n, missing, mean, failure_share) in enumerate(rows):
        window = of(windows_of_day(store, wanted(), DAY + timedelta(days=number)))["all"]
        assert datetime.fromtimestamp(start / 1e6, UTC) == window.start
        assert (n, missing, mean) == (window.n, window.missing, pytest.approx(window.total / window.weight))
        assert failure_share == pytest.approx(0.1)
    assert len(rows) == 2


def test_days_without_traces_and_judgements_are_not_read(store: Store, make: Make) -> None:
    judged, seen, last = (DAY + timedelta(days=days) for days in (1, 3, 5))
    for identity, day in ((IDENTITY, judged), ("eval-other", judged + timedelta(days=1)), (IDENTITY, last)):
        store.append("judgements", f"{identity}-{day}", "p", [score(make, "t", 1.0, experiment_id=f"{identity}-{day}")])
    write_traces(store, make, [START + timedelta(days=3, hours=23)])
    assert days_with_windows(store, IDENTITY, DAY, last) == [judged, seen, last]
    assert days_with_windows(store, IDENTITY, seen, last - timedelta(days=1)) == [seen]
