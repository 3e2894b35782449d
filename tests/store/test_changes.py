"""Pairs of experiments, and how each example changed between the two."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import product
from typing import Any

import duckdb
import pytest
from catalog_views import rows
from full_store import START, Filler, Make, freeze_questions

from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.records import to_json
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.sql import ask, connect, select_from
from evalflows.store.store import Store

Given = Mapping[str, Sequence[Any]]
"""Each example's results in its repetitions: a number, a label, or a status."""

STATUSES = ("failed", "not_attempted", "not_applicable", "sampled_out")
SPEC = to_json({"metrics": {"errors": {"higher_is_better": False}, "latency": {"higher_is_better": True}}})


def fields_of(result: Any) -> dict[str, Any]:
    if result in STATUSES:
        return {"status": result}
    return {"status": "scored", "label" if isinstance(result, str) else "value": result}


def judge(filler: Filler, identity: str, metric: str, version: str, given: Given) -> None:
    found = [
        filler.score(identity, example, repetition, metric, evaluator_version=version, **fields_of(result))
        for example, results in given.items()
        for repetition, result in enumerate(results)
    ]
    filler.store.append("judgements", identity, f"{metric}-{version}", found)


def begin(filler: Filler, identity: str, snapshot: str, day: int, **fields: Any) -> None:
    at = START + timedelta(days=day)
    given = {"name": "bot", "dataset_name": "questions", "state": "completed", "spec": SPEC, "run_group": identity}
    times = {"started_at": at, "recorded_at": at}
    filler.experiment(identity, snapshot, 6, 2, **{**given, **times, **fields})


