"""A marker in every place in which a text can stand is nowhere on the disk afterwards."""

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from personal import REVIEWER, SECRET, USER, files_with
from production import BEGAN, trace_id
from store_rows import make_row

from evalflows.store.doctor import examine
from evalflows.store.erasing import ERASED, STAY, Selection
from evalflows.store.manifests import NEVER_OPEN
from evalflows.store.records import Json, derived_id, to_json
from evalflows.store.retention import erase, would_erase
from evalflows.store.schemas import TABLES, is_erased
from evalflows.store.snapshots import freeze, to_examples
from evalflows.store.spool import RECEIVED, spool_folder
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id

SPECIAL = {
    ("checks", "observed"): {"partial_unexpected_list": [SECRET]},
    ("observations", "attributes"): {"input.value": SECRET, "user.id": USER, "note": SECRET},
    ("observations", "links"): [{"trace_id": "t", "attributes": {"a": SECRET}}],
}
"""Values of columns that are erased by their form."""

RUN = derived_id("exp-1", "erna", 0)
DAY = BEGAN.date().isoformat()
OF_EXPERIMENT: dict[str, Any] = {"experiment_id": "exp-1", "run_id": RUN, "example_id": "erna"}
ROWS: dict[str, list[dict[str, Any]]] = {
    "experiments": [
        {"experiment_id": "exp-1", "repetitions": 1, "evaluators": "[]", "spec": '{"labels":["declared"]}'}
    ],
    "comparison_sets": [{"comparison_id": "cmp-1", "evaluators": "[]", "reason": f"none: {SECRET}"}],
    "outputs": [OF_EXPERIMENT],
    "judgements": [
        {**OF_EXPERIMENT, "judgement_id": "s", "metric": "tone", "data_type": "CATEGORICAL"},
        {"experiment_id": "cmp-1", "subject_kind": "pair", "left_run_id": RUN, "right_run_id": "other"},
    ],
    "calls": [{"experiment_id": "exp-1", "subject_id": RUN, "call_key": "1" * 64, "reusable": True}],
    "labels": [{"batch_id": "b", "subject_id": RUN, "metric": "tone", "labeller": REVIEWER}],
    "checks": [{"batch_id": "c", "subject_kind": "snapshot"}],
    "alerts": [{"incident_id": "i", "acknowledged_by": REVIEWER}],
    "baselines": [{"baseline_id": "base", "approved_by": REVIEWER}],
    "observations": [{"day": DAY, "trace_id": trace_id("a"), "source": "otlp", "started_at": BEGAN}],
}
"""A row of each table that has columns to erase, but for examples, with what makes it one about the person."""


def texts_of(table: str) -> set[str]:
    """The columns of a table that hold texts other than the table's key and a fixed choice."""
    record, found = TABLES[table].record, set()
    hints = get_type_hints(record, include_extras=True)
    for name in (field.name for field in fields(record)):
        kinds = [one for one in get_args(hints[name]) if one is not type(None)] or [hints[name]]
        kind = hints[name] if hints[name] == Json or get_origin(hints[name]) is list else kinds[0]
        if get_origin(kind) is not Literal and kind in (str, Json, list[str]):
            found.add(name)
    return found - ids()


def ids() -> set[str]:
    """The names of keys and owners of tables."""
    return {name for table in TABLES.values() for name in (table.owner, *table.key) if name != "day"} | {"day"}


def test_every_column_of_texts_is_erased_or_stays() -> None:
    for table in TABLES:
        erased = {name for by_table in ERASED.values() for name in by_table.get(table, ())} - {"reusable", "call_key"}
        stays = {*STAY.get(table, "").split()} - ids()
        assert erased | stays | ({"call_key"} if table == "calls" else set()) == texts_of(table), table
        assert not erased & stays, table


