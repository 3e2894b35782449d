"""Pack the small files of finished experiments. Does not load Prefect."""

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.show import VERBOSE
from evalflows.cli.terminal import echo
from evalflows.store.existing import existing_store
from evalflows.store.packing import SETTLED_S, Packed, pack


@click.command()
@VERBOSE
def compact(verbose: bool) -> None:
    """Pack the small files of finished experiments into few, for faster queries.

    Rows stay as they are, and runs and queries may go on meanwhile. Files from the last minute are left for the next
    time. Runs do this themselves when a table has 100 small files.
    """
    with one_line_errors(verbose):
        echo(_summary(pack(existing_store())))


def _summary(packed: Packed) -> str:
    if not packed.n_owner_files:
        return f"nothing to do: no two files of a table are small, finished and older than {SETTLED_S:.0f} s"
    return f"packed {packed.n_owner_files} files into {packed.n_packed_files}"
