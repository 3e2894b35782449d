"""The local file system as that of a store."""

from typing import IO
from weakref import WeakSet

from fsspec.implementations.local import LocalFileSystem


class LocalFiles(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The local file system, for the files of one store."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.locked = WeakSet[IO[bytes]]()
        """The files of the leases that this process has."""