@pytest.fixture(scope="module")
def compared(
    tmp_path_factory: pytest.TempPathFactory, make: Make, store_at: Make
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Three runs of one name on one dataset, of which the last two have the same versions; tests only read them."""
    with store_at(tmp_path_factory.mktemp("compared")) as store:
        fill(Filler(store, make))
        with connect() as connection:
            yield connection


def fill(filler: Filler) -> None:
    store = filler.store
    snapshot, _ = freeze_questions(store, "questions", 6)
    begin(filler, "exp-1", snapshot, 0, target_version="v1")
    begin(filler, "exp-2", snapshot, 1, target_version="v2")
    begin(filler, "exp-3", snapshot, 2, target_version="v2")
    before = {"q0": [0, 0], "q1": [1, 1], "q2": [1, 0], "q3": [1, 1], "q4": [1, 1], "q5": ["not_applicable"] * 2}
    after = {"q0": [1, 0], "q1": [1, 0], "q2": [0, 1], "q3": [1, "failed"], "q5": [1, 1]}
    again = {"q0": [1, 1], "q1": [1, 0], "q2": [0, 0], "q3": [1, 1], "q4": ["failed"] * 2, "q5": ["sampled_out"] * 2}
    for identity, given in (("exp-1", before), ("exp-2", after), ("exp-3", again)):
        judge(filler, identity, "exact", "v1", given)
    judge(filler, "exp-1", "errors", "v1", {"q0": [2, 2], "q1": [0, 0]})
    judge(filler, "exp-2", "errors", "v2", {"q0": [1, 1], "q1": [0, 1]})
    judge(filler, "exp-2", "exact", "other", {"q0": [1, 1]})
    judge(filler, "exp-1", "tone", "v1", {"q0": ["good", "good"], "q1": ["bad", "good"], "q2": ["bad", "bad"]})
    judge(filler, "exp-2", "tone", "v1", {"q0": ["good", "bad"], "q1": ["good", "bad"], "q2": ["good", "good"]})
    judge(filler, "exp-3", "tone", "v1", {"q0": ["good", "good"], "q1": ["bad", "good"], "q2": ["good", "good"]})


def changed(catalog: duckdb.DuckDBPyConnection, candidate: str, metric: str, version: str = "v1") -> dict[str, Any]:
    """Each example's change, gain and reason."""
    query = f"""select example_id, change, gain, reason from changes where candidate_experiment_id = '{candidate}'
                and metric = '{metric}' and evaluator_version = '{version}'"""
    return {row["example_id"]: (row["change"], row["gain"], row["reason"]) for row in rows(catalog, query)}


def test_each_run_is_compared_with_the_previous_one_of_its_name(compared: duckdb.DuckDBPyConnection) -> None:
    columns = "candidate_experiment_id, baseline_experiment_id, relation, same_target_version"
    found = compared.execute(f"select {columns} from experiment_pairs order by 1").fetchall()
    assert found == [("exp-2", "exp-1", "previous", False), ("exp-3", "exp-2", "previous", True)]
    assert changed(compared, "exp-2", "exact") == {
        "q0": ("improved", 0.5, None),
        "q1": ("regressed", -0.5, None),
        "q2": ("same", 0.0, None),
        "q3": ("missing", 0.0, "candidate_failed"),
        "q4": ("missing", None, "candidate_not_attempted"),
        "q5": ("not_applicable", None, "baseline_not_applicable"),
    }
    assert changed(compared, "exp-3", "exact") == {  # under the same versions
        "q0": ("flipped", 0.5, None),
        "q1": ("same", 0.0, None),
        "q2": ("flipped", -0.5, None),
        "q3": ("missing", 0.0, "baseline_failed"),
        "q4": ("missing", None, "candidate_failed"),
        "q5": ("not_applicable", None, "candidate_sampled_out"),
    }


def test_an_http_application_that_does_not_say_its_version_may_have_changed(store: Store, make: Make) -> None:
    filler = Filler(store, make)
    snapshot, _ = freeze_questions(store, "questions", 1)
    for day, (identity, said) in enumerate({"exp-1": None, "exp-2": None, "exp-3": "7", "exp-4": "7"}.items()):
        begin(filler, identity, snapshot, day, target_version="v1", target_kind="http", application_version=said)
        judge(filler, identity, "exact", "v1", {"q0": [day % 2] * 2})
    with connect(store.layout.root) as catalog:
        query = "select same_version, change from changes_between('{}', '{}')"
        assert catalog.execute(query.format("exp-2", "exp-1")).fetchall() == [(None, "improved")]
        assert catalog.execute(query.format("exp-3", "exp-2")).fetchall() == [(False, "regressed")]
        assert catalog.execute(query.format("exp-4", "exp-3")).fetchall() == [(True, "flipped")]


def test_a_lower_value_may_be_a_gain_and_labels_have_no_direction(compared: duckdb.DuckDBPyConnection) -> None:
    errors = changed(compared, "exp-2", "errors", "v2")
    assert (errors["q0"], errors["q1"]) == (("improved", 1.0, None), ("regressed", -0.5, None))
    found = changed(compared, "exp-2", "tone")
    assert [found[name][0] for name in ("q0", "q1", "q2")] == ["changed", "same", "changed"]
    query = """select label, baseline_label from changes
               where candidate_experiment_id = 'exp-2' and metric = 'tone' and example_id = 'q0'"""
    assert compared.execute(query).fetchall() == [("bad / good", "good")]
    assert [changed(compared, "exp-3", "tone")[name][0] for name in ("q0", "q1", "q2")] == ["flipped", "same", "same"]


def test_the_macro_gives_the_rows_of_the_view(compared: duckdb.DuckDBPyConnection) -> None:
    for candidate, baseline in (("exp-2", "exp-1"), ("exp-3", "exp-2")):
        order = "order by metric, evaluator_version, example_id"
        of_view = f"""select * exclude (relation) from changes where candidate_experiment_id = '{candidate}'
                      and baseline_experiment_id = '{baseline}' {order}"""
        of_macro = f"select * exclude (relation) from changes_between('{candidate}', '{baseline}') {order}"
        found = compared.execute(of_macro).fetchall()
        assert found == compared.execute(of_view).fetchall()
        assert found


def test_the_macro_is_found_by_the_store_s_own_queries(store: Store, filler: Filler) -> None:
    snapshot, _ = freeze_questions(store, "questions", 6)
    for day, identity in enumerate(("exp-1", "exp-2")):
        begin(filler, identity, snapshot, day, target_version=identity)
        judge(filler, identity, "exact", "v1", {"q0": [day, day]})
    query = "select change from changes_between('exp-2', 'exp-1') where example_id = 'q0'"
    assert select_from(store, query).fetchall() == [("improved",)]
    for _ in range(2):  # once more, with all views created
        found = ask(store, ("select change from changes_between($1, $2) where example_id = 'q0'", ["exp-2", "exp-1"]))
        assert found == [[("improved",)]]


def test_only_examples_with_the_same_inputs_and_references_are_paired(store: Store, filler: Filler) -> None:
    changed_rows = [{"id": "q0", "inputs": {"question": 0}, "outputs": {"answer": 0}, "split": "test"}]
    changed_rows += [{"id": "q1", "inputs": {"question": "new"}, "outputs": {"answer": 1}, "split": "test"}]
    changed_rows += [{"id": "q2", "inputs": {"question": 2}, "outputs": {"answer": "new"}, "split": "test"}]
    old, _ = freeze_questions(store, "questions", 4)
    examples = to_examples(enumerate(changed_rows, start=1), "rows")
    new = freeze(store, examples, name="questions", source="rows")
    for day, (identity, snapshot) in enumerate((("exp-1", old), ("exp-2", new))):
        begin(filler, identity, snapshot, day)
        judge(filler, identity, "exact", "v1", {f"q{i}": [1, 1] for i in range(3)})
    assert ask(store, ("select example_id, change from changes where metric = 'exact'", [])) == [[("q0", "same")]]


def test_the_previous_run_is_a_complete_one_of_the_same_name_and_data(store: Store, filler: Filler) -> None:
    snapshot, _ = freeze_questions(store, "questions", 6)
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"name": "another"}, False),
        ({"dataset_name": "another"}, True),  # on the same snapshot
        ({"dataset_name": "another", "snapshot": "another"}, False),
        ({"state": "incomplete"}, False),
        ({"tags": ["trial"]}, False),
    ]
    for case, (fields, _) in enumerate(cases):
        begin(filler, f"exp-{case}-1", **{"snapshot": snapshot, "day": 0, "name": f"bot {case}", **fields})
        begin(filler, f"exp-{case}-2", snapshot, 1, name=f"bot {case}")
    query = "select candidate_experiment_id, baseline_experiment_id from experiment_pairs order by all"
    wanted = [(f"exp-{case}-2", f"exp-{case}-1") for case, (_, is_pair) in enumerate(cases) if is_pair]
    assert ask(store, (query, [])) == [wanted]


