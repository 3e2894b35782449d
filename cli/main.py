"""The `evalflows` command: parse arguments, call a flow or query the store, print the result."""

from typing import TYPE_CHECKING

import click

from evalflows.cli.backtest import backtest
from evalflows.cli.comparison import compare, print_comparison, run_comparison
from evalflows.cli.connections import connections
from evalflows.cli.dataset import dataset
from evalflows.cli.doctor import doctor
from evalflows.cli.errors import one_line_errors
from evalflows.cli.evaluators import evaluators
from evalflows.cli.export import export
from evalflows.cli.gate import baseline, explain, gate, print_decisions
from evalflows.cli.init import init
from evalflows.cli.labels import labels
from evalflows.cli.migrate import migrate
from evalflows.cli.plan import plan
from evalflows.cli.robustness import robustness
from evalflows.cli.running import prepared
from evalflows.cli.show import CHANGES, ls, print_experiments
from evalflows.cli.show import VERBOSE_RUN as VERBOSE
from evalflows.cli.sql import sql
from evalflows.cli.terminal import Commands
from evalflows.cli.up import deploy, up
from evalflows.reports.decisions import decisions_of
from evalflows.specs.errors import InputError
from evalflows.store.existing import is_store, no_experiments
from evalflows.store.layout import Layout
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import comparison_beside, find_comparison, find_experiments, is_comparison

if TYPE_CHECKING:
    from evalflows.specs.experiment import ExperimentSpec


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="evalflows")
def cli() -> None:
    """Evaluate LLM applications: did it get better, is the difference real, may we release it?

    Results are stored in data/store, or in the folder named by EVALFLOWS_STORE.
    """


@cli.command()
@click.argument("spec")
@CHANGES
@click.option("--fresh", is_flag=True, help="Do not reuse cached model calls; pay for every call.")
@VERBOSE
def run(spec: str, changes: tuple[str, ...], fresh: bool, verbose: bool) -> None:
    """Run the experiment described by a SPEC file (YAML)."""
    from evalflows.specs.experiment import load_experiment

    with one_line_errors(verbose):
        _run(load_experiment(spec, [*changes, *(["use_cache=false"] if fresh else [])]), None, verbose)


@cli.command()
@click.argument("experiment")
@CHANGES
@VERBOSE
def resume(experiment: str, changes: tuple[str, ...], verbose: bool) -> None:
    """Resume an interrupted EXPERIMENT, together with the other experiments of its run group, or a comparison.

    --set can change limits, such as --set budget_usd=10, but no setting that affects the answers.
    """
    from evalflows.specs.experiment import change_experiment
    from evalflows.store.row_specs import experiment_spec

    with one_line_errors(verbose):
        store = Store()
        if is_comparison(store, experiment):
            _resume_comparison(store, experiment, changes, verbose)
            return
        (row,) = store.read("experiments", find_experiments(store, experiment)[0])
        spec = change_experiment(experiment_spec(row), changes)
        _run(spec, row.run_group, verbose)


def _resume_comparison(store: Store, reference: str, changes: tuple[str, ...], verbose: bool) -> None:
    from evalflows.specs.spec_file import change_spec
    from evalflows.store.row_specs import comparison_spec

    (row,) = store.read("comparison_sets", find_comparison(store, reference))
    spec = change_spec(comparison_spec(row), changes, f"comparison {row.name!r}")
    run_comparison(spec, row.comparison_id, verbose)


def _run(spec: "ExperimentSpec", group: str | None, verbose: bool) -> None:
    with prepared(verbose, spec.name) as watch:
        from evalflows import run as run_flow
        from evalflows.llm.recorder import calls_made

        before = calls_made()
        experiment_ids = run_flow(spec, group, watch)
    print_experiments(experiment_ids, calls_made() - before)
    print_decisions(decisions_of(Store(), experiment_ids))
    if comparison := comparison_beside(Store(), experiment_ids):
        print_comparison(comparison)


@cli.command()
@click.argument("experiment")
@VERBOSE
def show(experiment: str, verbose: bool) -> None:
    """Show the results of an EXPERIMENT or a comparison, given by id, id prefix, name, or run group."""
    with one_line_errors(verbose):
        if not is_store(layout := Layout.at()):
            raise InputError(f"experiment {experiment!r}: {no_experiments(layout)}")
        store = Store()
        if is_comparison(store, experiment):
            print_comparison(find_comparison(store, experiment))
            return
        experiment_ids = find_experiments(store, experiment)
        print_experiments(experiment_ids)
        print_decisions(decisions_of(store, experiment_ids))
        if comparison := comparison_beside(store, experiment_ids):
            print_comparison(comparison)


READING = (ls, sql, dataset, export, connections, evaluators, migrate, doctor)
COMPARING = (compare, robustness, labels)
DECIDING = (gate, baseline, explain, plan, backtest)
SERVING = (up, deploy)

for command in (init, *READING, *COMPARING, *DECIDING, *SERVING):
    cli.add_command(command)


def main() -> None:
    cli()


if __name__ == "__main__":
    main()
