"""Copies of small tables in memory follow their files. That they have the same rows: test_catalog_full_store.py."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalflows.specs.errors import StorageError
from evalflows.store import copies, packing
from evalflows.store.schemas import TABLES
from evalflows.store.sql import ask
from evalflows.store.store import Store, sharing_answers

Make = Callable[..., Any]
NAMES = "select experiment_id, name from experiments order by all"
NAMES_OF, ORDER = "select name from experiments", " order by experiment_id"


@pytest.mark.parametrize(("limit", "most"), [("MOST_FILES", 9), ("MOST_FILES", 2), ("MOST_TEXT_BYTES", 60)])
def test_copies_follow_their_files_and_end_if_these_are_many_or_have_long_texts(
    limit: str, most: int, store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish(identity: str, name: str) -> None:
        store.publish("experiments", identity, [make("experiments", experiment_id=identity, name=name)])

    def named() -> list[tuple[str, str]]:
        return ask(store, (NAMES, []))[0]

    monkeypatch.setattr(copies, limit, most)
    for identity in ("exp-1", "exp-2"):
        publish(identity, "first")
        assert named()[-1] == (identity, "first")
    publish("exp-1", "second")
    store.append("experiments", "exp-3", "p", [make("experiments", experiment_id="exp-3", name="open")])
    assert named() == [("exp-1", "second"), ("exp-2", "first"), ("exp-3", "open")]
    store.seal("exp-3", [*TABLES])
    Path(store.layout.sealed("experiments", "exp-1")).unlink()
    assert named() == [("exp-2", "first"), ("exp-3", "open")]
    damaged = Path(store.layout.sealed("experiments", "exp-2"))
    damaged.write_bytes(b"PAR1 nonsense PAR1")
    assert named() == [("exp-3", "open")]
    publish("exp-2", "again")
    assert named() == [("exp-2", "again"), ("exp-3", "open")]


@pytest.mark.parametrize("limit", ["MOST_FILES", "MOST_TEXT_BYTES"])
def test_what_is_about_an_experiment_sees_its_rows_of_large_tables_and_all_of_others(
    limit: str, store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "MOST_BYTES", 0)  # no table is copied whole
    store.publish("experiments", "exp-1", [make("experiments", experiment_id="exp-1", name="one")])

    def answers_of(identity: str) -> list[Any]:
        return [make("outputs", experiment_id=identity, run_id=f"{identity}-{one}", outputs='"a"') for one in "ab"]

    for identity in ("exp-1", "exp-2"):
        store.publish("outputs", identity, answers_of(identity))
    query = "select run_id, name from outputs left join experiments using (experiment_id) where experiment_id = $1"
    asked = (f"{query} order by all", ["exp-1"]), ("select count(*) from outputs", []), (NAMES, [])

    def read() -> list[list[tuple[Any, ...]]]:
        with store.reading(about=["exp-1"]):
            return ask(store, *asked)

    wanted = [[("exp-1-a", "one"), ("exp-1-b", "one")], [(4,)], [("exp-1", "one")]]
    assert store.steady(read) == wanted  # they are too large as well
    monkeypatch.setattr(copies, "MOST_BYTES", 4 << 20)
    monkeypatch.setattr(copies.TableCopies, "follow", lambda *_: None)
    monkeypatch.setattr(copies, "MOST_BYTES_OF_SOME", 0)
    assert store.steady(read) == [wanted[0], [(2,)], wanted[2]]  # counted: the rows of others are not read
    with store.reading(about=["exp-1"]):
        assert ask(store, *asked)[1] == [(2,)]
        with store.reading(only={"experiment_id": ["exp-1", "exp-2"]}):
            assert ask(store, *asked) == wanted, "a question about another experiment too"
        store.reopen("exp-1", ["outputs"])
        store.append("outputs", "exp-1", "p", [make("outputs", experiment_id="exp-1", run_id="exp-1-c", outputs='"a"')])
        assert ask(store, *asked)[1] == [(3,)], "the files of the experiment are followed"
    store.publish("outputs", "exp-1", answers_of("exp-1"))
    monkeypatch.setattr(copies, limit, 0)
    assert store.steady(read) == wanted
    assert ask(store, *asked) == wanted


def test_what_only_reads_may_ask_again_for_the_rows_that_it_has_seen(store: Store, make: Make) -> None:
    def publish(name: str) -> None:
        store.publish("experiments", "exp-1", [make("experiments", experiment_id="exp-1", name=name)])

    publish("first")
    with store.reading(once=True):
        seen = ask(store, (NAMES, []))[0]
        seen.clear()  # a caller's own list
        publish("second")
        with store.reading(once=True):
            assert ask(store, (NAMES, []))[0] == [("exp-1", "first")]
        assert ask(store, (NAMES + " desc", []))[0] == [("exp-1", "second")]
    assert ask(store, (NAMES, []))[0] == [("exp-1", "second")]
    with sharing_answers():
        for name in ("third", "fourth"):
            publish(name)
            with Store(store.layout.root).reading(once=True) as other:
                assert ask(other, (NAMES, []))[0] == [("exp-1", "third")]
        assert ask(store, (NAMES, []))[0] == [("exp-1", "fourth")]


def test_questions_about_some_owners_read_their_sealed_files_alone(
    store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = "select count(*) from source.outputs where is_one_of(experiment_id, $1)"
    monkeypatch.setattr(copies, "MOST_BYTES_OF_SOME", 0)  # not of copies, which have those of earlier questions too

    def answers(*owners: str, of: str = "exp-1") -> list[Any]:
        with store.reading(only={"experiment_id": [of]}):
            return [row[0] for row in store.query(count, [[*owners]])]

    for identity in ("exp-1", "exp-2"):
        rows = [make("outputs", experiment_id=identity, run_id=f"{identity}-{one}", outputs='"a"') for one in "ab"]
        store.publish("outputs", identity, rows)
    both = "exp-1", "exp-2"
    assert answers(*both) == [2], "the rows of the other are not read"
    assert answers(*both, of="exp-9") == [0]
    with store.reading(only={"snapshot_id": ["snap-1"]}):
        assert store.query(count, [[*both]])[0][0] == 4, "answers belong to no snapshot"
    store.reopen("exp-1", ["outputs"])
    store.append("outputs", "exp-1", "p", [make("outputs", experiment_id="exp-1", run_id="exp-1-c", outputs='"a"')])
    assert answers("exp-1") == [3]
    store.seal("exp-1", ["outputs"])
    monkeypatch.setattr(packing, "SETTLED_S", 0.0)
    packing.pack(store)
    assert not Path(store.layout.sealed("outputs", "exp-1")).exists()
    with monkeypatch.context() as patch:
        patch.setattr(Store, "_read_unchanged", None)
        assert answers(*both) == [3] and answers(*both, of="exp-2") == [2], "of one packed file, only the owner's"
    assert store.steady(lambda: answers(*both) == [3]), "also within one state of the store"
    sealed = {identity: store.read("outputs", identity) for identity in both}
    with store.reading(only={"experiment_id": both}):
        assert store.query(count, [[*both]]) == [(5,)]
        store.publish("outputs", "exp-2", sealed["exp-2"][:1])
        assert store.query(count, [[*both]]) == [(4,)], "rows that were packed earlier do not count"
    assert ask(store, ("select count(*) from outputs", [])) == [[(4,)]], "nor in a copy of the table"
    monkeypatch.setattr(copies, "MOST_BYTES", 0)
    with store.reading(about=both):
        assert ask(store, ("select count(*) from outputs", [])) == [[(4,)]], "nor in one of their rows"
    monkeypatch.setattr(copies, "MOST_BYTES", 4 << 20)
    store.publish("outputs", "exp-3", [make("outputs", experiment_id="exp-3", run_id="exp-3-a", outputs='"a"')])
    assert answers("exp-3", of="exp-3") == [1]
    path = Path(store.layout.sealed("outputs", "exp-3"))
    path.write_bytes(path.read_bytes().replace(b"exp-3-a", b"exp-3-b"))
    with pytest.raises(StorageError, match="damaged"):
        answers("exp-3", of="exp-3")


@pytest.mark.parametrize("most", [32 << 20, 0])
def test_small_files_of_some_owners_are_copied_beside_those_of_others(
    most: int, store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish(identity: str, names: str) -> None:
        rows = [make("outputs", experiment_id=identity, run_id=f"{identity}-{one}", outputs='"a"') for one in names]
        store.publish("outputs", identity, rows)

    def answers(identity: str) -> int:
        with store.reading(only={"experiment_id": [identity]}):
            (((count,),),) = ask(store, ("select count(*) from outputs where experiment_id = $1", [identity]))
        return int(count)

    monkeypatch.setattr(copies, "MOST_TEXT_BYTES", most)
    publish("exp-1", "ab")
    publish("exp-2", "abc")
    monkeypatch.setattr(Store, "_read_unchanged", lambda *_, **__: pytest.fail("all files were read"))
    assert (answers("exp-1"), answers("exp-2"), answers("exp-3")) == (2, 3, 0)
    publish("exp-1", "abcd")
    assert (answers("exp-1"), answers("exp-2")) == (4, 3)
    Path(store.layout.sealed("outputs", "exp-2")).unlink()
    assert answers("exp-2") == 0
    publish("exp-2", "abc")
    monkeypatch.undo()
    publish("exp-3", "a")
    assert ask(store, ("select count(*) from outputs", [])) == [[(8,)]]


def test_a_copy_with_packed_rows_follows_owners_that_get_or_lose_a_file_of_their_own(
    store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish(identity: str, name: str) -> None:
        store.publish("experiments", identity, [make("experiments", experiment_id=identity, name=name)])

    def names() -> list[str]:
        with store.reading(only={"experiment_id": ["exp-1"]}):
            own = ask(store, (f"{NAMES_OF} where experiment_id = $1 {ORDER}", ["exp-1"]))
        return [name for (name,) in ask(store, (NAMES_OF + ORDER, []))[0] + own[0]]

    publish("exp-1", "packed")
    publish("exp-2", "other")
    monkeypatch.setattr(packing, "SETTLED_S", 0.0)
    packing.pack(store)
    assert names() == ["packed", "other", "packed"]
    publish("exp-1", "own")
    assert names() == ["own", "other", "own"]
    Path(store.layout.sealed("experiments", "exp-1")).unlink()
    assert names() == ["packed", "other", "packed"]


def test_copies_go_on_after_an_interrupt(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "own")  # of which this process has no copies yet

    def interrupted(*_: object, **__: object) -> None:
        raise RuntimeError("Query interrupted")  # as DuckDB does on Ctrl-C

    store.publish("experiments", "exp-1", [make("experiments", experiment_id="exp-1", name="one")])
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(copies.TableCopies, "_make", interrupted)
        ask(store, (NAMES, []))
    assert ask(store, (NAMES, [])) == [[("exp-1", "one")]]