def test_verdicts_come_before_gates_and_gates_before_earlier_runs(store: Store, filler: Filler, make: Make) -> None:
    snapshot, _ = freeze_questions(store, "questions", 6)
    for day, identity in enumerate(("exp-1", "exp-2", "exp-3", "exp-4")):
        begin(filler, identity, snapshot, day, run_group="together" if day > 1 else identity)

    def verdict(identity: str, candidate: str, baseline: str, **fields: Any) -> Any:
        between = {"candidate_experiment_id": candidate, "baseline_experiment_id": baseline}
        given = {"run_group": "together", "comparison_id": None, "decision_id": None}
        return make("verdicts", verdict_id=identity, **{**given, **between, **fields})

    for metric in ("exact", "tone"):
        store.append("verdicts", "together", "p", [verdict(f"v-{metric}", "exp-4", "exp-3", metric=metric)])
    compared = verdict("v-2", "exp-4", "exp-1", run_group="cmp-1", comparison_id="cmp-1")
    store.append("verdicts", "cmp-1", "p", [compared])
    for number, (candidate, baseline) in enumerate((("exp-4", "exp-3"), ("exp-3", "exp-2"), ("exp-3", "exp-1"))):
        sides = {"candidate_experiment_id": candidate, "baseline_experiment_id": baseline}
        store.publish("decisions", f"dec-{number}", [make("decisions", decision_id=f"dec-{number}", **sides)])
    query = "select candidate_experiment_id, baseline_experiment_id, relation from experiment_pairs order by all"
    assert ask(store, (query, [])) == [
        [
            ("exp-2", "exp-1", "previous"),
            ("exp-3", "exp-1", "gate"),
            ("exp-3", "exp-2", "gate"),
            ("exp-4", "exp-3", "run"),
        ]
    ]


SPECS: list[dict[str, Any]] = [
    {},
    {"metrics": {"errors": {"higher_is_better": False}, "latency": {"higher_is_better": True}}},
    {"metrics": {"exact": {"range": [0, 5]}, "cost": {"margin": 0.1}, "a/b~c": {"higher_is_better": False}}},
    {"metrics": {'say "hi"': {"higher_is_better": False}, "$.x": {"higher_is_better": False}}},
    {"metrics": {"overall": {"higher_is_better": True}}, "composites": [{"name": "overall", "weights": ["exact"]}]},
]
METRICS = ("exact", "errors", "latency", "cost", "tokens", "answer_length", "overall", "exact pass@2", "a/b~c", "$.x")
METRICS += ('say "hi"',)


def test_the_direction_in_sql_is_that_of_the_spec(catalog: duckdb.DuckDBPyConnection) -> None:
    target = {"name": "t", "kind": "recorded", "path": "answers.jsonl"}
    given = {"name": "n", "dataset": {"path": "questions.jsonl"}, "targets": [target], "evaluators": ["exact_match"]}
    for declared, metric in product(SPECS, METRICS):
        spec = ExperimentSpec.model_validate({**given, **declared})
        found = catalog.execute("select higher_is_better($1::json, $2)", [spec.model_dump_json(), metric]).fetchall()
        assert found == [(spec.direction(metric).higher_is_better,)], (declared, metric)
