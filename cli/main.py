"""The `evalflows` command. It parses, calls a flow or the catalog, and prints."""

from typing import TYPE_CHECKING

import click

from cli.backtest import backtest
from cli.comparison import compare, print_comparison, run_comparison
from cli.connections import connections
from cli.dataset import dataset
from cli.errors import one_line_errors
from cli.evaluators import evaluators
from cli.export import export
from cli.gate import baseline, explain, gate, print_decisions
from cli.labels import labels
from cli.look import CHANGES, ls, print_experiments, sql
from cli.look import VERBOSE_RUN as VERBOSE
from cli.plan import plan
from cli.robustness import calibrate, robustness
from cli.running import prepared
from cli.up import deploy, up
from store.decisions import decisions_of
from store.lookup import comparison_beside, find_comparison, find_experiments, is_comparison
from store.parquet import Store

if TYPE_CHECKING:
    from specs.experiment import ExperimentSpec


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
    """Go on with an EXPERIMENT that was broken off, and the others of the same start, where they stopped; or with a
    comparison.

    With --set budget_usd=10 what the run may spend is another amount; what decides its answers cannot change.
    """
    from specs.experiment import ExperimentSpec, change_experiment

    with one_line_errors(verbose):
        store = Store()
        if is_comparison(store, experiment):
            _resume_comparison(store, experiment, changes, verbose)
            return
        (row,) = store.read("experiments", find_experiments(store, experiment)[0])
        spec = change_experiment(ExperimentSpec.model_validate_json(row.spec), changes)
        _run(spec, row.run_group, verbose)


def _resume_comparison(store: Store, reference: str, changes: tuple[str, ...], verbose: bool) -> None:
    from specs.comparison import ComparisonSpec
    from specs.spec_file import change_spec

    (row,) = store.read("comparison_sets", find_comparison(store, reference))
    spec = change_spec(ComparisonSpec.model_validate_json(row.spec), changes, f"comparison {row.name!r}")
    run_comparison(spec, row.comparison_id, verbose)


def _run(spec: "ExperimentSpec", group: str | None, verbose: bool) -> None:
    from store.records import now

    began = now()
    with prepared(verbose, spec.name) as watch:
        from flows import run as run_flow

        done = run_flow(spec, group, watch)
    print_experiments(done, since=began)
    print_decisions(decisions_of(Store(), done))
    if comparison := comparison_beside(Store(), done):
        print_comparison(comparison)


@cli.command()
@click.argument("experiment")
@VERBOSE
def show(experiment: str, verbose: bool) -> None:
    """Show how an EXPERIMENT or a comparison came out: its id, the beginning of one, its name, or a run group."""
    with one_line_errors(verbose):
        store = Store()
        if is_comparison(store, experiment):
            print_comparison(find_comparison(store, experiment))
            return
        done = find_experiments(store, experiment)
        print_experiments(done)
        print_decisions(decisions_of(store, done))
        if comparison := comparison_beside(store, done):
            print_comparison(comparison)


LOOKING = (ls, sql, dataset, export, connections, evaluators)
COMPARING = (compare, robustness, calibrate, labels)
DECIDING = (gate, baseline, explain, plan, backtest)
SERVING = (up, deploy)

for command in (*LOOKING, *COMPARING, *DECIDING, *SERVING):
    cli.add_command(command)


def main() -> None:
    cli()


if __name__ == "__main__":
    main()
