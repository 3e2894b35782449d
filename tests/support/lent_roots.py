"""Roots of stores that tests have in turn: a process keeps DuckDB's views over the files below a root, and makes them
anew for each root, which takes longer than most tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evalflows.store import file_systems
from evalflows.store.damages import damages_of


class LentRoots:
    """A root is lent again as long as no test has left anything in it, nor damaged a file there."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0

    @contextmanager
    def lend(self, afterwards: Path) -> Iterator[Path]:
        """Yield a root that does not exist. What is there at the end is to be found `afterwards`."""
        root = self._folder / str(self._number) / "store"
        root.parent.mkdir(parents=True, exist_ok=True)
        yield root
        keys = [key for key in file_systems._opened if key[0] == str(root)]
        was_damaged = any(damages_of(file_systems._opened.pop(key)).version for key in keys)
        try:
            root.rename(afterwards)
        except FileNotFoundError:
            is_left = False
        except OSError:
            is_left = True
        else:
            is_left = root.exists()
        self._number += was_damaged or is_left or any(root.parent.iterdir())