def plant(store: Store) -> str:
    """Fill a store with rows about the person, SECRET in each column that is erased. Return the snapshot's id."""
    words = {"question": SECRET}
    example = {"id": "erna", "inputs": words, "outputs": words, "metadata": words, "attachments": words}
    snapshot = freeze(store, to_examples([(1, example)], "rows"), name="faq", source="rows")
    about = {"experiments": {"snapshot_id": snapshot}, "checks": {"subject_id": snapshot}}
    for table, rows in ROWS.items():
        hints = get_type_hints(TABLES[table].record, include_extras=True)
        of: dict[str, Any] = {}
        for name in (name for by_table in ERASED.values() for name in by_table.get(table, ())):
            is_json = Json in (hints[name], *get_args(hints[name]))
            of[name] = to_json(SPECIAL.get((table, name), {"a": SECRET})) if is_json else SECRET
        for given in rows:
            row = make_row(table, **of | given | about.get(table, {}))
            owner = getattr(row, TABLES[table].owner)
            if table in NEVER_OPEN:
                store.publish(table, owner, [row])
            else:
                store.append(table, owner, "p", [row])
    return snapshot


def test_a_marker_in_every_place_is_gone(store: Store, store_root: Path, tmp_path: Path) -> None:
    snapshot = plant(store)
    confused = to_json({"confusion": {"labels": ["fine", SECRET], "counts": [[1, 2], [3, 4]]}, "alpha": {"alpha": 0.5}})
    judge = {"batch_id": "j", "check_id": "j", "subject_kind": "judge", "observed": confused}
    store.publish("checks", "j", [make_row("checks", **judge)])
    owner = f"{evaluation_id('watch')}-{DAY}"
    of = {"experiment_id": owner, "metric": "topic", "label": SECRET, "judgement_id": "t"}
    trace = {"subject_kind": "trace", "subject_id": trace_id("a")}
    store.append("judgements", owner, "p", [make_row("judgements", **of, **trace)])
    spool = spool_folder(store)
    for path in (spool / owner / "p.damaged", spool / RECEIVED / "1.damaged", store_root / "outputs/open/x/.y.tmp"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)
        os.utime(path, (1.0, 1.0))
    for table in ROWS:
        for name in {one for by_table in ERASED.values() for one in by_table.get(table, ())} - {"reusable", "call_key"}:
            words = f"contains({name}, '{SECRET}') or contains({name}, '{REVIEWER}')"
            assert store.query(f"select count(*) from source.{table} where {words}") >= [(1,)], (table, name)
    named = Selection(examples=["erna"], users=[USER], reviewers=[REVIEWER])
    would, done = would_erase(store, named), erase(store, named, None)
    assert (would.rows, would.set_aside) == (done.rows, done.set_aside) and done.set_aside == 2
    assert done.rows.keys() == {"examples", *ROWS}
    for words in (SECRET, USER, REVIEWER):
        assert files_with(words, store_root, tmp_path) == []
    ((table,),) = store.query("select observed -> '$.confusion' from source.checks where check_id = 'j'")
    assert json.loads(table)["counts"] == [[1, 2], [3, 4]]
    assert examine(store).is_sound and is_erased(store.read("examples", snapshot)[0].inputs)


def test_labels_that_others_have_or_a_spec_names_stay_and_equal_ones_stay_equal(store: Store) -> None:
    plant(store)
    rows = [("a", RUN, "rude"), ("b", RUN, "kind"), ("c", "of another", "kind"), ("d", RUN, SECRET)]
    made = [
        make_row("labels", label_id=key, batch_id="more", subject_id=of, metric="tone", label=label)
        for key, of, label in (*rows, ("e", RUN, "declared"))
    ]
    store.publish("labels", "more", made)
    erase(store, Selection(examples=["erna"]), None)
    found = dict(store.query("select label_id, label from source.labels where batch_id = 'more'"))
    assert {key: found[key] for key in "bce"} == {"b": "kind", "c": "kind", "e": "declared"}
    assert found["a"].startswith("(erased ") and found["a"] != found["d"]
    assert store.query("select label from staging.scores") == [(found["d"],)], "judge and person agree as before"


def test_a_name_that_only_unreadable_requests_may_hold_is_erased_with_them(store: Store) -> None:
    aside = spool_folder(store) / RECEIVED / "1.damaged"
    aside.parent.mkdir(parents=True)
    aside.write_text(USER)
    assert erase(store, Selection(reviewers=[REVIEWER]), None).set_aside == 0 and aside.exists()
    done = erase(store, Selection(users=[USER]), None)
    assert (done.set_aside, dict(done.rows), aside.exists()) == (1, {}, False) and done.erasure_id
