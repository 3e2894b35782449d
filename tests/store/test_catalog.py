"""The views: each builds on an empty store, keeps its grain on a full one, and counts what is missing."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest
from compared import Compared

from evalflows.store.catalog import connect, grain, select, view_files
from evalflows.store.parquet import Store
from evalflows.store.records import derived_id, to_json
from evalflows.store.schemas import EXPERIMENT_TABLES, TABLES, schema_of
from evalflows.store.snapshots import freeze, to_examples

Make = Callable[..., Any]
START = datetime(2026, 1, 1, tzinfo=UTC)
VIEWS = view_files()
every_view = pytest.mark.parametrize("path", VIEWS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def catalog(empty_root: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Of an empty store, to read from."""
    with connect(empty_root) as connection:
        yield connection


def rows(catalog: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    relation = select(catalog, query)
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


# An empty store


@every_view
def test_a_view_is_empty_on_an_empty_store(catalog: duckdb.DuckDBPyConnection, path: Path) -> None:
    assert catalog.execute(f"select * from {path.stem}").fetchall() == []


def test_the_views_build_on_an_empty_object_store(memory_root: str) -> None:
    with connect(memory_root) as catalog:
        for path in VIEWS:
            assert catalog.execute(f"select count(*) from {path.stem}").fetchall() == [(0,)]


@every_view
def test_the_first_line_of_a_view_states_columns_that_it_has(catalog: duckdb.DuckDBPyConnection, path: Path) -> None:
    assert set(grain(path)) <= set(catalog.sql(f"from {path.stem}").columns)


@pytest.mark.parametrize(
    "first", ["select 1", "-- One row per a", "-- one row per", "-- one row per a,b", "--one row per a"]
)
def test_a_view_without_its_grain_is_refused(tmp_path: Path, first: str) -> None:
    path = tmp_path / "view.sql"
    path.write_text(f"{first}\nselect 1 as a", encoding="utf-8")
    with pytest.raises(ValueError, match=r"view\.sql: got .* wanted '-- one row per column, column'"):
        grain(path)


def test_a_grain_may_be_explained(tmp_path: Path) -> None:
    path = tmp_path / "view.sql"
    path.write_text("-- one row per run_id, metric: which is: a judgement\nselect 1", encoding="utf-8")
    assert grain(path) == ("run_id", "metric")


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_a_view_with_its_columns_and_its_key_for_a_grain(
    catalog: duckdb.DuckDBPyConnection, table: str
) -> None:
    (path,) = [path for path in VIEWS if path.stem == table]
    relation = catalog.sql(f"from {table}")
    schema = schema_of(TABLES[table].record)
    assert relation.columns == schema.names
    assert grain(path) == TABLES[table].key
    as_json = [name for name, kind in zip(relation.columns, relation.types, strict=True) if str(kind) == "JSON"]
    assert as_json == [field.name for field in schema if field.metadata]


# A full one


def freeze_questions(store: Store, name: str, count: int) -> tuple[str, list[str]]:
    """A snapshot of so many questions, and the ids of its examples."""
    questions = [
        {"id": f"q{i}", "inputs": {"question": i}, "outputs": {"answer": i}, "split": "test"} for i in range(count)
    ]
    examples = to_examples(enumerate(questions, start=1), "rows")
    return freeze(store, examples, name=name, source="rows"), [example.example_id for example in examples]


class Filler:
    """Experiments as a run leaves them."""

    def __init__(self, store: Store, make: Make) -> None:
        self.store, self.make = store, make

    def experiment(self, identity: str, snapshot: str, n: int, repetitions: int, **fields: Any) -> None:
        planned = {"snapshot_id": snapshot, "n_examples": n, "repetitions": repetitions}
        row = self.make("experiments", experiment_id=identity, **{"name": f"name of {identity}"} | planned | fields)
        self.store.append("experiments", identity, "start", [row])

    def output(self, identity: str, example: str, repetition: int, **fields: Any) -> Any:
        of = {"experiment_id": identity, "example_id": example, "repetition": repetition}
        given = {"outputs": '{"answer":1}', "latency_s": 0.5}
        return self.make("outputs", run_id=run_id(identity, example, repetition), **given | of | fields)

    def score(self, identity: str, example: str, repetition: int, metric: str, **fields: Any) -> Any:
        run, version = run_id(identity, example, repetition), fields.get("evaluator_version", "v1")
        of = {"experiment_id": identity, "run_id": run, "example_id": example, "repetition": repetition}
        given = {"evaluator": metric, "evaluator_version": version, "cost_usd": 0.25, "calls": 1}
        score_id = derived_id(run, None, metric, version)
        return self.make("scores", score_id=score_id, subject_id=run, metric=metric, **given | of | fields)

    def scores(self, identity: str, *rows: Any) -> None:
        self.store.append("scores", identity, "p", rows)


def run_id(identity: str, example: str, repetition: int) -> str:
    return derived_id(identity, example, repetition)


@pytest.fixture
def filler(store: Store, make: Make) -> Filler:
    return Filler(store, make)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, make: Make) -> Iterator[duckdb.DuckDBPyConnection]:
    """Two snapshots under two names, a sealed experiment of two repetitions, a second version of it, one that is
    under way with doubles in its open parts, a row or two of everything else, and a comparison. It is only read."""
    store = Store(tmp_path_factory.mktemp("full"))
    first, examples = freeze_questions(store, "questions", 3)
    second, _ = freeze_questions(store, "questions", 4)
    freeze_questions(store, "others", 3)
    for identity, version in (("exp-1", "v1"), ("exp-2", "v2")):
        fill_sealed(Filler(store, make), identity, version, first, examples)
    fill_unfinished(Filler(store, make), "exp-3", second)
    for table, spec in TABLES.items():
        if store.query(f"select count(*) from source.{table}") == [(0,)]:
            for i in range(2):
                doubled = make(table, **dict.fromkeys((*spec.key, spec.owner), f"id-{i}"))
                store.append(table, f"id-{i}", "p", [doubled])
                store.append(table, f"id-{i}", "p", [doubled])
    fill_comparison(store, make)
    fill_decisions(store, make)
    fill_labels(store, make)
    with connect(store.layout.root) as connection:
        yield connection


