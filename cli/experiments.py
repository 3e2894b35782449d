"""Run, resume and show experiments."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from evalflows.cli.comparison import print_comparison, run_comparison
from evalflows.cli.errors import one_line_errors
from evalflows.cli.gate import print_decisions
from evalflows.cli.running import prepared
from evalflows.cli.show import (
    CHANGES,
    FRESH,
    STARTED_ANEW,
    VERBOSE,
    VERBOSE_RUN,
    WIDE,
    print_calls,
    print_experiments,
    print_next,
    print_worst,
)
from evalflows.cli.terminal import console, echo_error
from evalflows.reports.decisions import decisions_of
from evalflows.reports.next_step import after_experiments
from evalflows.reports.results import results_of
from evalflows.specs.errors import InputError
from evalflows.store.existing import is_store, no_experiments
from evalflows.store.layout import Layout
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import (
    comparison_beside,
    find_comparison,
    find_experiments,
    is_comparison,
    runs_named,
)

if TYPE_CHECKING:
    from evalflows.specs.experiment import ExperimentSpec


@click.command()
@click.argument("spec")
@CHANGES
@FRESH
@WIDE
@VERBOSE_RUN
def run(spec: str, changes: tuple[str, ...], fresh: bool, wide: bool, verbose: bool) -> None:
    """Run the experiment described by a SPEC file (YAML)."""
    from evalflows.specs.experiment import load_experiment

    with one_line_errors(verbose):
        loaded = load_experiment(spec, [*changes, *(STARTED_ANEW if fresh else ())])
        _run(loaded, None, verbose, wide=wide, path=spec)


@click.command()
@click.argument("experiment")
@CHANGES
@WIDE
@VERBOSE_RUN
def resume(experiment: str, changes: tuple[str, ...], wide: bool, verbose: bool) -> None:
    """Resume an interrupted EXPERIMENT or comparison.

    The other experiments of its run group are resumed too.
    --set can change limits, such as --set budget_usd=10, but no setting that affects the answers.
    """
    from evalflows.specs.experiment import change_experiment
    from evalflows.store.row_specs import experiment_spec

    with one_line_errors(verbose):
        store = Store()
        if is_comparison(store, experiment):
            _resume_comparison(store, experiment, changes, verbose, wide=wide)
            return
        (row,) = store.read("experiments", find_experiments(store, experiment)[0])
        spec = change_experiment(experiment_spec(row), changes)
        _run(spec, row.run_group, verbose, wide=wide)


def _resume_comparison(store: Store, reference: str, changes: tuple[str, ...], verbose: bool, *, wide: bool) -> None:
    from evalflows.specs.spec_file import change_spec
    from evalflows.store.row_specs import comparison_spec

    (row,) = store.read("comparison_sets", find_comparison(store, reference))
    spec = change_spec(comparison_spec(row), changes, f"comparison {row.name!r}")
    run_comparison(spec, row.comparison_id, verbose, wide=wide)


def _run(spec: "ExperimentSpec", group: str | None, verbose: bool, *, wide: bool, path: str = "SPEC") -> None:
    with prepared(verbose, spec.name) as watch:
        from evalflows import run as run_flow
        from evalflows.llm.recorder import calls_made

        before = calls_made()
        experiment_ids = run_flow(spec, group, watch)
    _print_results(experiment_ids, calls_made() - before, wide=wide, spec=path)


@click.command()
@click.argument("experiment")
@WIDE
@VERBOSE
def show(experiment: str, wide: bool, verbose: bool) -> None:
    """Show the results of an EXPERIMENT or a comparison, given by id, id prefix, name or run group."""
    with one_line_errors(verbose):
        if not is_store(layout := Layout.at()):
            raise InputError(f"experiment {experiment!r}: {no_experiments(layout)}")
        store = Store()
        if is_comparison(store, experiment):
            print_comparison(find_comparison(store, experiment), wide=wide, is_last=True)
            return
        found = find_experiments(store, experiment)
        if (runs := runs_named(store, experiment)) > 1:
            echo_error(f"the newest of {runs} runs named {experiment!r}; `evalflows ls` lists the others")
        _print_results(found, wide=wide)


def _print_results(
    experiment_ids: Sequence[str],
    made: Mapping[str | None, int] | None = None,
    *,
    wide: bool = False,
    spec: str = "SPEC",
) -> None:
    """Print the results of experiments, the decisions of their gates, the comparison beside them, the worst examples,
    and what to do next."""
    store, out = Store(), console()
    results, decisions = results_of(store, experiment_ids), decisions_of(store, experiment_ids)
    print_experiments(results, wide=wide, experiments=experiment_ids)
    if made is not None:
        print_calls(experiment_ids, made)
    print_decisions(decisions)
    compared = None
    if comparison := comparison_beside(store, experiment_ids):
        out.print()
        compared = print_comparison(comparison, wide=wide)
    print_worst(out, results, decisions)
    print_next(
        out, after_experiments(store, results, decisions, spec=spec, compared=compared, experiments=experiment_ids)
    )
