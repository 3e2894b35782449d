"""Stores on a real S3 server."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from full_store import (
    Filler,
    fill_comparison,
    fill_decisions,
    fill_labels,
    fill_sealed,
    fill_unfinished,
    freeze_questions,
)

from evalflows.specs.errors import InputError
from evalflows.store import doctor, packing
from evalflows.store.leases import hold_lease, refuse_if_in_use
from evalflows.store.sql import connect
from evalflows.store.store import Store
from evalflows.store.views import view_files

Make = Callable[..., Any]
HOLDS = """
import sys
from evalflows.store.leases import hold_lease
from evalflows.store.store import Store
with hold_lease(Store(), "group-1", "work", wait=True):
    print("held", flush=True)
    sys.stdin.readline()
"""


def filled(store: Store, make: Make) -> Store:
    filler = Filler(store, make)
    snapshot, examples = freeze_questions(store, "questions", 3)
    for identity, version in (("exp-1", "v1"), ("exp-2", "v2")):
        fill_sealed(filler, identity, version, snapshot, examples)
    fill_unfinished(filler, "exp-3", freeze_questions(store, "more", 4)[0])
    fill_decisions(store, make)
    fill_comparison(store, make)
    store.seal("cmp-1", ["verdicts", "ratings", "checks"])  # which no run leaves open
    fill_labels(store, make)
    return store


def contents(store: Store) -> dict[str, list[str]]:
    """Return the rows of all views, without their times, and without ids that are drawn."""
    with connect(store.layout.root) as catalog:
        found = {}
        for path in view_files():
            rows = catalog.execute(f"from {path.stem}")
            described = [(name, str(kind)) for name, kind, *_ in rows.description]
            kept = [place for place, (name, kind) in enumerate(described) if "TIME" not in kind and name not in DRAWN]
            if kept:
                found[path.stem] = sorted(repr([row[place] for place in kept]) for row in rows.fetchall())
    return found


DRAWN = {"dataset_version_id", "recorded_at"}


@pytest.fixture
def on_s3(s3_root: str, make: Make) -> Store:
    return filled(Store(s3_root), make)


@pytest.mark.slow
def test_all_views_are_those_of_the_same_store_in_a_folder(
    on_s3: Store, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = contents(filled(Store(tmp_path / "folder"), make))
    assert contents(on_s3) == wanted
    assert sum(map(len, wanted.values())) > 200
    monkeypatch.setattr(packing, "SETTLED_S", -5.0)  # the clock of the server has whole seconds
    assert packing.pack(on_s3).n_packed_files > 5
    on_s3.reopen("exp-1", ["outputs", "judgements"])
    on_s3.seal("exp-1", ["outputs", "judgements"])
    assert contents(on_s3) == wanted
    damaged = [one.problem for one in doctor.examine(on_s3).findings if one.severity == "damaged"]
    assert damaged == ["the hash of its examples is not snap-1"], "the comparison's snapshot has a made-up id"
    assert not [path for path in on_s3.filesystem.find(on_s3.layout.root) if "probe" in path or "leases/" in path]


@pytest.fixture
def holding(s3_root: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_of_two_processes_one_has_the_lease(holding: subprocess.Popen[str]) -> None:
    store = Store()
    line = rf"work: in use by process {holding.pid} on "
    with pytest.raises(InputError, match=line), hold_lease(store, "group-1", "work", wait=False):
        pytest.fail("two had it")
    second = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(3)
    holding.communicate("\n", timeout=30)
    assert second.stdout and second.stdout.readline() == "held\n"
    second.communicate("\n", timeout=30)
    refuse_if_in_use(store, "group-1", "work")


@pytest.mark.slow
def test_a_large_file_is_uploaded_in_pieces(s3_root: str, make: Make) -> None:
    store = Store()
    rows = [make("outputs", run_id=f"r{i}", experiment_id="exp-1", outputs=_noise(i)) for i in range(24)]
    store.publish("outputs", "exp-1", rows)
    assert store.filesystem.size(store.layout.sealed("outputs", "exp-1")) > 12 << 20
    assert [row.outputs for row in store.read("outputs", "exp-1")] == [row.outputs for row in rows]
    store.filesystem.mirror.remove()
    assert [row.outputs for row in store.read("outputs", "exp-1")] == [row.outputs for row in rows]


def _noise(seed: int) -> str:
    return f'"{random.Random(seed).randbytes(1 << 19).hex()}"'


COUNTS = """
from evalflows.store.store import Store
for _ in range(10):
    print(Store().query("select count(*) from source.outputs")[0], flush=True)
"""


@pytest.mark.soak
def test_a_mirror_is_shared_by_processes(on_s3: Store) -> None:
    """Both read while one of them deletes the mirror again and again."""
    process = subprocess.Popen([sys.executable, "-c", COUNTS], stdout=subprocess.PIPE, text=True)
    wanted = on_s3.query("select count(*) from source.outputs")
    for _ in range(5):
        for path in on_s3.filesystem.mirror.folder.rglob("rows.parquet"):
            path.unlink(missing_ok=True)
        assert on_s3.query("select count(*) from source.outputs") == wanted
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output.splitlines() == [str(wanted[0])] * 10
