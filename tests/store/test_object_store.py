"""Object stores: their files, their mirror, and servers that know no conditions."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fake_s3 import FakeS3, Faults, fake_s3

from evalflows.specs.errors import InputError, StorageError
from evalflows.store import doctor, file_systems, leases, object_store
from evalflows.store.file_systems import readable
from evalflows.store.leases import hold_lease
from evalflows.store.object_store import ObjectFiles
from evalflows.store.queries.progress import answer_counts
from evalflows.store.small_tables import small_tables
from evalflows.store.sql import connect, select_from
from evalflows.store.store import Store

Make = Callable[..., Any]
OWNER = "exp-1"
IGNORES = "its server ignores If-None-Match and If-Match, so one process at a time may write to it"


@pytest.fixture
def objects(memory_root: str, output: Make) -> Store:
    """A store with the rows a and b of a sealed owner."""
    store = Store(memory_root)
    store.publish("outputs", OWNER, [output("a"), output("b")])
    return store


@pytest.fixture
def elsewhere(objects: Store) -> Store:
    """The same store, as a process on another machine has it."""
    store = Store(objects.layout.root)
    store._fs = ObjectFiles(
        store.layout.root, objects.filesystem._objects, object_store.Mirror.temporary_of("elsewhere")
    )
    return store


def runs(store: Store) -> list[str]:
    return [run for (run,) in store.query("select run_id from source.outputs order by 1")]


def copy_of(store: Store, path: str) -> Path:
    folder = readable(store.layout, store.filesystem).root
    return Path(path.replace(store.layout.root, folder))


# The mirror


@pytest.mark.parametrize("change", ["altered", "same length", "all removed"])
def test_a_copy_that_was_changed_is_downloaded_again(objects: Store, change: str) -> None:
    copy = copy_of(objects, objects.layout.sealed("outputs", OWNER))
    assert runs(objects) == ["a", "b"]
    body = copy.read_bytes()
    if change == "all removed":
        objects.filesystem.mirror.folder.rename(copy.parents[4] / "elsewhere")
    else:
        copy.write_bytes({"altered": b"x" + body, "same length": b"x" * len(body)}[change])
    assert runs(objects) == ["a", "b"]
    assert copy.read_bytes() == body
    assert not objects.left_out()


def test_bits_that_flipped_on_the_local_disk_are_no_damage_of_the_store(objects: Store) -> None:
    """The file has its size and its time, so only its content tells."""
    copy = copy_of(objects, path := objects.layout.sealed("outputs", OWNER))
    assert runs(objects) == ["a", "b"]
    stat, body = copy.stat(), copy.read_bytes()
    copy.write_bytes(b"x" * len(body))
    os.utime(copy, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert runs(objects) == ["a", "b"]
    assert copy.read_bytes() == body and not objects.left_out()
    assert doctor.examine(objects).is_sound
    objects.filesystem.pipe_file(path, b"x" * len(body))
    assert runs(objects) == []
    (damage,) = objects.left_out()
    assert str(damage.error).startswith(f"{path}: damaged: ")
    (finding,) = [one for one in doctor.examine(objects).findings if one.severity == "damaged"]
    assert finding.path == path


def test_what_has_gone_from_the_store_leaves_the_mirror(objects: Store, output: Make) -> None:
    objects.append("outputs", "exp-2", "p", [output("c", experiment_id="exp-2")])
    assert runs(objects) == ["a", "b", "c"]
    (part,) = objects.open_parts("outputs", "exp-2")
    objects.filesystem.rm_file(part)
    assert copy_of(objects, part).exists()
    assert runs(objects) == ["a", "b"]
    assert not copy_of(objects, part).exists()


def test_what_another_machine_writes_is_seen_by_the_next_reading(
    objects: Store, elsewhere: Store, make: Make, output: Make
) -> None:
    of_two = [make("experiments", experiment_id=f"exp-{number}", name=f"name {number}") for number in range(2)]
    names = "select name from staging.experiments order by 1"
    for number, row in enumerate(of_two):
        elsewhere.publish("experiments", row.experiment_id, [row])
        elsewhere.publish("outputs", f"other-{number}", [output(f"c{number}", experiment_id=f"other-{number}")])
        wanted = [(f"name {i}",) for i in range(number + 1)]
        with small_tables(objects) as ask:
            assert ask(names, ()) == wanted
        assert answer_counts(objects, [f"other-{number}"]) == {f"other-{number}": (1, 0)}
        assert runs(objects) == ["a", "b", *(f"c{i}" for i in range(number + 1))]
    assert select_from(objects, names).fetchall() == wanted
    with closing(connect(objects.layout.root)) as catalog:
        assert catalog.execute(names).fetchall() == wanted
    elsewhere.reopen("other-1", ["outputs"])
    elsewhere.append("outputs", "other-1", "p", [output("d", experiment_id="other-1")])
    assert sorted(row.run_id for row in objects.read("outputs", "other-1")) == ["c1", "d"]
    elsewhere.seal("other-1", ["outputs"])
    assert sorted(row.run_id for row in objects.read("outputs", "other-1")) == ["c1", "d"]
    assert runs(objects) == ["a", "b", "c0", "c1", "d"]


@pytest.mark.parametrize("last", ["cp_file", "rm"])
def test_a_reopening_that_breaks_off_loses_nothing(
    objects: Store, output: Make, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """Object stores rename nothing: the sealed file is copied, then deleted."""
    with monkeypatch.context() as patch:
        patch.setattr(ObjectFiles, last, _broken)
        with pytest.raises(StorageError, match="broken"):
            objects.reopen(OWNER, ["outputs"])
    assert runs(objects) == ["a", "b"]
    assert objects.is_sealed("outputs", OWNER)
    objects.reopen(OWNER, ["outputs"])
    assert not objects.is_sealed("outputs", OWNER) and len(objects.open_parts("outputs", OWNER)) == 1
    assert runs(objects) == ["a", "b"]


def _broken(*_: object, **__: object) -> None:
    raise OSError("broken")


def test_a_store_beyond_the_limit_is_refused(objects: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    objects.filesystem.mirror.remove()
    monkeypatch.setenv("EVALFLOWS_MIRROR_GB", "0.00001")
    with pytest.raises(StorageError, match=r"memory://evals\d+: the copy .* needs .* GB, EVALFLOWS_MIRROR_GB"):
        runs(objects)


def test_mirrors_that_were_not_used_for_the_longest_time_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALFLOWS_HOME", str(tmp_path))
    monkeypatch.setenv("EVALFLOWS_MIRROR_GB", "0.00000035")
    version = object_store.Version(100, "v")

    def download(key: str, path: Path) -> object_store.Version:
        path.write_bytes(b"x" * 100)
        return version

    names = ("old", "used", "third", "fourth")
    mirrors = {name: object_store.Mirror.of(f"s3://bucket/{name}", "") for name in names}
    for number, one in enumerate(mirrors.values()):
        with one.lock():
            one.follow({"a/b": version}, download)
        os.utime(one._lock_file, (number, number if one is not mirrors["old"] else 1000))
    there = [name for name, one in mirrors.items() if (one.folder / "a/b").exists()]
    assert there == ["old", "third", "fourth"], "`used` was not used for the longest time"
    assert (tmp_path / "mirrors").stat().st_mode & 0o077 == 0


# Roots


def test_a_plain_connection_elsewhere_is_refused_and_a_server_that_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://example.invalid:9000")
    with pytest.raises(InputError, match=r"AWS_ENDPOINT_URL: got http://example.invalid:9000, wanted https://"):
        Store("s3://bucket/x")
    monkeypatch.setattr(file_systems, "RETRY_S", 0.1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "very")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(StorageError) as raised:
        Store("s3://bucket/x")
    assert re.fullmatch(r"s3://bucket/x/evalflows.json: .* \(http://127.0.0.1:9\)", str(raised.value))
    assert "secret" not in str(raised.value) and "very" not in str(raised.value)


# Servers that know no conditions

WRITES = """
import sys
from evalflows.store.leases import hold_lease
from evalflows.store.store import Store
with hold_lease(Store(), "group-2", "work", wait=False):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.soak)], ids=["ignores", "refuses"])
def unconditional(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    monkeypatch.setattr(leases, "SETTLE_S", 0.01)
    monkeypatch.setattr(file_systems, "RETRY_S", 0.1)
    with fake_s3(refuses=request.param) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        monkeypatch.setenv("EVALFLOWS_STORE", "s3://evals/x")
        yield server


@pytest.mark.slow
def test_without_conditions_one_process_may_write(
    unconditional: FakeS3, output: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    store = Store()
    store.append("outputs", OWNER, "p", [output("a")])
    assert runs(store) == ["a"]
    assert capfd.readouterr().err == "", "reading and writing a part need no probe"
    with hold_lease(store, "group-1", "work", wait=False):
        assert capfd.readouterr().err == f"evalflows: store s3://evals/x: {IGNORES}\n"
        with hold_lease(store, "group-3", "work", wait=False):
            store.append("outputs", OWNER, "p", [output("b")])
        assert not [key for key in unconditional.objects if "probe" in key]
        second = subprocess.run([sys.executable, "-c", WRITES], capture_output=True, text=True, input="\n")
        assert "held" not in second.stdout
        line = second.stderr.splitlines()[-1]
        assert re.search(
            rf"InputError: store s3://evals/x: {IGNORES}: process {os.getpid()} on \S+, since .* does; stop", line
        )
    assert runs(store) == ["a", "b"]
    assert capfd.readouterr().err == "", "it is said once"
    store.filesystem.writer.release()
    assert not [key for key in unconditional.objects if "/leases/" in key]


def test_what_this_process_has_written_is_read_though_listings_lag(unconditional: FakeS3, output: Make) -> None:
    """Also what it removed, and what another process has removed since."""
    unconditional.lag_s = 1_000.0
    store = Store()
    for name in ("a", "b"):
        store.append("outputs", OWNER, "p", [output(name)])
    assert runs(store) == ["a", "b"]
    store.seal(OWNER, ["outputs"])
    assert runs(store) == ["a", "b"] and not store.open_parts("outputs", OWNER)
    store.reopen(OWNER, ["outputs"])
    (part,) = store.open_parts("outputs", OWNER)
    assert runs(store) == ["a", "b"]
    unconditional.change(part.removeprefix("s3://"), None)
    assert runs(store) == []


# Answers that break off, or are lost


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What happens to the next answers of the server."""
    next_ones = list[str]()
    monkeypatch.setattr(Faults, "draw", lambda _: next_ones.pop(0) if next_ones else "none")
    with fake_s3(honours=True) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        yield next_ones


def test_what_may_be_asked_for_again_is_if_its_answer_breaks_off(faults: list[str]) -> None:
    files, folder = Store("s3://evals/x").filesystem, "s3://evals/x/made"
    for name in "abc":
        files.pipe_file(f"{folder}/{name}", name.encode())
    for ask in (
        lambda: files.cp_file(f"{folder}/a", f"{folder}/d"),
        lambda: files.rm(f"{folder}/b"),
        lambda: files.rm(f"{folder}/c"),
        lambda: files.find(folder),
        lambda: files.read(f"{folder}/d"),
    ):
        faults += ["torn"] * 3
        ask()
        assert not faults
    assert files.find(folder) == [f"{folder}/a", f"{folder}/d"] and files.read(f"{folder}/d")[0] == b"a"
    faults += ["torn"] * 5
    with pytest.raises(StorageError, match=rf"^{folder}: "):
        files.find(folder)


def test_a_condition_is_not_taken_for_broken_by_a_request_whose_own_answer_was_lost(faults: list[str]) -> None:
    files, path = Store("s3://evals/x").filesystem, "s3://evals/x/a"
    faults += ["none"] * 6 + ["lost"]  # the last is the one that should replace an object
    assert files.honours_conditions() and not faults
    faults += ["lost"]
    made = files.put_if(path, b"1", None)
    faults += ["lost"]
    replaced = files.put_if(path, b"2", made)
    assert made and replaced and files.read(path) == (b"2", replaced) and not faults
    assert files.put_if(path, b"3", None) is files.put_if(path, b"3", made) is None


# Files
