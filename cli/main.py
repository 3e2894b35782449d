"""The `evalflows` command. It parses, calls a flow or the catalog, and prints."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.connections import connections
from cli.dataset import dataset
from cli.errors import one_line_errors
from cli.evaluators import evaluators
from cli.look import ls, show, sql
from cli.up import deploy, up

if TYPE_CHECKING:
    from specs.experiment import ExperimentSpec

VERBOSE = click.option("--verbose", is_flag=True, help="Show Prefect's log, and the traceback of an error.")
CHANGES = click.option(
    "--set",
    "changes",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change a field of the spec, such as repetitions=3 or budget_usd=10. May be given several times.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="evalflows")
def cli() -> None:
    """Did the LLM application get better, is that real, may we release it?

    The store is data/store, or what EVALFLOWS_STORE names.
    """


@cli.command()
@click.argument("spec")
@CHANGES
@click.option("--fresh", is_flag=True, help="Pay for every model call anew.")
@VERBOSE
def run(spec: str, changes: tuple[str, ...], fresh: bool, verbose: bool) -> None:
    """Run the experiment that a SPEC file (YAML) describes."""
    from specs.experiment import load_experiment

    with one_line_errors(verbose):
        _run(load_experiment(spec, [*changes, *(["fresh=true"] if fresh else [])]), None, verbose)


@cli.command()
@click.argument("experiment")
@CHANGES
@VERBOSE
def resume(experiment: str, changes: tuple[str, ...], verbose: bool) -> None:
    """Go on with an EXPERIMENT that was broken off, and the others of the same start, where they stopped.

    With --set budget_usd=10 what the run may spend is another amount; what decides its answers cannot change.
    """
    from specs.experiment import ExperimentSpec, change_experiment
    from store.lookup import find_experiments
    from store.parquet import Store

    with one_line_errors(verbose):
        store = Store()
        (row,) = store.read("experiments", find_experiments(store, experiment)[0])
        spec = change_experiment(ExperimentSpec.model_validate_json(row.spec), changes)
        _run(spec, row.run_group, verbose)


def _run(spec: "ExperimentSpec", group: str | None, verbose: bool) -> None:
    from cli.bar import progress_bar
    from cli.look import print_experiments
    from store.records import now

    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "INFO" if verbose else "CRITICAL")
    from flows import run as run_flow  # Prefect takes seconds to import

    # Last, and when ours are loaded: a module beside the spec is found, and no folder here hides one of ours.
    sys.path.append(str(Path.cwd()))
    began = now()
    try:
        with progress_bar() as watch:
            done = run_flow(spec, group, watch)
        print_experiments(done, since=began)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"`evalflows resume {spec.name}` goes on") from None


for command in (ls, show, sql, dataset, connections, evaluators, up, deploy):
    cli.add_command(command)


def main() -> None:
    cli()


if __name__ == "__main__":
    main()
