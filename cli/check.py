"""Check the results of finished experiments. Does not load Prefect."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from evalflows.cli.documents import FORMAT, print_json
from evalflows.cli.errors import INCOMPLETE, one_line_errors
from evalflows.cli.show import VERBOSE
from evalflows.cli.terminal import echo, shortened
from evalflows.execution.data_checks.process import pages_of
from evalflows.execution.data_checks.request import PageRequest, batch_of_results
from evalflows.execution.data_checks.results import check_results, finished, snapshot_checks
from evalflows.reports.data_checks import CheckedExperiment
from evalflows.specs.errors import InputError
from evalflows.specs.safe_text import one_line
from evalflows.store.existing import existing_store
from evalflows.store.exports.whole_files import write_whole
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import find_experiments, newest_finished
from evalflows.store.records import ExperimentRow


@click.command()
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--docs", metavar="FOLDER", help="Write Data Docs too: a page per experiment and per snapshot.")
@FORMAT
@VERBOSE
def check(experiments: tuple[str, ...], docs: str | None, form: str, verbose: bool) -> None:
    """Check the outputs and scores of finished EXPERIMENTS with Great Expectations; by default, of the newest run.

    Each planned run has its output and its scores, each score its run, and values are in range. A line names what does
    not hold, with rows for which it does not. Exit code 0: no error, at most warnings; 4: an error.
    """
    with one_line_errors(verbose):
        store = existing_store()
        rows = _rows(store, experiments)
        checked = _checked(store, rows)
        if form == "json":
            print_json({"experiments": [one.document() for one in checked]})
        for one in checked if form == "table" else ():
            for line in [one.summary, *one.lines()]:
                echo(shortened(one_line(line)))
        if docs is not None:
            for path in _write_docs(store, rows, Path(docs)):
                echo(one_line(f"wrote {path}"), err=form == "json")
        if any(one.errors for one in checked):
            sys.exit(INCOMPLETE)


def _rows(store: Store, references: Sequence[str]) -> list[ExperimentRow]:
    found = [identity for reference in references for identity in find_experiments(store, reference)]
    return [finished(store, identity) for identity in dict.fromkeys(found or newest_finished(store))]


def _checked(store: Store, rows: Sequence[ExperimentRow]) -> list[CheckedExperiment]:
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
    titles: dict[str, str] = {}
    files: dict[str, Path] = {}
    for row in rows:
        of_results, of_snapshot = batch_of_results(row), snapshot_checks(store, row.snapshot_id)
        titles[of_results] = f"{row.name} ({row.experiment_id})"
        titles[of_snapshot] = f"dataset {row.dataset_name or row.snapshot_id}"
        files |= {of_results: folder / f"{row.experiment_id}.html", of_snapshot: folder / f"{row.snapshot_id}.html"}
    for batch, page in pages_of(PageRequest(root=store.layout.root, titles=titles)).items():
        write_whole(files[batch], page)
    return [*files.values()]
