"""Run, resume and show experiments. What only reads does not load Prefect."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from rich.console import Group, RenderableType

from evalflows.cli.late_commands import (
    BATCHED,
    CHANGES,
    FORMAT,
    FRESH,
    IN_BATCHES,
    STARTED_ANEW,
    VERBOSE_RUN,
    WITH_FINAL,
    Detail,
    one_line_errors,
    print_json,
    stdout_for,
    with_detail,
    with_one_line_errors,
)
from evalflows.cli.output import DECISION_STYLES, Text, console, echo, echo_error
from evalflows.cli.sections import IN_BRIEF, IN_BRIEF_SHOWN, Section, lines_section, print_sections
from evalflows.cli.show import (
    links_here,
    print_calls,
    print_examples,
    print_experiments,
    print_next,
    print_worst,
    read_final,
    results_sections,
    verdicts_section,
)
from evalflows.reports.candidates import best_of, candidates_of_gates
from evalflows.reports.decisions import decisions_of, with_limits, with_manifests
from evalflows.reports.documents import BacktestDocument, PlanDocument, document, worst_document
from evalflows.reports.experiment_report import ExperimentsReport, experiments_report, overviews_of
from evalflows.reports.markdown_pages import after_experiments
from evalflows.reports.previous_runs import earlier_runs
from evalflows.reports.results import results_of
from evalflows.reports.worst import HIDDEN, all_worst
from evalflows.specs import hints
from evalflows.specs.errors import IncompleteError
from evalflows.specs.escaping import one_line
from evalflows.specs.home import home_root
from evalflows.store.kept_checks import find_report, is_report
from evalflows.store.layout import Layout
from evalflows.store.queries import lookup
from evalflows.store.queries.looks import final_ids
from evalflows.store.store import Store, existing_store, sharing_answers

if TYPE_CHECKING:
    from evalflows.reports.candidates import CandidatesOfGate
    from evalflows.reports.comparison import ComparisonReport
    from evalflows.reports.decisions import Decision
    from evalflows.reports.previous_runs import PreviousRun
    from evalflows.specs.experiment import ExperimentSpec

WATCHED = ("run_key=null",)
"""Each turn is an experiment of its own; cached model calls are reused."""

CHANGES_SHOWN = 3
"""Examples of each kind of change that are printed after a change of a file."""


@click.command()
@click.argument("spec")
@CHANGES
@FRESH
@with_detail
@FORMAT
@IN_BATCHES
@click.option(
    "--watch",
    "watches",
    is_flag=True,
    help="Run again whenever the spec or a file that it uses changes, and print what changed. Ctrl-C stops it.",
)
@VERBOSE_RUN
def run(spec: str, changes: tuple[str, ...], in_batches: bool, watches: bool, verbose: bool, **how: Any) -> None:
    """Run the experiment described by a SPEC file (YAML)."""
    changes = (*changes, *(BATCHED if in_batches else ()))
    if not watches:
        _run_file(spec, changes, verbose, **how)
        return
    if how["form"] == "json":
        raise click.UsageError("--watch: wanted the results as a table, without --format json")
    from evalflows.cli.watch import watch

    if not Path(spec).is_file():
        raise click.UsageError(f"--watch: got {spec!r}, wanted a file")
    from evalflows.cli.running import load_for_runs  # late: `show` runs nothing

    load_for_runs(verbose)
    watch(
        lambda ended_well: _run_file(spec, [*changes, *WATCHED], verbose, only_changes=ended_well, **how),
        folders=[Path.cwd(), Path(spec).parent],
        ignored=[Path(Layout.at().root), home_root()],
    )


def _run_file(
    spec: str,
    changes: Sequence[str],
    verbose: bool,
    *,
    fresh: bool,
    detail: Detail,
    form: str,
    only_changes: bool = False,
) -> None:
    from evalflows.specs.experiment import load_experiment

    with one_line_errors(verbose):
        loaded = load_experiment(spec, [*changes, *(STARTED_ANEW if fresh else ())])
        _run(loaded, None, verbose, detail=detail, form=form, path=spec, only_changes=only_changes)


@click.command()
@click.argument("experiment")
@CHANGES
@with_detail
@FORMAT
@VERBOSE_RUN
def resume(experiment: str, changes: tuple[str, ...], detail: Detail, form: str, verbose: bool) -> None:
    """Resume an interrupted EXPERIMENT or comparison.

    The other experiments of its run group are resumed too. --set can change limits, such as --set budget_usd=10, but
    not settings that affect the answers.
    """
    from evalflows.specs.experiment import change_experiment
    from evalflows.store.row_specs import experiment_spec

    with one_line_errors(verbose):
        store = existing_store()
        if lookup.is_comparison(store, experiment):
            _resume_comparison(store, experiment, changes, verbose, detail=detail, form=form)
            return
        (row,) = store.read("experiments", lookup.find_experiments(store, experiment)[0])
        spec = change_experiment(experiment_spec(row), changes)
        _run(spec, row.run_group, verbose, detail=detail, form=form)


def _resume_comparison(
    store: Store, reference: str, changes: tuple[str, ...], verbose: bool, *, detail: Detail, form: str
) -> None:
    from evalflows.cli.compare import run_comparison
    from evalflows.specs.files import change_spec
    from evalflows.store.row_specs import comparison_spec

    (row,) = store.read("comparison_sets", lookup.find_comparison(store, reference))
    spec = change_spec(comparison_spec(row), changes, f"comparison {row.name!r}")
    run_comparison(spec, row.comparison_id, verbose, detail=detail, form=form)


def _run(
    spec: "ExperimentSpec",
    group: str | None,
    verbose: bool,
    *,
    detail: Detail,
    form: str = "table",
    path: str | None = None,
    only_changes: bool = False,
) -> None:
    from evalflows.cli.running import prepare_runs  # late: `show` runs nothing

    incomplete = None
    with sharing_answers():
        with stdout_for(form), prepare_runs(verbose) as watch:
            from evalflows import run as run_flow
            from evalflows.analysis.committed_rules import keep_uncommitted, uncommitted_rules
            from evalflows.llm.ledger import Calls

            calls, uncommitted = Calls(), uncommitted_rules(Path(path), spec) if path else None
            try:
                experiment_ids: Sequence[str] = run_flow(spec, group, watch, calls)
            except IncompleteError as error:
                if not error.experiments:
                    raise
                experiment_ids, incomplete = error.experiments, error
        made = calls.made
        if uncommitted:
            keep_uncommitted(Store(), lookup.run_groups(Store(), experiment_ids), uncommitted)
        if not (only_changes and _print_changes(experiment_ids, made)):
            _print_results(experiment_ids, made, detail=detail, form=form, spec=path)
    if incomplete is not None:
        raise incomplete if form == "json" else _without_shown_causes(incomplete)


def _without_shown_causes(error: IncompleteError) -> IncompleteError:
    """Return the error in fewer words if all experiments have ended: their failures have been shown."""
    lacking = [overview for overview in overviews_of(Store(), error.experiments) if overview.reason]
    if not lacking or not all(overview.state == "completed" for overview in lacking):
        return error
    said = [f"experiment {overview.name!r} ({overview.experiment_id}): {overview.reason}" for overview in lacking]
    return IncompleteError("; ".join(said), error.experiments, error.decisions)


@click.command()
@click.argument("experiment")
@click.option(
    "--worst",
    "metrics",
    metavar="METRIC",
    multiple=True,
    help="List instead all examples that got worse on this metric, worst first; without a baseline, all examples, "
    "lowest first. Repeatable.",
)
@click.option("--against", metavar="EXPERIMENT", help="With --worst: the experiment to compare with.")
@WITH_FINAL
@with_detail
@FORMAT
@with_one_line_errors
def show(
    experiment: str, metrics: tuple[str, ...], against: str | None, with_final: bool, detail: Detail, form: str
) -> None:
    """Show the results of an EXPERIMENT or a comparison, given by id, id prefix, name or run group.

    It also shows a plan or a backtest, given by id or id prefix.
    """
    if against and not metrics:
        raise click.UsageError("--against: wanted --worst too")
    store = existing_store()
    if is_report(experiment) and _print_report(store, experiment, form, detail):
        return
    if lookup.is_comparison(store, experiment) and not metrics:
        from evalflows.cli.compare import show_comparison  # late: most runs have none

        show_comparison(lookup.find_comparison(store, experiment), IN_BRIEF_SHOWN, detail=detail, form=form)
        return
    with store.reading(once=True):
        found, runs = lookup.find_experiments(store, experiment), lookup.runs_named(store, experiment)
    if runs > 1:
        echo_error(f"the newest of {runs} runs named {experiment!r}; {hints.list_runs().code} lists the others")
    if with_final:
        read_final(store, found)
    if metrics:
        _print_worst(store, found, metrics, against, form, with_final=with_final)
    else:
        _print_results(found, detail=detail, form=form, with_final=with_final)


def _print_report(store: Store, reference: str, form: str, detail: Detail) -> bool:
    """Print a plan or a backtest as when it was made. Return whether there is one."""
    if (found := find_report(store, reference)) is None:
        return False
    from evalflows.cli.backtest import print_backtest
    from evalflows.cli.plan import print_plan  # late: only these need it

    kind, identity, content = found
    if form == "json":
        print_json({f"{kind}_id": identity, **content})
    elif kind == "plan":
        print_plan(cast("PlanDocument", content), is_whole=detail is not None)
    else:
        print_backtest(console(), cast("BacktestDocument", content), is_whole=detail is not None)
    return True


def _print_worst(
    store: Store,
    experiments: Sequence[str],
    metrics: Sequence[str],
    against: str | None,
    form: str,
    *,
    with_final: bool,
) -> None:
    """Print all examples that got worse by some metrics."""
    other = lookup.find_experiments(store, against, just_one=True)[0] if against else None
    hidden = frozenset[str]() if with_final else final_ids(store, experiments)
    worst = all_worst(store, experiments, metrics, other, hidden=hidden)
    if form == "json":
        print_json({"worst_examples": [worst_document(examples) for examples in worst]})
        return
    for examples in worst:
        print_examples(console(), examples)
    if hidden:
        echo(HIDDEN)


def _previous(store: Store, experiments: Sequence[str]) -> "list[PreviousRun]":
    """Return how experiments did against the runs before them. The analysis is loaded only if there are any."""
    earlier = earlier_runs(store, experiments)
    if not earlier:
        return []
    from evalflows.reports.previous_runs import previous_runs

    return previous_runs(
        store, [(experiment, earlier[experiment]) for experiment in experiments if experiment in earlier]
    )


def _print_results(
    experiment_ids: Sequence[str],
    made: Mapping[str | None, int] | None = None,
    *,
    detail: Detail = None,
    form: str = "table",
    spec: str | None = None,
    with_final: bool = False,
) -> None:
    """Print the results of experiments, the decisions of their gates, the comparison beside them, the worst examples,
    and what to do next."""
    store, ids = Store(), experiment_ids
    with store.reading(once=True):
        decisions = with_limits(store, decisions_of(store, ids))
        if form == "json":  # tables leave them to `explain`
            decisions = with_manifests(store, decisions)
        report = experiments_report(store, ids, results_of(store, ids), decisions, with_final=with_final)
        comparison = None
        if beside := lookup.comparison_beside(store, ids):
            from evalflows.reports.comparison import comparison_report  # late: few runs have one

            comparison = comparison_report(store, beside)
        candidates = candidates_of_gates(store, decisions)
        compared = comparison.overview if comparison else None
        previous = _previous(store, ids)
        command = after_experiments(
            store,
            report.results,
            report.decisions,
            spec=spec,
            compared=compared,
            experiments=ids,
            since=previous,
            best=best_of(candidates),
        )
        reference = ids[0] if len(ids) == 1 else lookup.run_groups(store, ids)[0]
    calls_made = None if made is None else sum(made.values())
    if form == "json":
        made_known = None if any(experiment.has_unrecorded for experiment in report.experiments) else calls_made
        shown = document(
            [report],
            candidates=candidates,
            comparison=comparison,
            previous=previous,
            calls_made=made_known,
            next_command=command,
        )
        print_json(shown)
        return
    out, links = console(), links_here()
    if detail is None:
        since = lines_section(map(_since, sorted(previous, key=lambda earlier: earlier.rank)), "earlier run", least=1)
        verdicts, limits = _verdicts(report, candidates)
        sections = [verdicts, since, *results_sections(report, out.width, calls_made, limits)]
        if comparison:
            from evalflows.cli.compare import comparison_sections

            sections += comparison_sections(comparison, is_alone=False)
        is_shown = calls_made is None
        most = IN_BRIEF_SHOWN if is_shown else IN_BRIEF
        print_sections(out, sections, most, "--all" if is_shown else hints.show_all(reference).command)
    else:
        _print_all(report, candidates, previous, comparison, calls_made, wide=detail == "wide")
    print_next(out, command, links.experiment(reference) if len(ids) == 1 or report.grids else links.compare(*ids))


def _since(previous: "PreviousRun") -> RenderableType:
    """Return how an experiment did against the run before, and the command that shows all of it, unwrapped to be
    copied."""
    command = Text(f"all of it: {previous.command}")
    command.no_wrap, command.overflow = True, "ignore"
    return Group(Text(previous.sentence), command)


def _verdicts(
    report: ExperimentsReport, candidates: "Sequence[Decision | CandidatesOfGate]"
) -> "tuple[Section, Section | None]":
    """Return the decisions and their limits; without any, the verdicts."""
    if not candidates:
        return verdicts_section(() if report.grids else report.verdicts), None  # grids say more
    from evalflows.cli.decisions import decisions_section, limits_section  # late: only these need it

    return decisions_section(candidates), limits_section(candidates)


def _print_all(
    report: ExperimentsReport,
    candidates: "Sequence[Decision | CandidatesOfGate]",
    previous: "Sequence[PreviousRun]",
    comparison: "ComparisonReport | None",
    calls_made: int | None,
    *,
    wide: bool,
) -> None:
    out = console()
    print_experiments(report, wide=wide)
    for earlier in previous:
        out.print(Text(earlier.sentence))
        echo(one_line(f"all of it: {earlier.command}"))
    if calls_made is not None:
        print_calls(report.experiments, calls_made)
    if candidates:
        from evalflows.cli.decisions import print_decisions

        print_decisions(candidates)
    if comparison:
        from evalflows.cli.compare import print_comparison

        out.print()
        print_comparison(comparison, wide=wide)
    print_worst(out, report.worst)


def _print_changes(experiment_ids: Sequence[str], made: Mapping[str | None, int]) -> bool:
    """Print what changed against the run before: verdicts, examples, and decisions. Return False, with nothing printed,
    if some experiment has no run before it, or is incomplete."""
    from evalflows.cli.diff import print_changes
    from evalflows.reports.diff import diff_of

    store, out = Store(), console()
    previous = _previous(store, experiment_ids)
    if len(previous) < len(experiment_ids):
        return False
    for earlier in previous:
        out.print(Text(f"{earlier.experiment_id} {earlier.sentence}", style="bold"))
        print_changes(out, diff_of(store, earlier.previous_experiment_id, [earlier.experiment_id], limit=CHANGES_SHOWN))
    for decision in decisions_of(store, experiment_ids):
        out.print(Text(decision.sentence, style=DECISION_STYLES[decision.conclusion]))
    print_calls(overviews_of(store, experiment_ids), sum(made.values()))
    return True
