"""A DuckDB that reads only the store and writes nothing: no other files, no network, no extensions, limited memory."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from evalflows.specs.errors import InputError

MEMORY_SHARE = 0.5
"""The share of the machine's memory that a restricted query may use."""


def restrict(connection: duckdb.DuckDBPyConnection, memory_bytes: int | None = None) -> None:
    """Take every file system from a connection but those that it has registered, for good: the settings are locked.

    The views must exist already. It has no temporary folder, so a query that needs more than `memory_bytes` fails, by
    default more than half of the machine's memory.
    """
    memory = f"{MEMORY_SHARE:.0%}" if memory_bytes is None else f"{memory_bytes} bytes"
    for setting in (
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "allow_community_extensions = false",
        "temp_directory = ''",
        f"memory_limit = '{memory}'",
        "disabled_filesystems = 'LocalFileSystem'",
        "lock_configuration = true",
    ):
        connection.execute(f"set {setting}")


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
