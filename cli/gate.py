"""Release gates: run them, explain their decisions, and approve baselines."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from evalflows.cli.errors import NOT_ENOUGH_EVIDENCE, one_line_errors
from evalflows.cli.show import CHANGES, FRESH, STARTED_ANEW, VERBOSE, VERBOSE_RUN, print_experiments, table
from evalflows.cli.terminal import Console, Text, console, echo, echo_error
from evalflows.reports.decisions import Decision, decisions_named, find_decision
from evalflows.reports.reproduce_decision import explained
from evalflows.specs.errors import GateFailedError, IncompleteError
from evalflows.specs.safe_text import one_line
from evalflows.store.parquet import Store
from evalflows.store.queries.baselines import approvals
from evalflows.store.queries.lookup import find_experiments, run_groups

if TYPE_CHECKING:
    from evalflows.specs.experiment import ExperimentSpec

STYLES = {"PASS": "bold green", "FAIL": "bold red", "NOT ENOUGH EVIDENCE": "bold yellow"}
OUTCOMES = {"met": "green", "broken": "bold red", "open": "yellow"}


@click.command()
@click.argument("spec")
@CHANGES
@FRESH
@click.option("--resume", "group", metavar="EXPERIMENT", help="Resume an interrupted or early-stopped EXPERIMENT.")
@VERBOSE_RUN
def gate(spec: str, changes: tuple[str, ...], fresh: bool, group: str | None, verbose: bool) -> None:
    """Run the experiment of a SPEC file, compare it with the baseline, and decide the file's gates.

    Exit code: 0 if all gates PASS, 1 if one FAILs, 3 if there is not enough evidence.
    """
    from evalflows.specs.experiment import load_experiment

    with one_line_errors(verbose):
        loaded = load_experiment(spec, [*changes, *(STARTED_ANEW if fresh else ())])
        store = Store()
        _run_gate(loaded, run_groups(store, find_experiments(store, group))[0] if group else None, verbose)


def _run_gate(spec: "ExperimentSpec", group: str | None, verbose: bool) -> None:
    from evalflows.cli.running import prepared

    failed = None
    with prepared(verbose, spec.name) as watch:
        from evalflows import gate as run_flow
        from evalflows.llm.recorder import calls_made

        before = calls_made()
        try:
            decision_ids = run_flow(spec, group, watch)
        except (GateFailedError, IncompleteError) as error:
            decision_ids, failed = list(error.decisions), error
    decisions = decisions_named(Store(), decision_ids)
    print_experiments(list(dict.fromkeys(_experiments(decisions))), calls_made() - before)
    print_decisions(decisions)
    if failed is not None:
        raise failed
    if undecided := [decision for decision in decisions if decision.conclusion != "PASS"]:
        conclusions = "; ".join(f"{decision.title}: {decision.conclusion}" for decision in undecided)
        echo_error(conclusions)
        sys.exit(NOT_ENOUGH_EVIDENCE)


def _experiments(decisions: Sequence[Decision]) -> list[str]:
    pairs = [(decision.baseline_experiment_id, decision.candidate_experiment_id) for decision in decisions]
    return [identity for pair in pairs for identity in pair if identity is not None]


def print_decisions(decisions: Sequence[Decision]) -> None:
    """Print each decision: the conclusion, and the result of every rule."""
    out = console()
    for decision in decisions:
        out.print()
        print_decision(out, decision)


def print_decision(out: Console, decision: Decision) -> None:
    out.print(Text(f"{decision.title}: ").append(decision.conclusion, style=STYLES[decision.conclusion]))
    for rule in decision.rules:
        mark = Text(f"  {rule['outcome']:<7}", style=OUTCOMES[rule["outcome"]])
        out.print(mark.append(f"{rule['rule'].replace('_', ' '):<20}", style="").append(rule["text"], style=""))
    for note in decision.notes:
        out.print(Text(f"  {note}", style="yellow"))
    if decision.calls_saved is not None:
        out.print(f"  {decision.interim_analyses} interim analyses; {decision.calls_saved} model calls saved")
    out.print(f"  why, and how to reproduce it: evalflows explain {decision.decision_id}")


@click.command()
@click.argument("decision")
@click.option("--again", is_flag=True, help="Decide again from the store, and report whether the decision is the same.")
@VERBOSE_RUN
def explain(decision: str, again: bool, verbose: bool) -> None:
    """Explain a DECISION: its rules and evidence, and the SQL, files and settings that reproduce it.

    DECISION is an id, an id prefix, a gate's name, or an experiment's name or id.
    """
    with one_line_errors(verbose):
        store = Store()
        stored = find_decision(store, decision)
        out = console()
        print_decision(out, stored)
        for title, lines in explained(store, stored):
            out.print(Text(f"\n{title}", style="bold", lines=True))
            for line in lines:
                echo(line)
        if again:
            _decide_again(stored)


def _decide_again(stored: Decision) -> None:
    from evalflows import decide_again

    again = decide_again(stored.decision_id)
    if again.decision_id == stored.decision_id:
        result = "the same figures, the same decision"
    elif again.conclusion == stored.conclusion:
        result = f"different figures now, still {again.conclusion}: {again.summary}"
    else:
        result = f"a different decision now, {again.conclusion}: {again.summary}"
    echo(f"\nDecided again from the store: {one_line(result)}")


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
        store = Store()
        (identity,) = find_experiments(store, experiment, just_one=True)
        from evalflows import approve as approve_experiment

        approved = approve_experiment(identity, name, reason=reason, by=by)
        by = approved.approved_by
        echo(one_line(f"baseline {approved.name}: {experiment} ({identity}), approved by {by}"))


@baseline.command(name="ls")
@VERBOSE
def ls_baselines(verbose: bool) -> None:
    """List the approved baselines, current and replaced."""
    with one_line_errors(verbose):
        rows = approvals(Store())
        if not rows:
            echo("no baseline is approved yet: `evalflows baseline approve EXPERIMENT` approves one")
            return
        out = table("baseline", "experiment", "id", "approved (UTC)", "by", "reason", "")
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
