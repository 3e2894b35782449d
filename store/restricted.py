"""A DuckDB that reads only the store: no other files, no network, no extensions, and half of the memory at most."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
from fsspec import AbstractFileSystem

from evalflows.specs.errors import InputError
from evalflows.store.layout import Layout, quoted

MEMORY_SHARE = 0.5
"""The share of the machine's memory that a restricted query may use."""


def restrict(connection: duckdb.DuckDBPyConnection, layout: Layout, filesystem: Any) -> None:
    """Allow a connection to access only what is below the store's root, for good: the settings are locked.

    The views must exist already. It has no temporary folder, so a query that needs more memory fails.
    """
    roots = {layout.root}
    if not layout.is_local:  # in the form in which the file system lists its files, too
        roots.add(filesystem.unstrip_protocol(filesystem._strip_protocol(layout.root)))
    for setting in (
        f"allowed_directories = [{', '.join(map(quoted, sorted(roots)))}]",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "allow_community_extensions = false",
        "temp_directory = ''",
        f"memory_limit = '{MEMORY_SHARE:.0%}'",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"set {setting}")


class WithoutParents(AbstractFileSystem):  # type: ignore[misc]
    """A file system that refuses paths with `..`: DuckDB compares the paths of object stores as text."""

    cachable = False

    def __init__(self, filesystem: Any) -> None:
        super().__init__()
        self.protocol, self._filesystem = filesystem.protocol, filesystem

    def __getattribute__(self, name: str) -> Any:
        if name in _PASSED_ON:
            return _checked(getattr(self._filesystem, name))
        return super().__getattribute__(name)


_PASSED_ON = {"open", "glob", "exists", "isdir", "isfile", "info", "ls", "modified", "size"}


def _checked(method: Any) -> Any:
    def call(path: str, *arguments: Any, **options: Any) -> Any:
        if ".." in path.split("/"):
            raise PermissionError(f"{path}: got .., wanted a path in the store")
        return method(path, *arguments, **options)

    return call


@contextmanager
def time_limit(connection: duckdb.DuckDBPyConnection, seconds: float | None) -> Iterator[None]:
    """Interrupt the connection's query after `seconds`, and raise InputError then. None: no limit."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except duckdb.InterruptException as error:
        raise InputError(f"sql: stopped after {seconds:g} s, wanted a faster query or a longer timeout") from error
    finally:
        timer.cancel()
        timer.join()  # its thread holds the connection, which DuckDB would report as a leak if the process ended before


def memory_limit_bytes() -> int:
    """Return the memory that a restricted query may use."""
    with duckdb.connect() as connection:  # it knows the limits of containers
        connection.execute(f"set memory_limit = '{MEMORY_SHARE:.0%}'")
        ((text,),) = connection.execute("select current_setting('memory_limit')").fetchall()
    number, unit = text.split()
    return int(float(number) * 1024 ** ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"].index(unit))


def peak_memory_bytes() -> int:
    """Return the most memory that this process has used so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
