"""Failure modes: find them for a file that the team owns, show them, and close them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalflows.cli.late_commands import FORMAT, print_json, with_one_line_errors
from evalflows.cli.output import Text, console, echo, table
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import one_line
from evalflows.store.store import existing_store

if TYPE_CHECKING:
    from evalflows.analysis.modes import Found, Group
    from evalflows.store.queries.failures import Failure
    from evalflows.store.store import Store

N_RARE = 5
"""Rare groups that are listed."""


@click.group()
def modes() -> None:
    """Find failure modes for a file that the team reviews, show them, and close them."""


@modes.command()
@click.argument("experiments", metavar="[EXPERIMENT|EVALUATION]...", nargs=-1)
@click.option("--traces", metavar="FILTER", help="Search the traces that match a filter instead; '' means all.")
@click.option(
    "--failed",
    metavar="METRIC",
    multiple=True,
    help="Which scores are bad: correct, quality<3, cost>0.1. Repeatable. Default: those of all yes/no metrics.",
)
@click.option("--against", metavar="BASELINE", help="Search the answers with worse scores than a baseline's.")
@click.option(
    "--topics",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Find topics instead, in the tasks of a random sample with this share of all answers or traces.",
)
@click.option(
    "--file", "path", help="The taxonomy that modes are added to.  [failure_modes.yaml; for topics, topics.yaml]"
)
@click.option("--embeddings", default="local", show_default=True, help="The connection that compares sentences.")
@click.option("--connection", help="The connection of a model that names and defines the modes.")
@click.option("--describe", is_flag=True, help="Also describe failures without a note; for topics, each task.")
@click.option("--plan", is_flag=True, help="Print the number of calls needed; make none.")
@click.option("--model", help="Model to call. Default: the connection's model.")
@click.option("--max-calls", type=click.IntRange(min=0), default=100, show_default=True, help="Limit on model calls.")
@click.option(
    "--similarity", type=click.FloatRange(0, 1), help="Mean similarity from which failures are alike.  [0.45]"
)
@FORMAT
@with_one_line_errors
def find(
    experiments: tuple[str, ...],
    traces: str | None,
    failed: tuple[str, ...],
    against: str | None,
    topics: float | None,
    path: str | None,
    embeddings: str,
    connection: str | None,
    describe: bool,
    plan: bool,
    model: str | None,
    max_calls: int,
    similarity: float | None,
    form: str,
) -> None:
    """Group the notes on failed answers or traces, and add a mode for each new group to a file.

    Notes are comments of judges and evaluators on bad scores, errors, and people's notes. Modes in the file stay as
    they are, and are not proposed again. Review the new modes: names, definitions, and duplicate modes. With --topics,
    tasks are grouped by what they ask for.
    """
    from evalflows.analysis.modes import SIMILARITY, Model, find_modes, to_describe
    from evalflows.specs.failure_modes import Kind, adding, edit, load_taxonomy

    if bool(experiments) == (traces is not None):
        raise InputError("modes find: wanted either experiments or --traces FILTER")
    if topics is not None and (failed or against):
        raise InputError("modes find: got --topics, which takes all answers, and --failed or --against")
    if (describe or plan) and not connection:
        raise InputError("modes find: got no --connection, wanted the model's connection for --describe and --plan")
    if plan and form == "json":
        raise InputError("modes find: got --plan and --format json, wanted one of them")
    store = existing_store()
    kind: Kind = "modes" if topics is None else "topic"
    file = Path(path or ("failure_modes.yaml" if topics is None else "topics.yaml"))
    failures = _searched(store, experiments, traces, failed, against, topics)
    if plan:
        n = len(to_describe(failures, kind)) if describe else 0
        what = "failures without a note" if topics is None else "tasks"
        most = f"at most {max_calls} (--max-calls), without those that were made before"
        echo(f"calls to {connection}: {n} to describe {what}, and one for the name of each new group; {most}")
        return
    taxonomy = load_taxonomy(file) if file.exists() else None
    found = find_modes(
        store,
        failures,
        taxonomy,
        embeddings=embeddings,
        model=Model(connection=connection, name=model, max_calls=max_calls, describes=describe) if connection else None,
        similarity=SIMILARITY if similarity is None else similarity,
        kind=kind,
    )
    if found.proposed:
        edit(file, adding([group.mode for group in found.proposed], kind))
    if form == "json":
        print_json(found)
    else:
        _print(found, str(file))


def _searched(
    store: "Store",
    experiments: Sequence[str],
    traces: str | None,
    failed: Sequence[str],
    against: str | None,
    topics: float | None,
) -> "list[Failure]":
    """Return the failures to search, or the tasks, of which nothing is noted."""
    from evalflows.store.queries import failures as of
    from evalflows.store.queries.lookup import find_experiments

    bad = [of.bad_score(text) for text in failed]
    owners = [owner for name in experiments for owner in of.owners_of(store, name)]
    evaluations = [owner for owner in owners if owner.startswith("eval-")]
    ids = [owner for owner in owners if owner not in evaluations]
    if evaluations and (against or topics is not None):
        wanted = "an experiment (--against)" if against else "--traces FILTER (--topics)"
        raise InputError(f"modes find: got a trace evaluation, wanted {wanted}")
    if topics is not None:
        chosen = (
            of.share_of_traces(store, traces, topics)
            if traces is not None
            else of.share_of_experiments(store, ids, topics)
        )
        return [of.Failure(id=identity, notes=[]) for identity in chosen]
    if traces is not None:
        return of.failures_of_traces(store, traces, bad)
    baseline = find_experiments(store, against, just_one=True)[0] if against else None
    found = of.failures_of_experiments(store, ids, bad, baseline) if ids else []
    return found + [failure for each in evaluations for failure in of.failures_of_traces(store, None, bad, each)]


@modes.command()
@click.argument("mode")
@click.option(
    "--in",
    "experiment",
    metavar="EXPERIMENT",
    required=True,
    help="The experiment, or the trace evaluation, in which it is fixed.",
)
@click.option("--file", "path", default="failure_modes.yaml", show_default=True, help="The taxonomy.")
@FORMAT
@with_one_line_errors
def close(mode: str, experiment: str, path: str, form: str) -> None:
    """Mark a MODE as closed since an experiment or a day of production, and show what changed in the file.

    A gate or a trace evaluation with `closed_modes` has a rule for each closed mode from then on.
    """
    from difflib import unified_diff

    from evalflows.specs.failure_modes import edit, with_status
    from evalflows.store.queries.failures import rates_of_mode

    rate = rates_of_mode(existing_store(), mode, experiment)[-1]
    before, after = edit(Path(path), with_status(mode, "closed", rate.started_at.date()))
    changed = [*unified_diff(before.splitlines(), after.splitlines(), path, path, n=1, lineterm="")]
    if form == "json":
        print_json({"mode": mode, "rate": rate, "changed": changed})
        return
    for line in changed:
        echo(line)
    day = "" if rate.subject_kind == "run" else f" on {rate.started_at:%Y-%m-%d}"
    console().print(Text(f"{rate.text} in {rate.experiment}{day}"))


@modes.command()
@click.argument("mode")
@click.option("--file", "path", default="failure_modes.yaml", show_default=True, help="The taxonomy.")
@click.option("--n", type=click.IntRange(min=0), default=10, show_default=True, help="Maximum number of answers shown.")
@FORMAT
@with_one_line_errors
def show(mode: str, path: str, n: int, form: str) -> None:
    """Show a MODE: its definition, its rate in experiments and by day, and the newest answers and traces with it."""
    from evalflows.specs.failure_modes import load_taxonomy
    from evalflows.store.queries.failures import answers_with_mode, rates_of_mode

    store = existing_store()
    found = load_taxonomy(path).mode(mode)
    rates, answers = rates_of_mode(store, mode), answers_with_mode(store, mode, n)
    if form == "json":
        print_json({"mode": found.model_dump(), "rates": rates, "answers": answers})
        return
    out = console()
    since = f" since {found.since}" if found.since else ""
    out.print(Text(f"{mode}, {found.status}{since}: {found.definition}", style="bold"))
    over_time = table("experiment or evaluation", "began (UTC)", "rate", "evaluator's version", headings=1)
    for rate in rates:
        over_time.add_row(rate.experiment, f"{rate.started_at:%Y-%m-%d %H:%M}", rate.text, rate.evaluator_version[:8])
    out.print(over_time)
    if answers:
        newest = table("run or trace", "example", "noted", headings=2, wrapped=("noted",))
        for answer in answers:
            newest.add_row(answer.subject_id, answer.example_id or "-", answer.comment or "-")
        out.print(newest)


@modes.command()
@click.argument("mode")
@click.option("--to", "dataset", metavar="DATASET", required=True, help="The dataset; created if missing.")
@click.option("--in", "experiment", metavar="EXPERIMENT", help="An experiment, or a trace evaluation. Default: all.")
@FORMAT
@with_one_line_errors
def examples(mode: str, dataset: str, experiment: str | None, form: str) -> None:
    """Add the examples, traces and sessions that have a MODE to a dataset, as regression examples.

    Their metadata names the mode and the source of each example. Existing examples stay.
    """
    from evalflows.analysis.trace_datasets import rows_with_mode
    from evalflows.store.dataset_versions import add_examples
    from evalflows.store.snapshots import to_examples

    store = existing_store()
    rows = rows_with_mode(store, mode, experiment)
    source = f"modes examples {mode}"
    made = add_examples(store, dataset, to_examples(enumerate(rows, start=1), source), source=source)
    if form == "json":
        added = {"dataset": dataset, "snapshot_id": made.snapshot, "n_examples": made.n_examples}
        print_json({**added, "mode": mode, "n_with_mode": len(rows)})
        return
    echo(one_line(f"{dataset}: {made.snapshot}, {made.n_examples} examples; {len(rows)} with {mode}"))


def _print(found: "Found", path: str) -> None:
    out = console()
    if found.proposed:
        is_topic = found.kind == "topic"
        columns = ("topic", "tasks") if is_topic else ("mode", "failures")
        rows = table(*columns, "such as", headings=1, wrapped=("such as",))
        for group in found.proposed:
            rows.add_row(group.name, str(len(group.failures)), group.sentences[0])
        out.print(rows)
    for line in _sentences(found, path):
        out.print(Text(line))


def _sentences(found: "Found", path: str) -> list[str]:
    n_noted, noun = found.n_failures - found.n_without_note, "task" if found.kind == "topic" else "failure"
    noted = "that say something" if found.kind == "topic" else "with a note"
    lines = [f"{found.n_failures} {noun}s, {n_noted} {noted}; {found.n_alone} are unlike any other"]
    if found.n_nothing:
        lines.append(f"in {found.n_nothing} the model found nothing to say")
    if found.covered:
        covered = ", ".join(f"{mode} {count}" for mode, count in found.covered.items())
        lines.append(f"in groups that {path} covers: {covered}")
    if found.rare:
        more = len(found.rare) - N_RARE
        named = "; ".join(map(_rare, found.rare[:N_RARE])) + (f"; and {more} more" if more > 0 else "")
        lines.append(f"seen in too few {noun}s to be proposed: {named}")
    seen = found.unseen
    if seen.chance is not None:
        line = f"chance that the next {noun} is in no group yet: {seen.chance:.1%} [{seen.low:.1%}, {seen.high:.1%}]"
        if seen.new_kinds is not None:
            between = f"[{seen.new_low:.0f}, {seen.new_high:.0f}]"
            line += f"; {seen.n_more} more {noun}s would show about {seen.new_kinds:.0f} {between} new groups"
        lines.append(line)
    if found.calls:
        lines.append(f"{found.calls} model calls")
    if not found.by_meaning:
        lines.append("grouped by the templates of the notes; by their meaning with pip install 'evalflows[embeddings]'")
    added = f"{len(found.proposed)} added to {path}: review them" if found.proposed else f"nothing to add to {path}"
    return [*lines, added]


def _rare(group: "Group") -> str:
    return f"{group.name} ({len(group.failures)}: {one_line(group.sentences[0])[:60]})"
