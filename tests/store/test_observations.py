"""Observations in the store: copies are one row, recordings are in order, and text is kept as it came."""

import json
from dataclasses import replace
from datetime import UTC, datetime

from catalog_rows import one, rows
from made_traces import BEGAN, observation, traces, write

from evalflows.store.observations import SHORT, day_of, last_recorded, split_attributes
from evalflows.store.store import Store


def test_a_span_that_arrives_twice_is_one_row_and_the_latest_counts(store: Store) -> None:
    write(store, traces(3))
    write(store, traces(3, output="mended"))
    assert rows("select trace_id, output from observations order by 1") == [(f"t{n}", "mended") for n in range(3)]


def test_each_write_is_recorded_later_than_the_one_before(store: Store) -> None:
    ahead = [replace(row, recorded_at=datetime(2100, 1, 1, tzinfo=UTC)) for row in traces(1)]
    write(store, ahead)  # its own time of recording does not count
    first = last_recorded(store, "observations")
    write(store, traces(1, first=1))
    second = last_recorded(store, "observations")
    assert first is not None and second is not None and first < second < datetime(2100, 1, 1, tzinfo=UTC)


def test_a_day_is_that_of_utc_and_within_bounds() -> None:
    moments = [datetime(2026, 3, 2, 23, 59, tzinfo=UTC), datetime.fromisoformat("2026-03-03T01:00:00+02:00")]
    assert [day_of(moment) for moment in moments] == ["2026-03-02"] * 2
    assert [day_of(datetime(year, 1, 1, tzinfo=UTC)) for year in (1601, 9999)] == ["1970-01-01", "2100-01-01"]


def test_long_attributes_are_kept_apart() -> None:
    for value in ("x" * SHORT, 1, ["x"], None):
        short, contents = split_attributes({"a": value, "b": 1})
        assert (json.loads(short), contents) == ({"a": value, "b": 1}, None)
    for value in ("x" * (SHORT + 1), ["x" * SHORT]):
        short, contents = split_attributes({"a": value, "b": 1})
        assert (json.loads(short), json.loads(contents or "")) == ({"b": 1}, {"a": value})


def test_text_that_is_no_utf8_is_mended(store: Store) -> None:
    write(store, [observation("t0", output="half \ud83d of a pair \x00")])
    (output,) = one("select output from observations")
    assert output.startswith("half ")


def test_views_name_attributes_and_sum_over_model_calls(store: Store) -> None:
    tokens = {"llm.token_count.prompt": 10, "llm.token_count.completion": 5}
    call = {"parent": "root", "type": "llm", "began": BEGAN}
    call |= {"attributes": {"llm.model_name": "m-1", "llm.cost.total": 0.5, **tokens}}
    of_trace = {"session.id": "s1", "tag.tags": ["b", "a"]}
    root = traces(1, attributes=of_trace, resource={"service.version": "1.4"})
    write(store, [*root, observation("t0", "x", **call), observation("t0", "y", **call, status="error")])
    columns = "name, input, output, session_id, tags, version, models, tokens_in, tokens_out, cost_usd, errors, status"
    wanted = ("user-query", "question 0", "answer 0", "s1", ["a", "b"], "1.4", ["m-1"], 20, 10, 1.0, 1, "ok")
    assert one(f"select {columns} from traces") == wanted
    assert one("select session_id, trace_ids, tokens_in from sessions") == ("s1", ["t0"], 20)
