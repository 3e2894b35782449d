"""Failure modes: find them, and propose them for a file that the team owns."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalflows.cli.late_commands import FORMAT, VERBOSE, one_line_errors, print_json
from evalflows.cli.output import Text, console, table
from evalflows.specs.errors import InputError, one_line
from evalflows.store.sql import existing_store

if TYPE_CHECKING:
    from evalflows.analysis.modes import Found, Group

N_RARE = 5
"""Rare groups that are listed."""


@click.group()
def modes() -> None:
    """Find failure modes, for a file that the team reviews."""


@modes.command()
@click.argument("experiments", metavar="[EXPERIMENT]...", nargs=-1)
@click.option("--traces", metavar="FILTER", help="Search the traces that meet a filter instead; '' means all.")
@click.option(
    "--failed",
    metavar="METRIC",
    multiple=True,
    help="Which scores are bad: correct, quality<3, cost>0.1. Repeatable. Default: those of all yes/no metrics.",
)
@click.option("--against", metavar="BASELINE", help="Search the answers with worse scores than a baseline's.")
@click.option(
    "--file", "path", default="failure_modes.yaml", show_default=True, help="The taxonomy that modes are added to."
)
@click.option("--embeddings", default="local", show_default=True, help="The connection that compares sentences.")
@click.option("--connection", help="The connection of a model that names and defines the modes.")
@click.option("--model", help="Its model. Default: the connection's.")
@click.option("--max-calls", type=click.IntRange(min=0), default=100, show_default=True, help="Most calls to it.")
@click.option(
    "--similarity", type=click.FloatRange(0, 1), help="Mean similarity from which failures are alike.  [0.45]"
)
@FORMAT
@VERBOSE
def find(
    experiments: tuple[str, ...],
    traces: str | None,
    failed: tuple[str, ...],
    against: str | None,
    path: str,
    embeddings: str,
    connection: str | None,
    model: str | None,
    max_calls: int,
    similarity: float | None,
    form: str,
    verbose: bool,
) -> None:
    """Group what was noted about failed answers, and add a mode for each new group to a file.

    Noted are comments of judges and evaluators on bad scores, errors, and people's notes. Modes that the file has stay
    as they are, and are not proposed again. Review what was added: names, definitions, and modes that are one.
    """
    with one_line_errors(verbose):
        from evalflows.analysis.modes import SIMILARITY, Model, find_modes
        from evalflows.specs.failure_modes import adding, edit, load_taxonomy
        from evalflows.store.queries.failures import bad_score, failures_of_experiments, failures_of_traces
        from evalflows.store.queries.lookup import find_experiments

        if bool(experiments) == (traces is not None):
            raise InputError("modes find: wanted either experiments or --traces FILTER")
        store, bad, file = existing_store(), [bad_score(text) for text in failed], Path(path)
        if traces is not None:
            failures = failures_of_traces(store, traces, bad)
        else:
            found_ids = [one for name in experiments for one in find_experiments(store, name)]
            baseline = find_experiments(store, against, just_one=True)[0] if against else None
            failures = failures_of_experiments(store, found_ids, bad, baseline)
        taxonomy = load_taxonomy(file) if file.exists() else None
        found = find_modes(
            store,
            failures,
            taxonomy,
            embeddings=embeddings,
            model=Model(connection=connection, name=model, max_calls=max_calls) if connection else None,
            similarity=SIMILARITY if similarity is None else similarity,
        )
        if found.proposed:
            edit(file, adding([group.mode for group in found.proposed]))
        if form == "json":
            print_json(found)
        else:
            _print(found, path)


def _print(found: "Found", path: str) -> None:
    out = console()
    if found.proposed:
        rows = table("mode", "failures", "such as", headings=1, wrapped=("such as",))
        for group in found.proposed:
            rows.add_row(group.name, str(len(group.failures)), group.sentences[0])
        out.print(rows)
    for line in _sentences(found, path):
        out.print(Text(line))


def _sentences(found: "Found", path: str) -> list[str]:
    n_noted = found.n_failures - found.n_without_note
    lines = [f"{found.n_failures} failures, {n_noted} with a note; {found.n_alone} are like no other"]
    if found.covered:
        covered = ", ".join(f"{mode} {count}" for mode, count in found.covered.items())
        lines.append(f"in groups that {path} covers: {covered}")
    if found.rare:
        more = len(found.rare) - N_RARE
        named = "; ".join(map(_rare, found.rare[:N_RARE])) + (f"; and {more} more" if more > 0 else "")
        lines.append(f"seen in too few failures to be proposed: {named}")
    seen = found.unseen
    if seen.chance is not None:
        lines.append(
            f"chance that the next failure is of no group yet: {seen.chance:.1%} [{seen.low:.1%}, {seen.high:.1%}]; "
            f"{seen.n_more} more failures would show about {seen.new_kinds:.0f} new groups"
        )
    if found.calls:
        lines.append(f"{found.calls} model calls")
    added = f"{len(found.proposed)} added to {path}: review them" if found.proposed else f"nothing to add to {path}"
    return [*lines, added]


def _rare(group: "Group") -> str:
    return f"{group.name} ({len(group.failures)}: {one_line(group.sentences[0])[:60]})"
