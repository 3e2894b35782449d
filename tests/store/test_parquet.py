"""The store's files: what is written is there, whole and once, whoever else is writing, and whatever breaks."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from dataclasses import replace

import pyarrow as pa
import pytest
from open_store import EARLY, LATE, OWNER, Make, open_parts, runs, seen

from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store

# Writing and reading


def test_appended_rows_are_read_back_as_they_were(any_store: Store, output: Make) -> None:
    row = output("a", outputs='{"text":"é"}', latency_s=0.5, tokens_in=3, started_at=EARLY, recorded_at=LATE)
    any_store.append("outputs", OWNER, "p", [row])
    assert any_store.read("outputs", OWNER) == [row]


def test_a_sealed_row_is_read_back_as_it_was(any_store: Store, output: Make) -> None:
    row = output("a", outputs='{"text":"é"}', started_at=EARLY, recorded_at=LATE)
    any_store.append("outputs", OWNER, "p", [row])
    any_store.seal(OWNER, ["outputs"])
    assert any_store.read("outputs", OWNER) == [row]


def test_an_owner_without_files_has_no_rows(store: Store) -> None:
    assert store.read("outputs", OWNER) == []
    assert not store.is_sealed("outputs", OWNER)


def test_no_rows_make_no_part(store: Store) -> None:
    store.append("outputs", OWNER, "p", [])
    assert open_parts(store) == []


def test_published_rows_are_sealed_and_replace_what_was_published_before(any_store: Store, output: Make) -> None:
    any_store.publish("outputs", OWNER, [output("a"), output("b")])
    any_store.publish("outputs", OWNER, [output("c")])
    assert any_store.is_sealed("outputs", OWNER)
    assert runs(any_store) == seen(any_store) == ["c"]


def test_an_arrow_table_is_taken_for_rows(store: Store, output: Make) -> None:
    store.publish("outputs", OWNER, [output("a")])
    store.append("outputs", OWNER, "p", pa.concat_tables(store.scan("outputs", OWNER)))
    store._fs.rm(store.layout.sealed("outputs", OWNER))
    assert runs(store) == ["a"]


def test_only_the_parts_asked_for_are_read(any_store: Store, output: Make) -> None:
    for part in ("r0-0-10", "r0-10-20", "r1-0-10"):
        any_store.append("outputs", OWNER, part, [output(part)])
    assert runs(any_store, ["r0-0-10", "r1-0-10"]) == ["r0-0-10", "r1-0-10"]
    assert runs(any_store, ["r0-0-1"]) == []


def test_a_part_written_twice_keeps_both_files(store: Store, output: Make) -> None:
    store.append("outputs", OWNER, "p", [output("a")])
    store.append("outputs", OWNER, "p", [output("b")])
    assert runs(store, ["p"]) == ["a", "b"]


def test_a_second_store_on_the_same_root_sees_the_rows(store: Store, output: Make) -> None:
    store.append("outputs", OWNER, "p", [output("a")])
    assert runs(Store(store.layout.root)) == ["a"]


# One row a key


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("success_is_later", [False, True])
def test_success_beats_failure_whichever_came_later(
    store: Store, output: Make, sealed: bool, success_is_later: bool
) -> None:
    first, second = (EARLY, LATE) if success_is_later else (LATE, EARLY)
    store.append("outputs", OWNER, "p", [output("a", status="failed", recorded_at=first)])
    store.append("outputs", OWNER, "p", [output("a", status="ok", recorded_at=second)])
    if sealed:
        store.seal(OWNER, ["outputs"])
    assert [row.status for row in store.read("outputs", OWNER)] == ["ok"]
    assert seen(store, "status") == ["ok"]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("status", ["ok", "failed"])
def test_of_equals_the_later_recorded_row_wins(store: Store, output: Make, sealed: bool, status: str) -> None:
    store.append("outputs", OWNER, "p2", [output("a", status=status, error="late", recorded_at=LATE)])
    store.append("outputs", OWNER, "p1", [output("a", status=status, error="early", recorded_at=EARLY)])
    if sealed:
        store.seal(OWNER, ["outputs"])
    assert [row.error for row in store.read("outputs", OWNER)] == ["late"]
    assert seen(store, "error") == ["late"]


@pytest.mark.parametrize("settled", ["scored", "not_applicable", "sampled_out"])
@pytest.mark.parametrize("unsettled", ["failed", "not_attempted"])
def test_a_settled_score_beats_a_later_missing_one(store: Store, score: Make, settled: str, unsettled: str) -> None:
    store.append("scores", OWNER, "p", [score("s", status=settled, recorded_at=EARLY)])
    store.append("scores", OWNER, "p", [score("s", status=unsettled, recorded_at=LATE)])
    assert [row.status for row in store.read("scores", OWNER)] == [settled]


def test_a_later_row_replaces_an_experiments_earlier_one(store: Store, make: Make) -> None:
    for state, at in (("completed", LATE), ("running", EARLY)):
        store.append("experiments", OWNER, "p", [make("experiments", experiment_id=OWNER, state=state, recorded_at=at)])
    assert [row.state for row in store.read("experiments", OWNER)] == ["completed"]


def test_rows_of_the_same_key_column_but_another_key_are_both_kept(store: Store, make: Make) -> None:
    rows = [make("examples", snapshot_id=snapshot, example_id="same") for snapshot in ("snap-1", "snap-2")]
    for row in rows:
        store.append("examples", row.snapshot_id, "p", [row])
    assert store.query("select count(*) from source.examples") == [(2,)]


# Sealing and reopening


def test_sealing_leaves_one_file_with_each_key_once(any_store: Store, output: Make) -> None:
    any_store.append("outputs", OWNER, "p", [output("a"), output("b", status="failed")])
    any_store.append("outputs", OWNER, "q", [output("b"), output("c")])
    any_store.seal(OWNER, ["outputs"])
    assert any_store.is_sealed("outputs", OWNER)
    assert open_parts(any_store) == []
    assert runs(any_store) == seen(any_store) == ["a", "b", "c"]


def test_sealing_twice_changes_nothing(any_store: Store, output: Make) -> None:
    any_store.append("outputs", OWNER, "p", [output("a")])
    any_store.seal(OWNER, ["outputs", "scores"])
    any_store.seal(OWNER, ["outputs", "scores"])
    assert runs(any_store) == seen(any_store) == ["a"]
    assert not any_store.is_sealed("scores", OWNER)  # there was nothing to seal


def test_sealing_one_owner_leaves_the_others_open(store: Store, output: Make) -> None:
    store.append("outputs", OWNER, "p", [output("a")])
    store.append("outputs", "exp-2", "p", [output("b", experiment_id="exp-2")])
    store.seal(OWNER, ["outputs"])
    assert not store.is_sealed("outputs", "exp-2")
    assert seen(store) == ["a", "b"]


def test_a_reopened_owner_takes_more_rows_and_is_sealed_again(any_store: Store, output: Make) -> None:
    any_store.append("outputs", OWNER, "p", [output("a"), output("b", status="failed", recorded_at=LATE)])
    any_store.seal(OWNER, ["outputs"])
    any_store.reopen(OWNER, ["outputs"])
    assert not any_store.is_sealed("outputs", OWNER)
    any_store.append("outputs", OWNER, "q", [output("b", recorded_at=EARLY), output("c")])
    assert runs(any_store) == seen(any_store) == ["a", "b", "c"]
    any_store.seal(OWNER, ["outputs"])
    assert runs(any_store) == seen(any_store) == ["a", "b", "c"]
    assert seen(any_store, "status") == ["ok", "ok", "ok"]


def test_rows_from_before_a_reopening_count_to_every_part(any_store: Store, output: Make) -> None:
    any_store.append("outputs", OWNER, "p", [output("a")])
    any_store.seal(OWNER, ["outputs"])
    any_store.reopen(OWNER, ["outputs"])
    any_store.append("outputs", OWNER, "q", [output("b")])
    assert runs(any_store, ["p"]) == ["a"]
    assert runs(any_store, ["q"]) == ["a", "b"]


def test_reopening_twice_or_what_was_never_sealed_changes_nothing(any_store: Store, output: Make) -> None:
    any_store.append("outputs", OWNER, "p", [output("a")])
    any_store.reopen(OWNER, ["outputs"])
    assert runs(any_store) == ["a"]
    any_store.seal(OWNER, ["outputs"])
    any_store.reopen(OWNER, ["outputs"])
    any_store.reopen(OWNER, ["outputs"])
    assert runs(any_store) == seen(any_store) == ["a"]


# Refused


def test_rows_of_another_record_are_refused(any_store: Store, score: Make) -> None:
    with pytest.raises(TypeError, match="outputs: got ScoreRow, wanted OutputRow"):
        any_store.append("outputs", OWNER, "p", [score("s")])
    assert seen(any_store) == []


@pytest.mark.parametrize("column", ["run_id", "example_id", "status", "repetition", "attempts", "recorded_at"])
def test_none_is_refused_where_there_must_be_a_value(store: Store, output: Make, column: str) -> None:
    rows = [output("a"), replace(output("b"), **{column: None})]
    with pytest.raises((TypeError, ValueError), match=column):
        store.publish("outputs", OWNER, rows)
    with pytest.raises((TypeError, ValueError), match=column):
        store.append("outputs", OWNER, "p", rows)
    assert seen(store) == []


def test_a_text_that_utf8_cannot_hold_does_not_cost_the_other_rows(store: Store, output: Make) -> None:
    torn = output("b", status="failed", error="an emoji cut in two: \ud83d")
    store.append("outputs", OWNER, "p", [output("a"), torn])
    assert [row.run_id for row in sorted(store.read("outputs", OWNER), key=lambda row: row.run_id)] == ["a", "b"]


@pytest.mark.parametrize("owner", ["", "_", "_x", ".", "..", "../x", "a/b", "/a", "a\\b", "*", "a?", "a[1]", ".hidden"])
def test_an_owner_that_is_a_path_or_a_pattern_is_refused(store: Store, output: Make, owner: str) -> None:
    for refused in (
        lambda: store.append("outputs", owner, "p", [output("a", experiment_id=owner)]),
        lambda: store.publish("outputs", owner, [output("a", experiment_id=owner)]),
        lambda: store.read("outputs", owner),
        lambda: store.seal(owner, ["outputs"]),
        lambda: store.reopen(owner, ["outputs"]),
    ):
        with pytest.raises(InputError, match="wanted an id that is valid in a file name"):
            refused()


def test_an_owner_may_be_called_almost_anything(store: Store, output: Make) -> None:
    owners = ["exp 1", "größe", "a+b", "a'b", "a,b", "a:b", "123", "007", "1e5", "NULL", "true", "2026-01-01"]
    for owner in owners:
        store.append("outputs", owner, "p", [output(f"run of {owner}", experiment_id=owner)])
    assert seen(store, "experiment_id") == sorted(owners)
    for owner in owners:
        store.seal(owner, ["outputs"])
        assert [row.experiment_id for row in store.read("outputs", owner)] == [owner]
    assert seen(store, "experiment_id") == sorted(owners)


def test_rows_of_another_owner_are_refused(any_store: Store, output: Make, make: Make) -> None:
    with pytest.raises(ValueError, match="'exp-2'"):
        any_store.append("outputs", OWNER, "p", [output("a"), output("b", experiment_id="exp-2")])
    with pytest.raises(ValueError, match="'exp-2'"):
        any_store.publish("outputs", OWNER, [output("a"), output("b", experiment_id="exp-2")])
    with pytest.raises(ValueError, match="None"):
        any_store.append("scores", OWNER, "p", [make("scores", experiment_id=None)])
    assert seen(any_store) == []


def test_an_unknown_table_is_refused(store: Store) -> None:
    with pytest.raises(KeyError, match="'nonsense'"):
        store.is_sealed("nonsense", OWNER)


HASH = "0123456789abcdef" * 2


@pytest.mark.parametrize("sealed", [False, True])
def test_of_keys_that_are_hashes_each_is_kept_once_too(any_store: Store, output: Make, sealed: bool) -> None:
    """Such keys are compared by half of their digits first."""
    near = [HASH, HASH[:-1] + "0", HASH[:16] + "f" * 16, "f" * 16 + HASH[16:]]
    any_store.append("outputs", OWNER, "a", [output(run, status="failed") for run in near[:3]])
    any_store.append("outputs", OWNER, "b", [output(near[3], status="failed")])
    assert [row.run_id for row in any_store.read("outputs", OWNER)] == near
    any_store.append("outputs", OWNER, "b", [output(near[1], status="ok")])
    if sealed:
        any_store.seal(OWNER, ["outputs"])
    found = {row.run_id: row.status for row in any_store.read("outputs", OWNER)}
    assert found == dict.fromkeys(near, "failed") | {near[1]: "ok"}