def fill_sealed(filler: Filler, identity: str, version: str, snapshot: str, examples: list[str]) -> None:
    """Both runs of the first example failed, and so did their judgements; the others are right, good and bad."""
    store, outputs, scores = filler.store, [], []
    for example in examples:
        for repetition in range(2):
            if example == examples[0]:
                failed: dict[str, Any] = {"status": "failed", "error": "boom", "evaluator_version": version}
                nothing = {"outputs": None, "latency_s": None}
                outputs.append(filler.output(identity, example, repetition, status="failed", **nothing))
                scores += [
                    filler.score(identity, example, repetition, metric, **failed) for metric in ("exact", "tone")
                ]
            else:
                scored: dict[str, Any] = {"status": "scored", "evaluator_version": version}
                label = "good" if repetition else "bad"
                outputs.append(filler.output(identity, example, repetition))
                scores.append(filler.score(identity, example, repetition, "exact", value=1.0, **scored))
                scores.append(filler.score(identity, example, repetition, "tone", label=label, **scored))
    store.append("outputs", identity, "p", outputs)
    store.append("scores", identity, "p", scores)
    store.append("calls", identity, "p", [filler.make("calls", call_id=f"c-{identity}", experiment_id=identity)])
    store.append("limits", identity, "p", [filler.make("limits", limit_id=f"l-{identity}", experiment_id=identity)])
    filler.experiment(identity, snapshot, 3, 2, recorded_at=START)
    filler.experiment(identity, snapshot, 3, 2, state="completed", recorded_at=START + timedelta(hours=1))
    store.seal(identity, EXPERIMENT_TABLES)


