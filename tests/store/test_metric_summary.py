"""The summary of metrics: missing values, costs, versions and subjects."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from full_store import Filler, Make

from evalflows.store.sql import ask
from evalflows.store.store import Store

COUNTS = {"scored": 4, "failed": 3, "not_attempted": 2, "not_applicable": 2, "sampled_out": 1}


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory, make: Make, store_at: Callable[..., Any]) -> Iterator[Store]:
    """Metrics of one experiment, of one kind each; tests only read them."""
    with store_at(tmp_path_factory.mktemp("summed")) as store:
        filler = Filler(store, make)
        filler.experiment("exp-1", "snap", 12, 1)
        scores = []

        def score(metric: str, place: int, **fields: Any) -> None:
            given = {"status": "scored", "value": None if "status" in fields else 1.0}
            scores.append(filler.score("exp-1", f"q{place}", 0, metric, **given | fields))

        statuses = [status for status, count in COUNTS.items() for _ in range(count)]
        for place, status in enumerate(statuses):
            if status == "scored":
                score("every status", place, value=float(place > 1))
            else:
                score("every status", place, status=status)
        score("numbers and labels", 0, value=1.0)
        score("numbers and labels", 1, value=0.0)
        score("numbers and labels", 2, value=None, label="unclear")
        score("labels", 0, value=None, label="unclear")
        score("labels", 1, value=None, label="clear", turn=1)
        score("failed", 0, status="failed")
        score("failed", 1, status="failed")
        for metric, costs in (("known cost", (0.25, 0.5)), ("unknown cost", (0.25, None))):
            for place, cost in enumerate(costs):
                score(metric, place, cost_usd=cost, calls=2)
        score("versions", 0, value=0.0, evaluator_version="v1")
        score("versions", 0, value=1.0, evaluator_version="v2")
        score("subjects", 0)
        score("subjects", 1, value=0.0, turn=1)
        score("subjects", 2, value=0.0, subject_kind="session")
        filler.scores("exp-1", *scores)
        paid = [filler.output("exp-1", f"q{i}", 0, cost_usd=0.02, calls=1, calls_cached=0) for i in range(2)]
        reused = [filler.output("exp-1", f"q{i}", 0, cost_usd=0.0, calls=0, calls_cached=1) for i in range(2, 6)]
        store.append("outputs", "exp-1", "p", [*paid, *reused])
        yield store


def summary(store: Store, metric: str, columns: str) -> list[tuple[Any, ...]]:
    return ask(store, (f"select {columns} from metric_summary where metric = $1 order by evaluator_version", [metric]))[
        0
    ]


def test_rows_are_counted_by_status_and_missing_values_are_no_zeros(summed: Store) -> None:
    ((mean, sd, *counts),) = summary(summed, "every status", "mean, sd, scored, missing, not_applicable, sampled_out")
    assert (mean, sd) == (0.5, pytest.approx((1 / 3) ** 0.5))
    assert counts == [4, 5, 2, 1]
    assert summary(summed, "failed", "mean, scored, missing") == [(None, 0, 2)]


def test_labels_beside_numbers_do_not_count_as_scored(summed: Store) -> None:
    columns = "mean, scored, not_applicable"
    assert summary(summed, "numbers and labels", columns) == [(0.5, 2, 1)]
    assert summary(summed, "labels", columns) == [(None, 1, 0)]
    shares = ask(summed, ("select label, n, share from label_shares where metric = 'labels'", []))[0]
    assert shares == [("unclear", 1, 1.0)], "that of a turn is no run's"


def test_a_cost_with_an_unknown_part_is_unknown(summed: Store) -> None:
    assert summary(summed, "known cost", "cost_usd, calls") == [(0.75, 4)]
    assert summary(summed, "unknown cost", "cost_usd, calls") == [(None, 4)]


def test_the_cost_of_an_answer_does_not_shrink_as_the_ledger_fills(summed: Store) -> None:
    assert summary(summed, "cost", "mean, scored, not_applicable, missing") == [(0.02, 2, 4, 0)]
    costs = ask(summed, ("select value, status, count(*) from measures where metric = 'cost' group by all", []))[0]
    assert {*costs} == {(0.02, "scored", 2), (None, "not_applicable", 4)}
    page = (Path(__file__).parents[2] / "docs" / "guides" / "bi.md").read_text("utf-8")
    statement = next(text for text in page.split("```") if "cost_per_answer" in text and text.startswith("sql"))
    assert ask(summed, (f"select cost_per_answer, priced from ({statement[3:]})", []))[0] == [(0.02, 2)]


def test_versions_are_apart_and_only_whole_runs_are_averaged(summed: Store) -> None:
    assert summary(summed, "versions", "evaluator_version, mean") == [("v1", 0.0), ("v2", 1.0)]
    assert summary(summed, "subjects", "mean, scored") == [(1.0, 1)]
