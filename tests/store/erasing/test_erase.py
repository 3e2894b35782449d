"""Texts are erased everywhere, figures stay."""

import io
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import personal
import pyarrow.parquet as pq
import pytest
from personal import OTHER, REVIEWER, SECRET, USER, figures, files_with
from production import trace_id
from store_rows import make_row

import evalflows.store.erasing
import evalflows.store.files
import evalflows.store.packing
from evalflows.engine.spec_targets import recording_of
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError, StorageError
from evalflows.specs.target import RecordedTarget
from evalflows.store import leases
from evalflows.store.doctor import examine
from evalflows.store.erasing import Selection, Subjects, keep_plan, new_plan, plans, refuse_erased
from evalflows.store.ingest import load_dataset
from evalflows.store.leases import hold_lease
from evalflows.store.packing import pack
from evalflows.store.queries.shared_examples import shared_examples
from evalflows.store.records import to_json
from evalflows.store.retention import earlier, erase, finish, would_erase
from evalflows.store.schemas import is_erased
from evalflows.store.snapshots import freeze, load_snapshot, to_examples
from evalflows.store.spool import Spool, spool_folder
from evalflows.store.sql import connect
from evalflows.store.store import Store
from evalflows.store.views import is_mart, view_files
from evalflows.targets import NoRecordedAnswerError

ERNA = Selection(examples=["erna"], dataset="faq")


def marts(store: Store) -> dict[str, Any]:
    """The rows of all marts, without columns of texts."""
    found = {}
    with connect(store.layout.root) as catalog:
        for path in view_files():
            if is_mart(path):
                columns = [name for name, *_ in catalog.execute(f"describe main.{path.stem}").fetchall()]
                kept = [name for name in columns if name not in (*personal.TEXTS, *SHOWN)]
                quoted = ", ".join(f'"{name}"' for name in kept)
                found[path.stem] = catalog.execute(f"select {quoted} from main.{path.stem} order by all").fetchall()
    return found


SHOWN = (
    *("input", "output", "user_id", "tags", "left_outputs", "right_outputs", "left_comment", "right_comment"),
    *("baseline_comment", "people_comment", "score_metadata", "text"),
)
"""Columns of marts with texts, besides those of the tables."""


@pytest.fixture
def roots(store_root: Path) -> tuple[Path, ...]:
    return store_root, store_root.with_name("spool")


