"""Filters of traces: Langfuse's two JSON forms, and SQL that sees no more than the store."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from made_traces import BEGAN, observation, write

from evalflows.specs.errors import InputError
from evalflows.specs.traces import TraceScope
from evalflows.store.queries.traces import LATEST, Window, condition, item_keys
from evalflows.store.store import Store


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, store_at: Callable[..., Any]) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("filled")) as store:
        fill(store)
        yield store


def fill(store: Store) -> None:
    attributes = {"user.id": "u1", "session.id": "s1", "langfuse.version": "1.4"}
    attributes |= {"tag.tags": ["production", "beta"], "langfuse.trace.metadata.plan": "paid"}
    other = {"began": BEGAN + timedelta(days=2), "seconds": 9.0, "attributes": {"tag.tags": ["production"]}}
    rows = [
        observation("a", attributes=attributes),
        observation("a", "llm", parent="root", name="call", type="llm", attributes={"llm.model_name": "m-1"}),
        observation("b", name="other", **other),
        observation("c", status="error", attributes={"user.id": "it's", "session.id": "s1"}),
    ]
    write(store, rows)


def found(store: Store, given: Any, scope: TraceScope = "traces") -> list[str]:
    window = Window(moment="started_at", until=LATEST)
    return sorted(key.id for key in item_keys(store, scope, condition(given, scope), window, 100))


CASES: list[tuple[Any, str]] = [
    (None, "abc"),
    ("", "abc"),
    ({}, "abc"),
    ({"tags": ["production"]}, "ab"),
    ({"tags": ["production", "beta"]}, "a"),
    ({"tags": "production", "name": "user-query"}, "a"),
    ({"name": ["other", "nothing"]}, "b"),
    ({"userId": "u1"}, "a"),
    ({"user_id": "it's"}, "c"),
    ({"user_id": None}, "b"),
    ({"sessionId": "s1", "version": "1.4"}, "a"),
    ({"metadata": {"plan": "paid"}}, "a"),
    ({"fromTimestamp": "2026-03-03T00:00:00Z"}, "b"),
    ({"toTimestamp": "2026-03-03T00:00:00Z"}, "ac"),
    ({"model": "m-1"}, "a"),
    ({"status": "error"}, "c"),
    ([], "abc"),
    ([{"column": "name", "operator": "=", "value": "other", "type": "string"}], "b"),
    ([{"column": "name", "operator": "<>", "value": "other", "type": "string"}], "ac"),
    ([{"column": "tags", "operator": "any of", "value": ["beta", "x"], "type": "arrayOptions"}], "a"),
    ([{"column": "tags", "operator": "none of", "value": ["beta"], "type": "arrayOptions"}], "bc"),
    ([{"column": "tags", "operator": "all of", "value": ["production", "beta"], "type": "arrayOptions"}], "a"),
    ([{"column": "timestamp", "operator": ">=", "value": "2026-03-03", "type": "datetime"}], "b"),
    ([{"column": "latency", "operator": ">", "value": 5, "type": "number"}], "b"),
    ([{"column": "userId", "operator": "is null", "type": "null"}], "b"),
    ([{"column": "name", "operator": "contains", "value": "quer", "type": "string"}], "ac"),
    ([{"column": "name", "operator": "does not contain", "value": "quer", "type": "string"}], "b"),
    ([{"column": "name", "operator": "starts with", "value": "oth", "type": "string"}], "b"),
    ([{"column": "name", "operator": "ends with", "value": "er", "type": "string"}], "b"),
    ([{"column": "metadata", "key": "plan", "operator": "=", "value": "paid", "type": "stringObject"}], "a"),
    ("name = 'other'", "b"),
    ("list_contains(tags, 'beta') or latency_s > 5 -- a comment", "ab"),
    ("started_at < '2026-03-03' and errors = 0", "a"),
]
QUICK = CASES[3::4]


@pytest.mark.parametrize(
    "cases", [QUICK, pytest.param([case for case in CASES if case not in QUICK], marks=pytest.mark.slow)]
)
def test_filters_find_their_traces(filled: Store, cases: list[tuple[Any, str]]) -> None:
    for given, traces in cases:
        assert found(filled, given) == list(traces), given
    assert found(filled, json.dumps({"tags": ["production", "beta"]})) == ["a"]


def test_filters_of_observations_and_sessions_and_quotes_in_values(filled: Store) -> None:
    assert found(filled, {"type": "generation"}, "observations") == ["a/a-llm"]
    assert found(filled, {"model": "m-1"}, "observations") == ["a/a-llm"]
    assert found(filled, "traces > 1", "sessions") == ["s1"]
    assert found(filled, {"user_id": "u1"}, "sessions") == ["s1"]
    assert found(filled, {"name": "x' or '1' = '1"}) == []
    assert found(filled, {"metadata": {"pl\"an'": "x"}}) == []


def test_a_filter_that_cannot_work_is_refused(filled: Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a")
    cases: list[tuple[Any, str]] = [
        ({"colour": "red"}, "filter: got the column 'colour' for traces, wanted one of .*tags"),
        ('{"name": ', "filter: got .*, wanted JSON or a condition in SQL"),
        ([{"column": "name"}], "filter: got .*, wanted {column, operator, value, type}"),
        ([{"column": "name", "operator": "like", "value": "x"}], "filter: name: got the operator 'like'"),
        ([{"column": "tags", "operator": "=", "value": "x"}], "filter: tags: got the operator '='"),
        ({"name": {"deep": 1}}, "filter: name: got .*, wanted a text, a number, or a list of these"),
        ("nothing = 1", "filter: .*nothing"),
        ("name = 'x') or (1 = 1; drop table x", "filter: "),
        (f"trace_id in (select content from read_text('{secret}'))", "filter: "),
    ]
    for given, message in cases:
        with pytest.raises(InputError, match=message) as caught:
            found(filled, given)
        assert "\n" not in str(caught.value)
