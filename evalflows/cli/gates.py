"""Release gates: run them, explain their decisions, and approve baselines."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType
from rich.padding import Padding

from evalflows.cli.ci_files import CiFiles, with_ci_files
from evalflows.cli.documents import FORMAT, print_json, stdout_for
from evalflows.cli.errors import NOT_ENOUGH_EVIDENCE, one_line_errors
from evalflows.cli.show import (
    CHANGES,
    DECISION_STYLES,
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
from evalflows.cli.stores import store_to_list
from evalflows.cli.tables import indented_lines, table
from evalflows.cli.terminal import Console, Text, console, echo, echo_error
from evalflows.reports.decision_limits import with_limits
from evalflows.reports.decisions import Decision, decisions_named, decisions_of, find_decision, with_manifests
from evalflows.reports.gate_report import GateReport, gate_report
from evalflows.reports.next_step import after_experiments
from evalflows.reports.reproduce_decision import explained
from evalflows.reports.results import results_against
from evalflows.reports.worst_examples import worst_of
from evalflows.specs.errors import GateFailedError, IncompleteError, InputError
from evalflows.specs.safe_text import one_line
from evalflows.store.evidence import verify_decision
from evalflows.store.existing import existing_store
from evalflows.store.parquet import Store
from evalflows.store.queries.baselines import approvals
from evalflows.store.queries.lookup import find_experiments, run_groups
from evalflows.store.records import to_json

if TYPE_CHECKING:
    from evalflows.specs.experiment import ExperimentSpec

OUTCOMES = {"met": "green", "broken": "bold red", "open": "yellow"}


@click.command()
@click.argument("spec")
@CHANGES
@FRESH
@click.option(
    "--baseline",
    "against",
    help="Compare with this, whatever the file says: a target, an approved baseline, or a window of production such as "
    "production:EVALUATION@24h.",
)
@click.option("--resume", "group", metavar="EXPERIMENT", help="Resume an interrupted or early-stopped EXPERIMENT.")
@WIDE
@FORMAT
@with_ci_files
@VERBOSE_RUN
def gate(
    spec: str,
    changes: tuple[str, ...],
    fresh: bool,
    against: str | None,
    group: str | None,
    wide: bool,
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
        ci_files, store = CiFiles.of(**files), Store()
        run_group = run_groups(store, find_experiments(store, group))[0] if group else None
        _run_gate(loaded, run_group, verbose, wide=wide, form=form, path=spec, files=ci_files)


def _run_gate(
    spec: "ExperimentSpec", group: str | None, verbose: bool, *, wide: bool, form: str, path: str, files: CiFiles
) -> None:
    from evalflows.cli.running import prepared

    failed = None
    with stdout_for(form), prepared(verbose, spec.name) as watch:
        from evalflows import gate as run_flow
        from evalflows.llm.recorder import calls_made

        before = calls_made()
        try:
            decision_ids = run_flow(spec, group, watch)
        except (GateFailedError, IncompleteError) as error:
            decision_ids, failed = list(error.decisions), error
    store = Store()
    incomplete = str(failed) if isinstance(failed, IncompleteError) else None
    decisions, made = decisions_named(store, decision_ids), calls_made() - before
    report = gate_report(store, decisions, made, spec=path, incomplete=incomplete)
    _print_decided(report, wide=wide, form=form)
    undecided = [decision for decision in decisions if decision.conclusion != "PASS"]
    _write_files(files, report, is_red=failed is not None or bool(undecided))
    if failed is not None:
        raise failed
    if undecided:
        conclusions = "; ".join(f"{decision.title}: {decision.conclusion}" for decision in undecided)
        echo_error(conclusions)
        sys.exit(NOT_ENOUGH_EVIDENCE)


def _write_files(files: CiFiles, report: GateReport, *, is_red: bool) -> None:
    """Write the files for CI. If one cannot be written, a gate that did not pass keeps its exit code."""
    try:
        files.write(report)
    except InputError as error:
        if not is_red:
            raise
        echo_error(str(error))


def _print_decided(report: GateReport, *, wide: bool, form: str) -> None:
    """Print each candidate against its baseline and the decisions on it, the worst examples, and what to do next."""
    out = console()
    if form == "json":
        print_json(report.document)
        return
    for one in report.reports:
        print_experiments(one, wide=wide)
        print_decisions(one.decisions)
        print_worst(out, one.worst)
    print_calls(report.experiments, report.calls_made or 0)
    print_next(out, report.next_command)


def print_decisions(decisions: Sequence[Decision]) -> None:
    """Print each decision: the conclusion, and the result of every rule."""
    out = console()
    for decision in decisions:
        out.print()
        print_decision(out, decision)
        out.print(f"  why, and how to reproduce it: evalflows explain {decision.decision_id}")


def print_decision(out: Console, decision: Decision) -> None:
    out.print(Text(f"{decision.title}: ").append(decision.conclusion, style=DECISION_STYLES[decision.conclusion]))
    out.print(_rules(decision))
    for note in decision.notes:
        out.print(Text(f"  {note}", style="yellow"))
    if decision.calls_saved is not None:
        out.print(f"  {decision.interim_analyses} interim analyses; {decision.calls_saved} model calls saved")


def _rules(decision: Decision) -> RenderableType:
    """The outcome, kind and text of each rule; long texts are wrapped in their column."""
    out = indented_lines(7, 20)
    for rule in decision.rules:
        mark = Text(rule["outcome"], style=OUTCOMES[rule["outcome"]])
        out.add_row(mark, Text(rule["rule"].replace("_", " ")), Text(rule["text"]))
    return Padding(out, (0, 0, 0, 2))


@click.command()
@click.argument("decision")
@click.option("--again", is_flag=True, help="Verify the files that it rests on, and decide again.")
@VERBOSE_RUN
def explain(decision: str, again: bool, verbose: bool) -> None:
    """Explain a DECISION: its rules and evidence, and the SQL, files and settings that reproduce it.

    DECISION is an id, an id prefix, a gate's name, or an experiment's name or id.
    """
    with one_line_errors(verbose):
        store = existing_store()
        (stored,) = with_manifests(store, with_limits(store, [find_decision(store, decision)]))
        out = console()
        print_decision(out, stored)
        _print_limits(out, stored)
        for title, lines in explained(store, stored):
            out.print(Text(f"\n{title}", style="bold", lines=True))
            for line in lines:
                echo(line)
        if again:
            echo(f"\nVerified: {verify_decision(store, stored.decision_id).text}")
            _decide_again(stored)
        results = results_against(
            store, stored.candidate_experiment_id, stored.baseline_experiment_id, [stored.decision_id]
        )
        print_worst(out, worst_of(store, results, [stored]))
        print_next(out, after_experiments(store, results, [stored], explained=True))


def _print_limits(out: Console, decision: Decision) -> None:
    """Print what could still be wrong with a decision, but for the notes that are printed with it."""
    if decision.limits:
        out.print(Text("\nLimits of this decision", style="bold", lines=True))
    for limit in decision.limits:
        out.print(Text(limit))


def _decide_again(stored: Decision) -> None:
    from evalflows import decide_again

    again = decide_again(stored.decision_id)
    if again.decision_id == stored.decision_id:
        result = "the same figures, the same decision"
    elif again.conclusion == stored.conclusion:
        result = f"different figures now, still {again.conclusion}: {again.summary}"
    else:
        result = f"a different decision now, {again.conclusion}: {again.summary}"
    echo(f"Decided again from the store: {one_line(result)}")


@click.group()
def baseline() -> None:
    """Approve and list baselines: the experiments that gates compare candidates with."""


@baseline.command()
@click.argument("experiment")
@click.option("--name", help="Name of the baseline. Default: the name of the experiment's spec.")
@click.option("--reason", help="Reason for the approval.")
@click.option("--by", help="Who approves it. Default: the current user.")
@VERBOSE
def approve(experiment: str, name: str | None, reason: str | None, by: str | None, verbose: bool) -> None:
    """Approve an EXPERIMENT (id, id prefix, or name) as the baseline that gates compare with from now on."""
    with one_line_errors(verbose):
        store = existing_store()
        (identity,) = find_experiments(store, experiment, just_one=True)
        from evalflows import approve as approve_experiment

        approved = approve_experiment(identity, name, reason=reason, by=by)
        by = approved.approved_by
        echo(one_line(f"baseline {approved.name}: {experiment} ({identity}), approved by {by}"))
        for decision in decisions_of(store, [identity]):
            if decision.conclusion != "PASS" and decision.candidate_experiment_id == identity:
                said = f"{decision.title} said {decision.conclusion} of this experiment"
                echo_error(f"{said}: evalflows explain {decision.decision_id}")


@baseline.command(name="ls")
@VERBOSE
def ls_baselines(verbose: bool) -> None:
    """List the approved baselines, current and replaced."""
    with one_line_errors(verbose):
        with store_to_list() as store:
            rows = approvals(store)
        if not rows:
            echo("no baseline is approved yet: `evalflows baseline approve EXPERIMENT` approves one")
            return
        columns = ("baseline", "experiment", "id", "approved (UTC)", "by", "reason", "")
        out = table(*columns, headings=3, wrapped=("reason",))
        for row in rows:
            when = f"{row.recorded_at:%Y-%m-%d %H:%M}"
            cells = (
                row.name,
                row.experiment or "not in the store",
                row.experiment_id,
                when,
                row.approved_by or "",
                row.reason or "",
            )
            out.add_row(*cells, "" if row.holds else "replaced")
        console().print(out)