def fill_unfinished(filler: Filler, identity: str, snapshot: str) -> None:
    """Begun twice; one run of four was answered, at the second of three attempts."""
    for attempt, status in enumerate(("failed", "ok", "failed")):
        if attempt < 2:
            filler.experiment(identity, snapshot, 4, 1)
        filler.store.append("outputs", identity, f"p{attempt}", [filler.output(identity, "q0", 0, status=status)])
        judged = "failed" if status == "failed" else "scored"
        filler.scores(identity, filler.score(identity, "q0", 0, "exact", status=judged))


def fill_decisions(store: Store, make: Make) -> None:
    """A gate of two rules, decided on twice, one of them compared with an approved baseline."""
    rule = {
        "rule": "non_inferiority",
        "bound": 0.1,
        "outcome": "open",
        "text": "who knows",
        "p_below": 0.5,
        "p_adjusted": 1.0,
    }
    sides = {"candidate_experiment_id": "exp-1", "baseline_experiment_id": "exp-2"}
    for number in range(2):
        identity, reasons = f"dec-{number}", to_json([rule | {"metric": metric} for metric in ("exact", "tone")])
        store.publish("decisions", identity, [make("decisions", decision_id=identity, reasons=reasons, **sides)])
        verdict = make("verdicts", verdict_id=f"v-{identity}", decision_id=identity, run_group=identity, **sides)
        store.publish("verdicts", identity, [replace(verdict, metric="exact", comparison_id=None)])
        base = make("baselines", baseline_id=f"base-{number}", name="release", experiment_id="exp-2")
        store.publish("baselines", base.baseline_id, [base])


def fill_comparison(store: Store, make: Make) -> None:
    """Two metrics of three experiments in both orders, with win rates and ratings in all and of a split."""
    compared = Compared(store, ["a", "b", "c"], ["q0", "q1"], repetitions=2, both_orders=True)
    owner, metrics, pairs = compared.comparison_id, ("preference", "tone"), [(0, 1), (0, 2), (1, 2)]
    for metric, example, repetition, pair in product(metrics, compared.examples, range(2), pairs):
        compared.judge(example, "left", "right", pair=pair, repetition=repetition, metric=metric)
    compared.write()
    for i, (metric, slice_) in enumerate(product(metrics, (None, "test"))):
        of = {"comparison_id": owner, "metric": metric, "slice": slice_}
        for j, ((left, right), controlled) in enumerate(product(pairs, (False, True))):
            between = {"candidate_experiment_id": f"exp-0{right}", "baseline_experiment_id": f"exp-0{left}"}
            of_length = {"verdict_id": f"v-{i}-{j}", "run_group": owner, "length_controlled": controlled}
            verdict = make("verdicts", **of_length, **of, **between)
            store.append("verdicts", owner, "p", [verdict])
        for j in range(3):
            rated = {"rating_id": f"r-{i}-{j}", "experiment_id": f"exp-0{j}", "method": "bradley-terry"}
            store.append("ratings", owner, "p", [make("ratings", **of, **rated)])
    for metric, bias in product(metrics, ("flip_share", "self_consistency")):
        judged = {"batch_id": owner, "subject_kind": "judge", "subject_id": metric, "name": bias}
        store.append("checks", owner, "p", [make("checks", check_id=f"{metric}-{bias}", **judged)])


def fill_labels(store: Store, make: Make) -> None:
    """Two people on a run that two experiments judged, one of them twice; and one of them on a pair."""
    for i, (labeller, at) in enumerate((("ann", START), ("ben", START), ("ann", START + timedelta(hours=1)))):
        of = {"subject_id": run_id("exp-1", "q1", 0), "experiment_id": "exp-1", "metric": "exact", "value": 1.0}
        pair = {"subject_id": "run-0-q0-0", "other_run_id": "run-1-q0-0", "metric": "preference", "label": "left"}
        for j, fields in enumerate((of, pair)):
            made = {"label_id": f"label-{i}-{j}", "batch_id": f"labels-{i}", "labeller": labeller, "recorded_at": at}
            store.append("labels", f"labels-{i}", "p", [make("labels", subject_kind="run", **made, **fields)])


