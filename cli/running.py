"""What every command that runs a flow does around it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flows import Progress


@contextmanager
def prepared(verbose: bool, name: str) -> Iterator[Callable[["Progress"], None]]:
    """Prefect's log as it is wanted, modules of the current folder found, and a bar; flows are imported in the block,
    as Prefect takes seconds.
    """
    from cli.bar import progress_bar

    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "INFO" if verbose else "CRITICAL")
    import flows  # noqa: F401  # before the current folder is looked in

    # Last, and when ours are loaded: a module beside the spec is found, and no folder here hides one of ours.
    sys.path.append(str(Path.cwd()))
    try:
        with progress_bar() as watch:
            yield watch
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"`evalflows resume {name}` goes on") from None
