"""Release gates: running them, what they decided and why, and which experiment is the approved baseline."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from cli.errors import NOT_ENOUGH_EVIDENCE, one_line_errors
from cli.look import CHANGES, VERBOSE, VERBOSE_RUN, console, print_experiments, table
from specs.errors import GateFailedError, IncompleteError
from store.baselines import approvals
from store.decisions import Decision, decisions_named, find_decision
from store.explained import explained
from store.lookup import find_experiments, run_groups
from store.parquet import Store
from store.records import now

if TYPE_CHECKING:
    from specs.experiment import ExperimentSpec

STYLES = {"PASS": "bold green", "FAIL": "bold red", "NOT ENOUGH EVIDENCE": "bold yellow"}
OUTCOMES = {"met": "green", "broken": "bold red", "open": "yellow"}


@click.command()
@click.argument("spec")
@CHANGES
@click.option("--fresh", is_flag=True, help="Pay for every model call anew.")
@click.option("--resume", "group", metavar="EXPERIMENT", help="Go on with what was broken off, or stopped early.")
@VERBOSE_RUN
def gate(spec: str, changes: tuple[str, ...], fresh: bool, group: str | None, verbose: bool) -> None:
    """Run the experiment that a SPEC file describes, compare it with the baseline, and decide by the file's gates.

    Ends with 0 where all gates say PASS, 1 where one says FAIL, 3 where there is not enough evidence.
    """
    from specs.experiment import load_experiment

    with one_line_errors(verbose):
        loaded = load_experiment(spec, [*changes, *(["fresh=true"] if fresh else [])])
        store = Store()
        _run_gate(loaded, run_groups(store, find_experiments(store, group))[0] if group else None, verbose)


def _run_gate(spec: "ExperimentSpec", group: str | None, verbose: bool) -> None:
    from cli.running import prepared

    began, failed = now(), None
    with prepared(verbose, spec.name) as watch:
        from flows import gate as run_flow

        try:
            done = run_flow(spec, group, watch)
        except (GateFailedError, IncompleteError) as error:
            done, failed = list(error.decisions), error
    decisions = decisions_named(Store(), done)
    print_experiments(list(dict.fromkeys(_experiments(decisions))), since=began)
    print_decisions(decisions)
    if failed is not None:
        raise failed
    if open_ := [one for one in decisions if one.conclusion != "PASS"]:
        click.echo(f"evalflows: {'; '.join(f'{one.title}: {one.conclusion}' for one in open_)}", err=True)
        sys.exit(NOT_ENOUGH_EVIDENCE)


def _experiments(decisions: Sequence[Decision]) -> list[str]:
    both = [(one.baseline_experiment_id, one.candidate_experiment_id) for one in decisions]
    return [identity for pair in both for identity in pair if identity is not None]


def print_decisions(decisions: Sequence[Decision]) -> None:
    """Print what each gate decided: the conclusion, and every rule in words."""
    out = console()
    for one in decisions:
        out.print()
        print_decision(out, one)


def print_decision(out: Console, one: Decision) -> None:
    out.print(Text(f"{one.title}: ").append(one.conclusion, style=STYLES[one.conclusion]))
    for rule in one.rules:
        mark = Text(f"  {rule['outcome']:<7}", style=OUTCOMES[rule["outcome"]])
        out.print(mark.append(f"{rule['rule'].replace('_', ' '):<11}", style="").append(rule["text"], style=""))
    for note in one.notes:
        out.print(Text(f"  {note}", style="yellow"))
    if one.calls_saved is not None:
        out.print(f"  it looked {one.looks} times; {one.calls_saved} model calls were not made")
    out.print(f"  why, and how to make it again: evalflows explain {one.decision_id}")


@click.command()
@click.argument("decision")
@click.option("--again", is_flag=True, help="Make it again from what is in the store, and say whether it is the same.")
@VERBOSE_RUN
def explain(decision: str, again: bool, verbose: bool) -> None:
    """Explain a DECISION: the rules, what they rest on, the SQL, files and settings that make it again.

    It is named by its id, the beginning of one, a gate's name, or an experiment's.
    """
    with one_line_errors(verbose):
        store = Store()
        found = find_decision(store, decision)
        out = console()
        print_decision(out, found)
        for title, lines in explained(store, found):
            out.print(Text(f"\n{title}", style="bold"))
            for line in lines:
                click.echo(line)
        if again:
            _say_again(found)


def _say_again(found: Decision) -> None:
    from flows import decide_again

    made = decide_again(found.decision_id)
    if made.decision_id == found.decision_id:
        said = "the same figures, the same decision"
    elif made.conclusion == found.conclusion:
        said = f"other figures now, and still {made.conclusion}: {made.summary}"
    else:
        said = f"another decision now, {made.conclusion}: {made.summary}"
    click.echo(f"\nMade again from the store: {said}")


@click.group()
def baseline() -> None:
    """The experiments that candidates are compared with: approved by a person, never moved by themselves."""


@baseline.command()
@click.argument("experiment")
@click.option("--name", help="What it is the baseline of; the name of its spec where left out.")
@click.option("--reason", help="Why it is approved.")
@click.option("--by", help="Who approves it; whoever runs this where left out.")
@VERBOSE
def approve(experiment: str, name: str | None, reason: str | None, by: str | None, verbose: bool) -> None:
    """From now on, gates compare with this EXPERIMENT (its id, the beginning of one, or its name)."""
    with one_line_errors(verbose):
        store = Store()
        (identity,) = find_experiments(store, experiment, just_one=True)
        from flows import approve as approve_experiment

        made = approve_experiment(identity, name, reason=reason, by=by)
        click.echo(f"baseline {made.name}: {experiment} ({identity}), approved by {made.approved_by}")


@baseline.command(name="ls")
@VERBOSE
def ls_baselines(verbose: bool) -> None:
    """List what is approved, and what was before."""
    with one_line_errors(verbose):
        rows = approvals(Store())
        if not rows:
            click.echo("nothing is approved yet: `evalflows baseline approve EXPERIMENT` does that")
            return
        out = table("baseline", "experiment", "id", "approved (UTC)", "by", "reason", "")
        for one in rows:
            when = f"{one.recorded_at:%Y-%m-%d %H:%M}"
            cells = (
                one.name,
                one.experiment or "not in the store",
                one.experiment_id,
                when,
                one.approved_by or "",
                one.reason or "",
            )
            out.add_row(*cells, "" if one.holds else "replaced")
        console().print(out)