@every_view
def test_a_view_keeps_its_grain_on_a_full_store(full: duckdb.DuckDBPyConnection, path: Path) -> None:
    columns, no_key = ", ".join(grain(path)), " or ".join(f"{column} is null" for column in grain(path))
    query = f"select count(*), count(distinct ({columns})), count(*) filter ({no_key}) from {path.stem}"
    ((n_rows, n_keys, n_without_key),) = full.execute(query).fetchall()
    assert n_rows > 0
    assert (n_keys, n_without_key) == (n_rows, 0)


def test_run_values_are_the_scores_of_runs_and_their_measures(full: duckdb.DuckDBPyConnection) -> None:
    found = rows(full, "select metric, evaluator, data_type, value from run_values where experiment_id = 'exp-1'")
    of_runs = "from scores where subject_kind = 'run' and turn is null and experiment_id = 'exp-1'"
    ((n_scores, n_measures),) = full.execute(
        f"select (select count(*) {of_runs}), (select count(*) from measures where experiment_id = 'exp-1')"
    ).fetchall()
    measured = [one for one in found if one["evaluator"] == "measured"]
    assert (len(found), len(measured)) == (n_scores + n_measures, n_measures)
    assert {one["metric"] for one in measured} == {"latency", "cost", "tokens", "length"}
    assert {one["data_type"] for one in measured} == {"NUMERIC"}


def test_the_unfinished_experiment_counts_each_run_once(full: duckdb.DuckDBPyConnection) -> None:
    (overview,) = rows(full, "select * from experiment_overview where experiment_id = 'exp-3'")
    found = {name: overview[name] for name in ("state", "planned", "answered", "failed", "not_attempted")}
    assert found == {"state": "running", "planned": 4, "answered": 1, "failed": 0, "not_attempted": 3}


def test_the_overview_tells_failures_from_what_was_not_attempted(full: duckdb.DuckDBPyConnection) -> None:
    (overview,) = rows(full, "select * from experiment_overview where experiment_id = 'exp-1'")
    found = {name: overview[name] for name in ("state", "planned", "answered", "failed", "not_attempted")}
    assert found == {"state": "completed", "planned": 6, "answered": 4, "failed": 2, "not_attempted": 0}
    assert overview["mean_latency_s"] == 0.5  # of the answers that there are


def test_an_experiment_without_answers_is_in_the_overview(store: Store, filler: Filler) -> None:
    filler.experiment("exp-1", "snap", 3, 2)
    with connect(store.layout.root) as catalog:
        (overview,) = rows(catalog, "from experiment_overview")
    assert (overview["answered"], overview["failed"], overview["not_attempted"]) == (0, 0, 6)
    assert overview["mean_latency_s"] is None


def test_items_stand_beside_their_question_and_their_answer(full: duckdb.DuckDBPyConnection) -> None:
    query = """select example_id, inputs->>'question' as question, outputs->>'answer' as answer, value, status, split
               from item_scores where experiment_id = 'exp-1' and metric = 'exact' and repetition = 0
               order by position"""
    found = select(full, query).fetchall()
    assert found == [
        ("q0", "0", None, None, "failed", "test"),
        ("q1", "1", "1", 1.0, "scored", "test"),
        ("q2", "2", "1", 1.0, "scored", "test"),
    ]


def test_label_shares_are_of_those_that_were_labelled(full: duckdb.DuckDBPyConnection) -> None:
    query = "select label, n, share from label_shares where experiment_id = 'exp-1' order by label"
    assert select(full, query).fetchall() == [("bad", 2, 0.5), ("good", 2, 0.5)]


def test_a_datasets_name_stands_for_its_newest_snapshot(full: duckdb.DuckDBPyConnection) -> None:
    found = select(full, "select name, n_examples, versions from datasets order by name").fetchall()
    assert found == [("others", 3, 1), ("questions", 4, 2)]


