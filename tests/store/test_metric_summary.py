"""The summary of metrics: missing values, costs, versions and subjects."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import duckdb
import pytest
from catalog_views import rows
from full_store import Filler

from evalflows.store.catalog import connect, select
from evalflows.store.parquet import Store

STATUSES = ("scored", "failed", "not_attempted", "not_applicable", "sampled_out")


@pytest.fixture
def mixed(store: Store, filler: Filler) -> duckdb.DuckDBPyConnection:
    """One metric with every status: 4 scored (mean 0.5), 3 failed, 2 not attempted, 2 not applicable, 1 sampled out."""
    filler.experiment("exp-1", "snap", 12, 1)
    counts = {"scored": 4, "failed": 3, "not_attempted": 2, "not_applicable": 2, "sampled_out": 1}
    statuses = [status for status in STATUSES for _ in range(counts[status])]
    for i, status in enumerate(statuses):
        value = {"value": (0.0, 0.0, 1.0, 1.0)[i]} if status == "scored" else {"value": None}
        filler.scores("exp-1", filler.score("exp-1", f"q{i}", 0, "exact", status=status, **value))
    return connect(store.layout.root)


def test_every_row_is_counted_by_its_status(mixed: duckdb.DuckDBPyConnection) -> None:
    (found,) = rows(mixed, "select scored, missing, not_applicable, sampled_out from metric_summary")
    assert found == {"scored": 4, "missing": 5, "not_applicable": 2, "sampled_out": 1}
    assert sum(found.values()) == rows(mixed, "select count(*) as n from scores")[0]["n"]


def test_missing_values_do_not_count_as_zero(mixed: duckdb.DuckDBPyConnection) -> None:
    (found,) = rows(mixed, "select mean, sd from metric_summary")
    assert found["mean"] == 0.5
    assert found["sd"] == pytest.approx((1 / 3) ** 0.5)


def test_labels_beside_numbers_do_not_count_as_scored(store: Store, filler: Filler) -> None:
    filler.experiment("exp-1", "snap", 4, 1)
    for i, said in enumerate(({"value": 1.0}, {"value": 0.0}, {"value": None, "label": "unclear"})):
        for metric in ("mixed", "labels") if "label" in said else ("mixed",):
            filler.scores("exp-1", filler.score("exp-1", f"q{i}", 0, metric, status="scored", **said))
    with connect(store.layout.root) as catalog:
        found = select(catalog, "select metric, mean, scored, not_applicable from metric_summary order by 1").fetchall()
    assert found == [("labels", None, 1, 0), ("mixed", 0.5, 2, 1)]


def test_a_metric_without_scored_values_has_no_mean(store: Store, filler: Filler) -> None:
    filler.experiment("exp-1", "snap", 2, 1)
    for i in range(2):
        filler.scores("exp-1", filler.score("exp-1", f"q{i}", 0, "exact", status="failed", value=None))
    with connect(store.layout.root) as catalog:
        (found,) = rows(catalog, "select mean, scored, missing from metric_summary")
    assert found == {"mean": None, "scored": 0, "missing": 2}


def test_a_cost_with_an_unknown_part_is_unknown(store: Store, filler: Filler) -> None:
    filler.experiment("exp-1", "snap", 2, 1)
    for metric, costs in (("known", (0.25, 0.5)), ("unknown", (0.25, None))):
        for i, cost in enumerate(costs):
            filler.scores(
                "exp-1", filler.score("exp-1", f"q{i}", 0, metric, status="scored", value=1.0, cost_usd=cost, calls=2)
            )
    with connect(store.layout.root) as catalog:
        found = select(catalog, "select metric, cost_usd, calls from metric_summary order by metric").fetchall()
    assert found == [("known", 0.75, 4), ("unknown", None, 4)]


def test_versions_of_an_evaluator_are_summarized_separately(store: Store, filler: Filler) -> None:
    filler.experiment("exp-1", "snap", 1, 1)
    for version, value in (("v1", 0.0), ("v2", 1.0)):
        filler.scores(
            "exp-1", filler.score("exp-1", "q0", 0, "exact", status="scored", value=value, evaluator_version=version)
        )
    with connect(store.layout.root) as catalog:
        found = select(catalog, "select evaluator_version, mean from metric_summary order by 1").fetchall()
    assert found == [("v1", 0.0), ("v2", 1.0)]


def test_only_judgements_of_whole_runs_are_averaged(store: Store, filler: Filler) -> None:
    filler.experiment("exp-1", "snap", 1, 1)
    filler.scores("exp-1", filler.score("exp-1", "q0", 0, "exact", status="scored", value=1.0))
    filler.scores("exp-1", filler.score("exp-1", "q1", 0, "exact", status="scored", value=0.0, turn=1))
    filler.scores("exp-1", filler.score("exp-1", "q2", 0, "exact", status="scored", value=0.0, subject_kind="session"))
    with connect(store.layout.root) as catalog:
        assert rows(catalog, "select mean, scored from metric_summary") == [{"mean": 1.0, "scored": 1}]
