"""Erase the texts of examples, traces or a person. Does not load Prefect."""

import getpass
from collections.abc import Sequence
from typing import Any

import click

from evalflows.cli.documents import FORMAT, print_json
from evalflows.cli.errors import one_line_errors
from evalflows.cli.show import VERBOSE
from evalflows.cli.tables import table
from evalflows.cli.terminal import console, echo
from evalflows.receiver.folding import Folding
from evalflows.receiver.journal import Journal
from evalflows.specs.errors import InputError
from evalflows.store.erasing.erase import Erased, earlier, erase, finish, would_erase
from evalflows.store.erasing.selection import Selection
from evalflows.store.existing import existing_store
from evalflows.store.parquet import Store
from evalflows.store.spool import RECEIVED, spool_folder

COPIES = (
    "copies elsewhere stay: exports, reports, Prefect's database and logs, backups, the model providers'"
    " (docs/store.md)"
)


@click.command()
@click.option("--example", "examples", multiple=True, metavar="ID", help="An example, in all snapshots.")
@click.option("--where", multiple=True, metavar="FIELD=VALUE", help="Examples with this value of a metadata field.")
@click.option("--dataset", metavar="NAME", help="Only examples of this dataset, and copies of them elsewhere.")
@click.option("--trace", "traces", multiple=True, metavar="ID", help="A production trace.")
@click.option("--session", "sessions", multiple=True, metavar="ID", help="All traces of a session.")
@click.option("--user", "users", multiple=True, metavar="ID", help="All traces of a user of the application.")
@click.option(
    "--reviewer", "reviewers", multiple=True, metavar="NAME", help="Who labelled, approved or acknowledged: the name."
)
@click.option("--keep", "kept", multiple=True, metavar="FIELD", help="A metadata field of the examples that stays.")
@click.option("--finish", "finishes", is_flag=True, help="Only finish erasures that were interrupted.")
@click.option("--yes", is_flag=True, help="Erase. Without it, only say what would be erased.")
@FORMAT
@VERBOSE
def forget(form: str, verbose: bool, yes: bool, finishes: bool, where: Sequence[str], **named: Any) -> None:
    """Erase the texts of examples, traces or a person everywhere in the store, and keep the figures.

    Says what would be erased; --yes erases it, which cannot be undone. Of examples, that is their texts in all
    snapshots, answers, judgements, calls, labels and traces; of a trace or a user, also the examples made of them.
    Scores, statuses, ids and versions stay, so every figure can be made again. Nothing may run on the experiments
    meanwhile. If it was interrupted, run it again.
    """
    with one_line_errors(verbose):
        if finishes:
            _print([*finish(existing_store())], form)
            return
        selection = Selection(where=dict(map(_pair, where)), **named)
        store = existing_store()
        if not yes:
            _print([would_erase(store, selection)], form)
            return
        store_received(store)
        before = earlier(store, selection)
        done = erase(store, selection, who())
        _print([done], form)
        if before is not None and form == "table":
            echo(f"erased before, at {before[1]:%Y-%m-%d %H:%M} UTC: {before[0]}")


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not name or not found or '"' in name:
        raise InputError(f"--where: got {text!r}, wanted FIELD=VALUE")
    return name, value


def who() -> str | None:
    """Return the operating system's user; None if it has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


def store_received(store: Store) -> None:
    """Store what a receiver that has ended had accepted, so that it is found. A running one does so itself."""
    folder = spool_folder(store) / RECEIVED
    if folder.is_dir():
        journal = Journal(folder)
        Folding(store, journal).stop()
        journal.close()


def _print(done: Sequence[Erased], form: str) -> None:
    """Print what was erased, or would be."""
    if form == "json":
        print_json([_document(one) for one in done])
        return
    if not any(one.rows for one in done):
        echo("nothing to erase")
    for one in done:
        if one.rows:
            rows = table("table", "rows with texts")
            for name, count in one.rows.items():
                rows.add_row(name, str(count))
            console().print(rows)
            echo(_summary(one))
    if any(one.rows for one in done):
        echo(COPIES, err=True)


def _summary(one: Erased) -> str:
    if one.erasure_id is None:
        return "nothing is erased yet: --yes erases these texts for good"
    aside = f", and {one.set_aside} files of lines that could not be read" if one.set_aside else ""
    return f"erased, as {one.erasure_id}{aside}"


def _document(one: Erased) -> dict[str, Any]:
    return {
        "erasure_id": one.erasure_id,
        "rows": dict(one.rows),
        "snapshots": [*one.snapshots],
        "owners": [*one.owners],
        "set_aside": one.set_aside,
        "finished": [*one.finished],
    }
