"""Approve and list the baselines of gates."""

import sys
from pathlib import Path

import click

from evalflows.cli.late_commands import FORMAT, print_json, with_one_line_errors
from evalflows.cli.output import console, echo, echo_error, table
from evalflows.cli.stores import store_to_list
from evalflows.reports.decisions import decisions_of
from evalflows.specs import hints
from evalflows.specs.escaping import one_line
from evalflows.store.queries.conclusions import Door, approvals
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.store import existing_store


@click.group()
def baseline() -> None:
    """Approve and list baselines: the experiments that gates compare candidates with."""


@baseline.command()
@click.argument("experiment")
@click.option(
    "--name", help="Name of the baseline. Default: the name of the spec; for recorded results, of the experiment."
)
@click.option("--reason", help="Reason for the approval.")
@click.option("--by", help="Who approves it. Default: the current user.")
@click.option("--sign", "key", metavar="KEY", help="Sign the approval with this SSH key.")
@FORMAT
@with_one_line_errors
def approve(experiment: str, name: str | None, reason: str | None, by: str | None, key: str | None, form: str) -> None:
    """Approve an EXPERIMENT (id, id prefix, or name) as the baseline that gates compare with from now on."""
    store = existing_store()
    (identity,) = find_experiments(store, experiment, just_one=True)
    from evalflows.analysis.baselines import approve_baseline, are_recorded
    from evalflows.store.row_specs import experiment_spec

    (row,) = store.read("experiments", identity)
    through: Door = "terminal" if sys.stdin.isatty() and console().is_terminal else "pipe"
    signing = Path(key).expanduser() if key else None
    approved = approve_baseline(store, row, name, reason=reason, by=by, key=signing, through=through)
    by = approved.approved_by
    if form == "json":
        print_json(approved)
    else:
        signed = f", signed with {key}" if key else ""
        echo(one_line(f"baseline {approved.name}: {experiment} ({identity}), approved by {by}{signed}"))
    own = experiment_spec(row)
    beside = [gate.name for gate in own.gates if own.baseline_target(gate) is not None]
    if are_recorded(row):
        echo_error(f"{hints.decide(approved.name).code} compares with it")
    elif beside and len(beside) == len(own.gates) and approved.name == own.name:
        command = hints.gate_against(approved.name).code
        echo_error(f"its spec's gates compare with a target of each run, not with this baseline: {command} does")
    for decision in decisions_of(store, [identity]):
        if decision.conclusion != "PASS" and decision.candidate_experiment_id == identity:
            said = f"{decision.title} decided {decision.conclusion} on this experiment"
            echo_error(f"{said}: {hints.explain(decision.decision_id)}")


@baseline.command(name="ls")
@FORMAT
@with_one_line_errors
def ls_baselines(form: str) -> None:
    """List the approved baselines, current and replaced."""
    with store_to_list() as store:
        rows = approvals(store)
    if form == "json":
        print_json(rows)
        return
    if not rows:
        echo(f"no baseline is approved yet: {hints.approve_some().code} approves one")
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
            f"{row.approved_by or ''}{f' ({row.approved_through})' if row.approved_through else ''}".lstrip(),
            row.reason or "",
        )
        out.add_row(*cells, "" if row.holds else "replaced")
    console().print(out)
