"""Run a spec, compare with the baseline, and decide its gates."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalflows.cli.ci_files import CiFiles, with_ci_files
from evalflows.cli.decisions import decisions_section, end_undecided, limits_section, print_decisions
from evalflows.cli.late_commands import (
    CHANGES,
    FORMAT,
    FRESH,
    STARTED_ANEW,
    VERBOSE_RUN,
    Detail,
    one_line_errors,
    print_json,
    stdout_for,
    with_detail,
)
from evalflows.cli.output import console, echo_error
from evalflows.cli.sections import IN_BRIEF, print_sections
from evalflows.cli.show import links_here, print_calls, print_experiments, print_next, print_worst, results_sections
from evalflows.reports.decisions import decisions_named
from evalflows.reports.markdown_pages import GateReport, gate_report
from evalflows.specs import hints
from evalflows.specs.errors import GateFailedError, IncompleteError, InputError
from evalflows.store.queries.lookup import find_experiments, run_groups
from evalflows.store.records import to_json
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.specs.experiment import ExperimentSpec


@click.command()
@click.argument("spec")
@CHANGES
@FRESH
@click.option(
    "--baseline",
    "against",
    help="Baseline that overrides the file: a target, an approved baseline, or a window of production such as "
    "production:EVALUATION@24h.",
)
@click.option("--resume", "group", metavar="EXPERIMENT", help="Resume an interrupted or early-stopped EXPERIMENT.")
@click.option(
    "--look-again",
    metavar="REASON",
    help="Run the final examples once more than final_looks allows; every report shows the REASON.",
)
@with_detail
@FORMAT
@with_ci_files
@VERBOSE_RUN
def gate(
    spec: str,
    changes: tuple[str, ...],
    fresh: bool,
    against: str | None,
    group: str | None,
    look_again: str | None,
    detail: Detail,
    form: str,
    verbose: bool,
    **files: str | None,
) -> None:
    """Run the experiment of a SPEC file, compare it with the baseline, and decide the file's gates.

    Exit code: 0 if all gates PASS, 1 if one FAILs, 3 if there is not enough evidence.
    """
    from evalflows.specs.experiment import change_experiment, load_experiment

    with one_line_errors(verbose):
        loaded = load_experiment(spec, [*changes, *(STARTED_ANEW if fresh else ())])
        if against is not None:
            loaded = change_experiment(
                loaded, [f"gates.{n}.baseline={to_json(against)}" for n in range(len(loaded.gates))]
            )
        if look_again is not None:
            loaded = change_experiment(loaded, [f"look_again={to_json(look_again)}"])
        ci_files, store = CiFiles.of(**files), Store()
        run_group = run_groups(store, find_experiments(store, group))[0] if group else None
        _run_gate(loaded, run_group, verbose, detail=detail, form=form, path=spec, files=ci_files)


def _run_gate(
    spec: "ExperimentSpec", group: str | None, verbose: bool, *, detail: Detail, form: str, path: str, files: CiFiles
) -> None:
    from evalflows.cli.running import prepare_runs

    failed = None
    with stdout_for(form), prepare_runs(verbose) as watch:
        from evalflows import gate as run_flow
        from evalflows.analysis.committed_rules import keep_uncommitted, uncommitted_rules
        from evalflows.llm.ledger import Calls

        calls, uncommitted = Calls(), uncommitted_rules(Path(path), spec)
        try:
            decision_ids = run_flow(spec, group, watch, calls)
        except (GateFailedError, IncompleteError) as error:
            decision_ids, failed = list(error.decisions), error
    store = Store()
    incomplete = str(failed) if isinstance(failed, IncompleteError) else None
    decisions, made = decisions_named(store, decision_ids), calls.made
    candidates = [decision.candidate_experiment_id for decision in decisions]
    keep_uncommitted(store, run_groups(store, candidates), uncommitted)
    report = gate_report(store, decisions, made, spec=path, incomplete=incomplete)
    _print_decided(report, detail=detail, form=form)
    undecided = [decision for decision in decisions if decision.conclusion != "PASS"]
    _write_files(store, files, report, is_red=failed is not None or bool(undecided))
    if failed is not None:
        raise failed
    end_undecided(undecided)


def _write_files(store: Store, files: CiFiles, report: GateReport, *, is_red: bool) -> None:
    """Write the files for CI. If one cannot be written, a gate that did not pass keeps its exit code."""
    try:
        files.write(store, report)
    except InputError as error:
        if not is_red:
            raise
        echo_error(str(error))


def _print_decided(report: GateReport, *, detail: Detail, form: str) -> None:
    """Print each candidate against its baseline and the decisions on it, the worst examples, and what to do next."""
    out = console()
    if form == "json":
        print_json(report.document)
        return
    if detail is None:
        sections, limits = [decisions_section(report.candidates)], limits_section(report.candidates)
        for number, single in enumerate(report.reports, start=1):
            rest = (report.calls_made or 0, limits) if number == len(report.reports) else ()
            sections += results_sections(single, out.width, *rest)
        groups = run_groups(Store(), [decision.candidate_experiment_id for decision in report.decisions])
        print_sections(out, sections, IN_BRIEF, hints.show_all(groups[0]).command)
    else:
        for single in report.reports:
            print_experiments(single, wide=detail == "wide")
        print_decisions(report.candidates)
        for single in report.reports:
            print_worst(out, single.worst)
        print_calls(report.experiments, report.calls_made or 0)
    decided = [decision.decision_id for decision in report.decisions]
    print_next(out, report.next_command, links_here().page("decisions", *(decided if len(decided) == 1 else ())))