def test_a_view_shows_what_came_after_it_was_connected(store: Store, make: Make) -> None:
    with connect(store.layout.root) as catalog:
        store.append("outputs", "exp-1", "p", [make("outputs", run_id="a", experiment_id="exp-1")])
        assert catalog.execute("select run_id from outputs").fetchall() == [("a",)]
        store.seal("exp-1", ["outputs"])
        assert catalog.execute("select run_id from outputs").fetchall() == [("a",)]


def test_times_are_given_in_utc(store: Store, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    at = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
    store.append("outputs", "exp-1", "p", [make("outputs", experiment_id="exp-1", started_at=at)])
    with connect(store.layout.root) as catalog:
        ((found, text),) = catalog.execute("select started_at, started_at::text from outputs").fetchall()
    assert found == at
    assert found.utcoffset() == timedelta(0)
    assert text == "2026-03-04 05:06:07.000089+00"


# What is missing


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


def test_every_row_is_counted_as_what_it_is(mixed: duckdb.DuckDBPyConnection) -> None:
    (found,) = rows(mixed, "select scored, missing, not_applicable, sampled_out from metric_summary")
    assert found == {"scored": 4, "missing": 5, "not_applicable": 2, "sampled_out": 1}
    assert sum(found.values()) == rows(mixed, "select count(*) as n from scores")[0]["n"]


def test_a_missing_value_is_no_zero(mixed: duckdb.DuckDBPyConnection) -> None:
    (found,) = rows(mixed, "select mean, sd from metric_summary")
    assert found["mean"] == 0.5
    assert found["sd"] == pytest.approx((1 / 3) ** 0.5)


def test_a_metric_that_failed_throughout_has_no_mean(store: Store, filler: Filler) -> None:
    filler.experiment("exp-1", "snap", 2, 1)
    for i in range(2):
        filler.scores("exp-1", filler.score("exp-1", f"q{i}", 0, "exact", status="failed", value=None))
    with connect(store.layout.root) as catalog:
        (found,) = rows(catalog, "select mean, scored, missing from metric_summary")
    assert found == {"mean": None, "scored": 0, "missing": 2}


def test_a_cost_is_unknown_where_one_of_its_parts_is(store: Store, filler: Filler) -> None:
    filler.experiment("exp-1", "snap", 2, 1)
    for metric, costs in (("known", (0.25, 0.5)), ("unknown", (0.25, None))):
        for i, cost in enumerate(costs):
            filler.scores(
                "exp-1", filler.score("exp-1", f"q{i}", 0, metric, status="scored", value=1.0, cost_usd=cost, calls=2)
            )
    with connect(store.layout.root) as catalog:
        found = select(catalog, "select metric, cost_usd, calls from metric_summary order by metric").fetchall()
    assert found == [("known", 0.75, 4), ("unknown", None, 4)]


def test_two_versions_of_an_evaluator_are_not_averaged_together(store: Store, filler: Filler) -> None:
    filler.experiment("exp-1", "snap", 1, 1)
    for version, value in (("v1", 0.0), ("v2", 1.0)):
        filler.scores(
            "exp-1", filler.score("exp-1", "q0", 0, "exact", status="scored", value=value, evaluator_version=version)
        )
    with connect(store.layout.root) as catalog:
        found = select(catalog, "select evaluator_version, mean from metric_summary order by 1").fetchall()
    assert found == [("v1", 0.0), ("v2", 1.0)]


def test_judgements_of_turns_and_of_other_subjects_are_not_averaged_with_those_of_runs(
    store: Store, filler: Filler
) -> None:
    filler.experiment("exp-1", "snap", 1, 1)
    filler.scores("exp-1", filler.score("exp-1", "q0", 0, "exact", status="scored", value=1.0))
    filler.scores("exp-1", filler.score("exp-1", "q1", 0, "exact", status="scored", value=0.0, turn=1))
    filler.scores("exp-1", filler.score("exp-1", "q2", 0, "exact", status="scored", value=0.0, subject_kind="session"))
    with connect(store.layout.root) as catalog:
        assert rows(catalog, "select mean, scored from metric_summary") == [{"mean": 1.0, "scored": 1}]
