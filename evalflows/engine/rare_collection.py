"""Python's search for cycles of objects, made less often: otherwise it takes much of the time of calls and rules."""

import atexit
import gc
from functools import cache

MANY_OBJECTS = 50_000
"""New objects after which Python looks for cycles: after 700, as by default, it takes a tenth of the time of rules."""


def search_rarely() -> None:
    """Search for cycles less often. At the start of a process, this saves an eighth of the time of its imports."""
    gc.set_threshold(MANY_OBJECTS, *gc.get_threshold()[1:])


@cache
def collect_rarely() -> None:
    """Exclude objects that exist before the first calls from garbage collection, and collect less often.

    Prefect, DuckDB and others create so many that each full collection would stall every call for a third of a second.
    """
    gc.freeze()
    search_rarely()
    atexit.register(gc.unfreeze)  # or DuckDB reports leaks at exit
