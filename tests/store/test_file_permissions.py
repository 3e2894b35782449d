"""Files that hold texts are for their owner alone, unless the store's folder is shared."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalflows.store.spool import Spool
from evalflows.store.store import Store

Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def written(store: Store, make: Make, owner: str) -> Path:
    store.append("outputs", owner, "p", [make("outputs", run_id="a", experiment_id=owner)])
    (path,) = Path(store.layout.open_folder("outputs", owner)).glob("*.parquet")
    return path


def test_a_new_store_and_the_spool_are_private_and_files_follow_the_folder_of_a_shared_store(
    tmp_path: Path, make: Make
) -> None:
    root = tmp_path / "new"
    root.mkdir()
    root.rmdir()
    store = Store(root)
    assert mode(root) == 0o700
    assert mode(written(store, make, "exp-1")) == 0o600
    for folder_mode, file_mode in ((0o750, 0o640), (0o755, 0o644), (0o700, 0o600)):
        root.chmod(folder_mode)
        assert mode(written(store, make, f"exp-{file_mode:o}")) == file_mode
    with Spool(store, "exp-1", "p") as spool:
        spool.add("outputs", make("outputs", run_id="a", experiment_id="exp-1"))
        (path,) = (Path(os.environ["EVALFLOWS_SPOOL"]) / "exp-1").glob("*.jsonl")
        assert mode(path) == 0o600
