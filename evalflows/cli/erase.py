"""Erase the texts of examples, traces or a person, or of what rules of retention say is too old.

Does not load Prefect.
"""

import getpass
import os
from collections.abc import Sequence
from typing import Any

import click

from evalflows.cli.late_commands import FORMAT, print_json, with_one_line_errors
from evalflows.cli.output import console, echo, table
from evalflows.prefect_server import OTHER_DATABASES, Home
from evalflows.prefect_texts import erase_prefect_texts
from evalflows.receiver import Folding, Journal
from evalflows.specs.errors import InputError
from evalflows.specs.retention import load_retention
from evalflows.store.erasing import Selection
from evalflows.store.retention import Erased, Retained, earlier, erase, finish, would_erase, would_retain
from evalflows.store.retention import retain as apply_rules
from evalflows.store.spool import RECEIVED, spool_folder
from evalflows.store.store import existing_store

COPIES = (
    "copies elsewhere stay: exports, reports, backups, your own specs, the model providers' (docs/reference/store.md)"
)
OWN_SERVER = (
    "{}: your own Prefect server keeps states and logs, which quote errors, and parameters with a spec's rows;"
    " `prefect flow-run delete` removes them"
)


@click.command()
@click.option("--example", "examples", multiple=True, metavar="ID", help="An example, in all snapshots.")
@click.option("--where", multiple=True, metavar="FIELD=VALUE", help="Examples with this value of a metadata field.")
@click.option("--dataset", metavar="NAME", help="Only examples of this dataset, and copies of them elsewhere.")
@click.option("--trace", "traces", multiple=True, metavar="ID", help="A production trace.")
@click.option("--session", "sessions", multiple=True, metavar="ID", help="All traces of a session.")
@click.option("--user", "users", multiple=True, metavar="ID", help="All traces of a user of the application.")
@click.option(
    "--reviewer", "reviewers", multiple=True, metavar="NAME", help="Person who labelled, approved or acknowledged."
)
@click.option("--keep", "kept", multiple=True, metavar="FIELD", help="Metadata field of the examples to keep.")
@click.option("--finish", "finishes", is_flag=True, help="Only finish erasures that were interrupted.")
@click.option("--yes", is_flag=True, help="Erase. Without it, only list what would be erased.")
@FORMAT
@with_one_line_errors
def forget(form: str, yes: bool, finishes: bool, where: Sequence[str], **named: Any) -> None:
    """Erase the texts of examples, traces or a person everywhere in the store, and keep the figures.

    Without --yes, only list what would be erased; erasing cannot be undone. For examples, their texts are erased in all
    snapshots, answers, judgements, calls, labels and traces; for a trace or a user, also the examples made from them.
    Scores, statuses, ids and versions stay, so every figure can be reproduced. The experiments must not run meanwhile.
    After an interruption, run the command again.
    """
    if finishes:
        _print([*finish(existing_store(), erase_prefect_texts)], form)
        return
    selection = Selection(where=dict(map(_pair, where)), **named)
    store = existing_store()
    if not yes:
        _print([would_erase(store, selection)], form)
        return
    # Store what a receiver that has ended had accepted, so that it is found. A running one does so itself.
    folder = spool_folder(store) / RECEIVED
    if folder.is_dir():
        journal = Journal(folder)
        Folding(store, journal).stop()
        journal.close()
    before = earlier(store, selection)
    done = erase(store, selection, who(), erase_prefect_texts)
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


def _print(done: Sequence[Erased], form: str) -> None:
    """Print what was erased, or would be."""
    if form == "json":
        print_json([_document(erased) for erased in done])
        return
    if not any(erased.rows or erased.set_aside for erased in done):
        echo("nothing to erase")
    for erased in done:
        if erased.rows:
            rows = table("table", "rows with texts")
            for name, count in erased.rows.items():
                rows.add_row(name, str(count))
            console().print(rows)
        if erased.set_aside:
            echo(f"unreadable files of lines and requests, which are erased whole: {erased.set_aside}")
        if erased.elsewhere:
            echo(f"runs in Prefect's local server that lost messages, logs, artifacts and events: {erased.elsewhere}")
        if erased.rows or erased.set_aside:
            nothing = "nothing is erased yet: --yes erases these texts for good"
            echo(nothing if erased.erasure_id is None else f"erased, as {erased.erasure_id}")
    if any(erased.rows or erased.set_aside for erased in done):
        _say_what_stays()


def _say_what_stays() -> None:
    echo(COPIES, err=True)
    for name in ("PREFECT_API_URL", *OTHER_DATABASES):
        if (url := os.environ.get(name)) and Home.here().secret_at(url) is None:
            echo(OWN_SERVER.format(name), err=True)


def _document(erased: Erased) -> dict[str, Any]:
    return {
        "erasure_id": erased.erasure_id,
        "rows": dict(erased.rows),
        "snapshots": [*erased.snapshots],
        "owners": [*erased.owners],
        "set_aside": erased.set_aside,
        "elsewhere": erased.elsewhere,
        "finished": [*erased.finished],
    }


@click.command()
@click.argument("spec", metavar="SPEC", type=click.Path())
@click.option("--yes", is_flag=True, help="Erase and remove. Without it, only list old texts and experiments.")
@FORMAT
@with_one_line_errors
def retain(spec: str, form: str, yes: bool) -> None:
    """Erase texts and remove experiments that are older than the rules of a SPEC file (YAML) allow.

    Without --yes, only list old texts and experiments; erasing and removing cannot be undone. Figures of erased texts
    stay. Baselines, decisions, comparisons, labels and the experiments that they refer to stay, and so do the newest of
    each name. Running experiments are skipped until the next time.
    """
    rules, store = load_retention(spec), existing_store()
    done = apply_rules(store, rules, who(), erase_prefect_texts) if yes else would_retain(store, rules)
    if form == "json":
        print_json([{"rule": row.rule, "rows": dict(row.rows), "experiments": [*row.experiments]} for row in done])
    else:
        _print_retained(done, yes)


def _print_retained(done: Sequence[Retained], yes: bool) -> None:
    if not any(retained.rows for retained in done):
        echo("nothing is too old")
        return
    rows = table("rule", "table", "rows", headings=1)
    for retained in done:
        for name, count in retained.rows.items():
            rows.add_row(retained.rule, name, str(count))
    console().print(rows)
    for retained in done:
        for experiment in retained.experiments:
            echo(f"{'removed' if yes else 'to remove'}: {experiment}")
    if not yes:
        echo("nothing is erased or removed yet: --yes does it for good")
    _say_what_stays()
