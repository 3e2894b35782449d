"""A store and a Prefect server of a benchmark's own, which end with it."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evalflows.prefect_server import stop


@contextmanager
def own_server() -> Iterator[Path]:
    """Yield a temporary folder in which runs of the block have their store and their server."""
    with tempfile.TemporaryDirectory(prefix="evalflows-bench-") as name:
        os.environ |= {"EVALFLOWS_STORE": f"{name}/store", "EVALFLOWS_HOME": f"{name}/home"}
        try:
            yield Path(name)
        finally:
            if handlers := sys.modules.get("prefect.logging.handlers"):  # else it would try to send for half a minute
                handlers.APILogHandler().flush()
            stop()
