"""recorded_preference: what is known of the order, and rows that say that there is no verdict."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evalflows.evaluators.pairwise import recorded_preference
from evalflows.evaluators.score import ExampleView, Preference, RunView


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def recorded(*rows: Mapping[str, Any]) -> str:
    full = ({"example_id": "e1", "first": "old", "second": "new"} | row for row in rows)
    Path("votes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in full), encoding="utf-8")
    return "votes.jsonl"


def replayed(path: str, first: str = "old", second: str = "new", **args: Any) -> Preference | None:
    runs = [RunView(id=name, inputs={}, outputs={}, experiment=name) for name in (first, second)]
    return recorded_preference(runs, ExampleView(id="e1", inputs={}), path=path, **args)


OTHER_WAY = {"first": "new", "second": "old", "example_id": "e2"}


@pytest.mark.parametrize(
    ("rows", "args", "status"),
    [
        ([{"winner": "A"}], {}, "unknown"),
        ([{"winner": "A"}, {"winner": "A"} | OTHER_WAY], {}, "known"),
        ([{"winner": "A"}], {"order": "known"}, "known"),
        ([{"winner": "A"}, {"winner": "A"} | OTHER_WAY], {"order": "drawn"}, "drawn"),
    ],
)
def test_the_order_is_known_if_both_occur_or_if_that_is_said(
    rows: list[Mapping[str, Any]], args: Mapping[str, Any], status: str
) -> None:
    found = replayed(recorded(*rows), **args)
    assert found is not None and (found.winner, found.order_status) == ("first", status)


def test_another_order_is_refused_and_a_row_that_does_not_apply_is_none() -> None:
    with pytest.raises(ValueError, match="order: got 'random', wanted one of known, drawn, unknown"):
        replayed(recorded({"winner": "A"}), order="random")
    assert replayed(recorded({"winner": None, "status": "not_applicable"})) is None


@pytest.mark.parametrize("winner", [{}, {"winner": None}])
def test_a_row_without_a_verdict_that_failed_is_missing_with_its_place(winner: Mapping[str, Any]) -> None:
    path = recorded(winner | {"status": "failed", "comment": "no answer"})
    for order in (("old", "new"), ("new", "old")):
        with pytest.raises(LookupError, match=r"votes\.jsonl:1: recorded without a verdict: no answer"):
            replayed(path, *order)


@pytest.mark.parametrize("status", [None, "scored", "lost"])
def test_a_row_without_a_verdict_needs_a_status(status: str | None) -> None:
    with pytest.raises(ValueError, match="wanted 'winner' or 'scores', or a status \\(failed or not_applicable\\)"):
        replayed(recorded({"winner": None, "status": status}))