@pytest.mark.slow
@pytest.mark.parametrize("state", ["open", "packed"])
def test_an_examples_texts_are_gone_from_every_file_and_figures_stay(
    store: Store, roots: tuple[Path, ...], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    personal.fill(store, sealed=state != "open")
    if state == "packed":
        monkeypatch.setattr(evalflows.store.packing, "SETTLED_S", 0.0)
        assert pack(store).n_owner_files
    tables, views = figures(store), marts(store)
    assert files_with(SECRET, *roots)
    others = len(files_with(OTHER, *roots))
    would = would_erase(store, ERNA)
    done = erase(store, ERNA, "me")
    assert files_with(SECRET, *roots) == []
    assert len(files_with(OTHER, *roots)) == others
    once = dict.fromkeys(("checks", "comparison_sets", "examples", "experiments"), 1)
    assert dict(would.rows) == dict(done.rows) == {**once, "calls": 7, "judgements": 3, "labels": 2, "outputs": 2}
    after = figures(store)
    ((row, *_),) = (after.pop("erasures"),)
    assert {table: rows for table, rows in tables.items() if table != "erasures"} == after
    assert marts(store) == views
    assert row[0] == done.erasure_id and "erna" not in str(row)
    assert examine(store).is_sound


def test_erasing_again_changes_nothing_and_says_when_it_was(sealed: Store) -> None:
    first = erase(sealed, ERNA, None)
    before = {path: path.stat().st_mtime_ns for path in Path(sealed.layout.root).rglob("rows.parquet")}
    again = erase(sealed, ERNA, None)
    assert (again.erasure_id, dict(again.rows)) == (None, {})
    assert {path: path.stat().st_mtime_ns for path in Path(sealed.layout.root).rglob("rows.parquet")} == before
    found = earlier(sealed, ERNA)
    assert found is not None and found[0] == first.erasure_id
    assert earlier(sealed, Selection(examples=["otto"], dataset="faq")) is None


@pytest.mark.slow
def test_an_interrupted_erasure_is_finished_by_the_next(
    sealed: Store, roots: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, selection = figures(sealed), Selection(where={"customer_id": "0"})
    write, written = evalflows.store.erasing.write_file, list[int]()

    def fail(*arguments: Any, **options: Any) -> None:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(1)
        write(*arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="No space left"):
        patch.setattr(evalflows.store.erasing, "write_file", fail)
        erase(sealed, selection, None)
    assert len(plans(sealed)) == 1 and files_with(SECRET, *roots)
    assert any("plan of an erasure" in finding.problem for finding in examine(sealed).findings)
    erase(sealed, selection, None)
    assert files_with(SECRET, *roots) == [] and plans(sealed) == []
    after = figures(sealed)
    assert len(after.pop("erasures")) == 1
    assert after == {table: rows for table, rows in tables.items() if table != "erasures"}


@pytest.mark.slow
def test_a_user_and_what_was_made_of_the_traces_is_erased(production: Store, roots: tuple[Path, ...]) -> None:
    tables, views = figures(production), marts(production)
    assert files_with(USER, *roots)
    done = erase(production, Selection(users=[USER]), None)
    assert (files_with(SECRET, *roots), files_with(USER, *roots)) == ([], [])
    assert dict(done.rows) == {"calls": 1, "observations": 3, "judgements": 1}
    assert {**figures(production), "erasures": []} == tables
    assert marts(production) == views
    columns = "left(input, 10), user_id, tokens_in, cost_usd, session_id, version"
    with connect(production.layout.root) as catalog:
        rows = catalog.sql(f"select {columns} from traces order by session_id, started_at").fetchall()
    gone = ("(erased 20", None, 12, 0.5, "erna", "1.4")
    assert rows == [gone, gone, (f"{OTHER} "[:10], "otto", 12, 0.5, "otto", "1.4")]


def test_examples_and_feedback_made_of_an_erased_trace_are_erased(production: Store, roots: tuple[Path, ...]) -> None:
    for number, origin in enumerate(({"trace_id": trace_id("a")}, {"trace_ids": [trace_id("b"), trace_id("c")]})):
        row = {"id": f"e{number}", "inputs": {"question": SECRET}, "metadata": origin}
        freeze(production, to_examples([(1, row)], "rows"), name=f"of-{number}", source="production")
    label = {"subject_kind": "trace", "subject_id": trace_id("c"), "labeller": USER, "comment": SECRET, "value": 1.0}
    production.publish("labels", "feedback", [make_row("labels", batch_id="feedback", **label)])
    done = erase(production, Selection(users=[USER]), None)
    assert (done.rows["examples"], done.rows["labels"]) == (2, 1)
    assert (files_with(USER, *roots), files_with(SECRET, *roots)) == ([], [])


def test_copies_of_an_example_are_erased_and_still_the_same_inputs(store: Store, roots: tuple[Path, ...]) -> None:
    snapshots = []
    for name, other in (("faq", "x"), ("copy", "y"), ("own", "z")):
        words = "nobody's" if name == "own" else SECRET
        rows = [{"id": "1", "inputs": {"question": words}}, {"id": "2", "inputs": {"question": other}}]
        snapshots.append(freeze(store, to_examples(enumerate(rows, 1), "rows"), name=name, source="rows"))
    assert erase(store, Selection(examples=["1"], dataset="faq"), None).rows["examples"] == 2
    assert files_with(SECRET, *roots) == [] and files_with("nobody's", *roots) == ["rows.parquet"]
    rows = [make_row("experiments", snapshot_id=snapshot) for snapshot in snapshots]
    assert shared_examples(store, rows[:2]).examples.ids == ["1"]
    assert not shared_examples(store, [rows[0], rows[2]]).examples


def test_what_was_erased_is_refused_where_models_would_get_it(store: Store) -> None:
    snapshot = personal.fill(store)
    refuse_erased(store, snapshot)
    erase(store, ERNA, None)
    with pytest.raises(InputError, match=r"got an erased example \(erna\), wanted texts"):
        refuse_erased(store, snapshot)
    loaded = load_dataset(store, DatasetSpec(name="faq", sample=1))
    with pytest.raises(InputError, match="erased example") if "erna" in loaded.selected.ids else nullcontext():
        loaded.keep(store)


def test_a_snapshot_is_refused_from_the_moment_an_erasure_is_planned(store: Store) -> None:
    snapshot = personal.fill(store)
    plan = new_plan("example", "", None, Subjects(snapshots=[snapshot]))
    keep_plan(store, plan)
    with pytest.raises(InputError, match="are being erased; `evalflows forget --finish` finishes it"):
        refuse_erased(store, snapshot)
    finish(store)
    refuse_erased(store, snapshot)
    (Path(store.layout.root) / "erasing" / "torn.json").write_text("{")
    with pytest.raises(StorageError, match=r"torn.json: cannot be read; delete it and erase again"):
        finish(store)


def test_the_row_groups_of_examples_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evalflows.store.files, "ROWS_PER_GROUP", 2)
    rows = [{"id": str(i), "inputs": {"question": f"{SECRET} {i}"}} for i in range(7)]
    snapshot = freeze(store, to_examples(enumerate(rows, 1), "rows"), name="faq", source="rows")
    running = load_snapshot(store, snapshot)
    assert running[0].example_id == "0"
    monkeypatch.setattr(evalflows.store.files, "ROWS_PER_GROUP", 50_000)
    erase(store, Selection(examples=["1", "6"]), None)
    assert [row.example_id for row in running] == [str(i) for i in range(7)]
    assert [is_erased(row.inputs) for row in running.select([5, 6])] == [False, True]


def test_what_stays_of_a_reviewer_an_answer_and_metadata(sealed: Store, roots: tuple[Path, ...]) -> None:
    erase(sealed, Selection(reviewers=[REVIEWER]), None)
    assert files_with(REVIEWER, *roots) == []
    ((name, value, comment),) = sealed.query("select distinct labeller, value, comment from source.labels")
    assert name.startswith("person-") and value == 1.0 and comment.startswith("(erased ")
    erase(sealed, Selection(examples=["erna"], kept=["language"]), None)
    rows = sealed.query("select metadata ->> 'language', metadata ->> 'note' from source.examples order by example_id")
    assert rows == [("de", None), ("de", OTHER)], "fields that were to be kept"
    target = recording_of(RecordedTarget(kind="recorded", experiment="exp-1"), sealed)
    assert target.call({"example_id": "otto", "repetition": 0}).outputs == {"answer": f"{OTHER} is answered"}
    with pytest.raises(NoRecordedAnswerError, match="has no answer"):
        target.call({"example_id": "erna", "repetition": 0})


def test_what_a_killed_process_left_in_the_spool_is_erased(unsealed: Store, roots: tuple[Path, ...]) -> None:
    row = unsealed.read("outputs", "exp-1")[0]
    with pytest.MonkeyPatch.context() as patch, Spool(unsealed, "exp-1", "left") as spool:
        spool.add("outputs", row)
        (path,) = spool_folder(unsealed).glob("exp-1/*.jsonl")
        content = path.read_bytes()
        patch.setattr(Store, "append", lambda *_: None)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    assert SECRET in content.decode()
    erase(unsealed, ERNA, None)
    assert files_with(SECRET, *roots) == []


def test_what_is_running_is_refused_and_nothing_is_erased(sealed: Store, roots: tuple[Path, ...]) -> None:
    before = files_with(SECRET, *roots)
    for name in ("group-0", "cmp-1"):
        with hold_lease(sealed, name, "a run", wait=False), pytest.raises(InputError, match="in use by process"):
            erase(sealed, ERNA, None)
    assert files_with(SECRET, *roots) == before and plans(sealed) == []


def test_a_damaged_file_is_named_and_nothing_erased(sealed: Store, roots: tuple[Path, ...]) -> None:
    path = Path(sealed.layout.sealed("outputs", "exp-2"))
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    before = path.parent.parent.stat().st_mtime_ns
    for attempt in (erase, lambda sealed, selection, _: would_erase(sealed, selection)):
        with pytest.raises(StorageError, match="damaged: its content") as raised:
            attempt(Store(sealed.layout.root), ERNA, None)
        assert str(path) in str(raised.value)
    assert path.parent.parent.stat().st_mtime_ns == before and plans(sealed) == []
    assert sealed.query("select count(*) from source.erasures") == [(0,)]
    path.unlink()
    assert erase(Store(sealed.layout.root), ERNA, None).rows["judgements"] == 3


@pytest.mark.slow
def test_an_object_store_is_erased_too(memory_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "SETTLE_S", 0.01)
    store = Store(memory_root)
    personal.fill(store)
    personal.fill_production(store)
    for selection in (ERNA, Selection(users=[USER])):
        assert erase(store, selection, None).erasure_id is not None
    fs = store.filesystem
    for path in fs.find(memory_root):
        texts = pq.read_table(io.BytesIO(fs.cat_file(path))) if path.endswith(".parquet") else fs.cat_file(path)
        assert SECRET not in str(texts.to_pydict() if path.endswith(".parquet") else texts), path
    assert plans(store) == [] and examine(store).is_sound


def test_numbers_that_a_check_quotes_are_erased_and_what_it_counted_stays(store: Store) -> None:
    snapshot = personal.fill(store)
    of = {"subject_kind": "snapshot", "subject_id": snapshot}
    for number, observed in enumerate(({"partial_unexpected_list": [4711]}, {"partial_unexpected_list": []}, [1])):
        name = f"check-{number + 2}"
        row = make_row("checks", check_id=name, batch_id=name, observed=to_json(observed), message="4711", **of)
        store.publish("checks", name, [row])
    assert erase(store, ERNA, None).rows["checks"] == 2
    rows = store.query("select observed, left(message, 7) from source.checks order by check_id")
    wanted = [*[(1, "(erased")] * 2, *[(0, "4711")] * 2]
    assert [(observed.count("erased"), message) for observed, message in rows] == wanted


COMMAND = (sys.executable, "-m", "evalflows.cli.main", "forget", "--where", "customer_id=0", "--user", USER, "--yes")


@pytest.mark.slow
def test_a_killed_erasure_is_finished(store: Store, store_root: Path) -> None:
    personal.fill(store)
    personal.fill_production(store)
    before = figures(store)
    process = subprocess.Popen(COMMAND, env=os.environ.copy(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(store_root.glob("erasing/*.json")) and process.poll() is None:
        time.sleep(0.002)
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finish(Store(store_root))
    assert files_with(SECRET, store_root) == [] and plans(store) == []
    after = figures(store)
    assert len(after.pop("erasures")) == 1
    assert after == {table: rows for table, rows in before.items() if table != "erasures"}
