"""Check stored outputs and scores against expectations."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalflows.cli.late_commands import FORMAT, INCOMPLETE, print_json, with_one_line_errors
from evalflows.cli.output import echo, shortened
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import one_line
from evalflows.store.exports import write_whole
from evalflows.store.queries.lookup import find_experiments, newest_finished
from evalflows.store.records import ExperimentRow
from evalflows.store.store import Store, existing_store

if TYPE_CHECKING:
    from evalflows.reports.checks import CheckedExperiment


@click.command()
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--docs", metavar="FOLDER", help="Write Data Docs too: a page per experiment and per snapshot.")
@FORMAT
@with_one_line_errors
def check(experiments: tuple[str, ...], docs: str | None, form: str) -> None:
    """Check the outputs and scores of finished EXPERIMENTS; by default, of the newest run.

    Each planned run must have its output and its scores, each score its run, and values must be in range. A line names
    each violated expectation, with rows. Exit code 0: no errors, at most warnings; 4: errors.
    """
    store = existing_store()
    rows = _rows(store, experiments)
    checked = _checked(store, rows)
    if form == "json":
        print_json({"experiments": [result.document() for result in checked]})
    for result in checked if form == "table" else ():
        for line in [result.summary, *result.lines()]:
            echo(shortened(one_line(line)))
    if docs is not None:
        for path in _write_docs(store, rows, Path(docs)):
            echo(one_line(f"wrote {path}"), err=form == "json")
    if any(result.errors for result in checked):
        sys.exit(INCOMPLETE)


def _rows(store: Store, references: Sequence[str]) -> list[ExperimentRow]:
    from evalflows.data_checks.checks import row_of_finished  # late: other commands do without the checks

    found = [identity for reference in references for identity in find_experiments(store, reference)]
    return [row_of_finished(store, identity) for identity in dict.fromkeys(found or newest_finished(store))]


def _checked(store: Store, rows: Sequence[ExperimentRow]) -> "list[CheckedExperiment]":
    from evalflows.data_checks.checks import check_results
    from evalflows.reports.checks import CheckedExperiment

    checks = check_results(store, rows)
    return [
        CheckedExperiment(experiment_id=row.experiment_id, name=row.name, checks=checks[row.experiment_id])
        for row in rows
    ]


def _write_docs(store: Store, rows: Sequence[ExperimentRow], folder: Path) -> list[Path]:
    """Write a page per experiment and per snapshot. Raise InputError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made a folder: {error.strerror or error}") from error
    from evalflows.data_checks.checks import results_batch, snapshot_checks
    from evalflows.data_checks.data_docs import page_of  # late: Great Expectations takes seconds

    pages: dict[Path, str] = {}
    for row in rows:
        of_results, of_snapshot = results_batch(row), snapshot_checks(store, row.snapshot_id)
        title = f"dataset {row.dataset_name or row.snapshot_id}"
        pages[folder / f"{row.experiment_id}.html"] = page_of(
            f"{row.name} ({row.experiment_id})", store.read("checks", of_results)
        )
        pages[folder / f"{row.snapshot_id}.html"] = page_of(title, store.read("checks", of_snapshot))
    for path, page in pages.items():
        write_whole(path, page)
    return [*pages]
