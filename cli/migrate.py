"""Migrate a store of an older format. Does not load Prefect."""

import click

from evalflows.cli.errors import one_line_errors
from evalflows.cli.show import VERBOSE
from evalflows.cli.terminal import echo
from evalflows.store.migration import migrate as migrate_store
from evalflows.store.parquet_files import FORMAT


@click.command()
@VERBOSE
def migrate(verbose: bool) -> None:
    """Migrate a store written by an older evalflows to the format of this version.

    The store is data/store, or the folder named by EVALFLOWS_STORE. Nothing else may use it meanwhile. Run the command
    again to continue an interrupted migration.
    """
    with one_line_errors(verbose):
        written, files = migrate_store()
        if written == FORMAT:
            echo(f"nothing to do: the store has format {FORMAT}")
        else:
            echo(f"rewrote {files} files from format {written} to format {FORMAT}")
