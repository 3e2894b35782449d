"""The datasets in the store: add, export, from-traces, ls, show, diff. No command here loads Prefect."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from evalflows.cli.generate import generate, write_rows
from evalflows.cli.late_commands import FORMAT, print_json, with_one_line_errors
from evalflows.cli.output import Text, console, echo, table
from evalflows.cli.stores import store_to_list
from evalflows.reports.datasets import dataset_versions, difference_text, listed_datasets, snapshot_checks
from evalflows.specs import hints
from evalflows.specs.attachments import opened_text
from evalflows.specs.columns import ExampleColumns
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError, short
from evalflows.specs.escaping import one_line
from evalflows.specs.moments import moment_in
from evalflows.store.attachments import content_in
from evalflows.store.dataset_versions import add_examples, compare_examples, field_changes, row_of
from evalflows.store.file_formats import stem
from evalflows.store.ingest import find_snapshot, load_dataset
from evalflows.store.records import ExampleRow, from_json, to_json
from evalflows.store.schemas import is_erased
from evalflows.store.snapshots import hide_dataset, load_snapshot
from evalflows.store.store import Store, existing_store

if TYPE_CHECKING:
    from evalflows import TraceDataset

CHANGES_SHOWN = 5
"""How many examples `show` prints, and how many ids of each kind `diff` prints."""


@click.command("from-traces")
@click.option("--name", required=True, help="Name of the dataset; created if missing.")
@click.option("--scope", type=click.Choice(["traces", "sessions"]), default="traces", help="What one example is.")
@click.option("--where", help="Condition on the items in SQL: \"version = '1.4'\".")
@click.option("--filter", "filter_", help='Condition on the items in JSON: {"tags": ["production"]}.')
@click.option("--since", help="Start of the range of start times, such as 2026-11-01 or 2026-11-01T08:00.")
@click.option("--until", help="End of the range of start times.")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of different inputs.")
@click.option(
    "--order",
    type=click.Choice(["newest", "worst", "uncertain", "random"]),
    default="newest",
    show_default=True,
    help="Which come first: worst and uncertain go by the scores of --metric.",
)
@click.option("--metric", help="The metric of the orders worst and uncertain.")
@click.option("--seed", type=int, default=0, help="Seed of the random order.")
@click.option("--mapper", help="A function module:name, or paths: input=input.question,expected_output=metadata.best.")
@click.option(
    "--turns",
    type=click.Choice(["whole", "next"]),
    help="For sessions: an example of each conversation (the default), or of each turn of the assistant.",
)
@click.option("--keep-output-as-reference", is_flag=True, help="Use the application's answer as the reference.")
@click.option(
    "--as-users",
    metavar="CONNECTION",
    help="For sessions: let this connection's model draw the user of each, as a draft.",
)
@click.option("--model", help="Model for --as-users. Default: the connection's model.")
@click.option(
    "--mask", multiple=True, metavar="NAME=REGEX", help="Mask what matches, too: ticket='T-\\d+'. May be repeated."
)
@FORMAT
@with_one_line_errors
def from_traces(
    name: str,
    where: str | None,
    filter_: str | None,
    since: str | None,
    until: str | None,
    mapper: str | None,
    mask: tuple[str, ...],
    form: str,
    **selection: object,
) -> None:
    """Add production's traces or sessions to a dataset as a new version of it, or create the dataset.

    Duplicates and traces whose input was not captured are left out. API keys, e-mail addresses, phone and card numbers
    and the like become placeholders before anything is written. Examples already in the dataset keep their ids.
    """
    if where is not None and filter_ is not None:
        raise InputError("--where and --filter: wanted one of them")
    began = (moment_in("--since", since), moment_in("--until", until))
    patterns = _pairs("--mask", mask)
    from evalflows import dataset_from_traces
    from evalflows.cli.running import find_modules_here

    find_modules_here()  # for the mapper
    added = dataset_from_traces(
        name,
        filter=filter_ if where is None else where,
        mapper=_mapper(mapper),
        mask=patterns,
        since=began[0],
        until=began[1],
        **selection,  # type: ignore[arg-type]  # its options are those of the function
    )
    if form == "json":
        print_json(added)
    else:
        _print_added(added)
        if selection.get("as_users") and added.counts.added:
            echo(f"accept, edit or reject them on the page Review: {hints.dashboard().command}")


def _print_added(added: "TraceDataset") -> None:
    counts = added.counts
    kept = added.n_examples - counts.added
    echo(
        one_line(f"{added.name}: {added.snapshot}, {added.n_examples} examples; {counts.added} added, {kept} unchanged")
    )
    left_out = (
        (counts.known, "already in the dataset"),
        (counts.duplicates, "duplicates"),
        (counts.not_captured, "not captured"),
        (counts.unscored, "without a score"),
        (counts.failed, f"could not be mapped: {counts.first_failure}"),
    )
    if told := [f"{n} {what}" for n, what in left_out if n]:
        echo(one_line(f"  left out: {', '.join(told)}"))
    if counts.masked:
        kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(counts.masked.items()))
        echo(one_line(f"  masked: {kinds}"))


def _mapper(text: str | None) -> str | dict[str, str] | None:
    """Return a function's name as it is, and paths by field."""
    if text is None or "=" not in text:
        return text
    return _pairs("--mapper", text.split(","))


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return what texts such as `name=value` say. Raise InputError for others, and for a name given twice."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value or name.strip() in pairs:
            raise InputError(f"{option}: got {text!r}, wanted NAME=VALUE, each name once")
        pairs[name.strip()] = value
    return pairs


@click.group()
def dataset() -> None:
    """Add, generate, list, show and compare datasets."""


dataset.add_command(from_traces)
dataset.add_command(generate)


@dataset.command()
@click.argument("path")
@click.option("--name", help="Name of the dataset. Default: the file name without its extension.")
@click.option("--inputs", help="Input columns, if the file has no column `inputs`: question,context or question=text.")
@click.option("--reference", help="Columns of the reference outputs, in the same form: answer=best.")
@click.option("--id", "id_", help="Column with the example ids.")
@click.option("--replace", is_flag=True, help="Replace the examples of the dataset instead of adding to them.")
@FORMAT
@with_one_line_errors
def add(
    path: str, name: str | None, inputs: str | None, reference: str | None, id_: str | None, replace: bool, form: str
) -> None:
    """Add the rows of the file at PATH (JSONL, JSON, CSV, Parquet) to a dataset, or create the dataset.

    Examples already in the dataset keep their ids, so experiments before and after can be compared on them.
    """
    store, name = Store(), name or stem(path)
    examples = load_dataset(
        store, DatasetSpec(path=path, columns=_columns(inputs, reference, id_), drafts=True)
    ).examples
    made = add_examples(store, name, examples, source=path, replace=replace)
    if form == "json":
        print_json({"name": name, **asdict(made)})
        return
    counts = difference_text(made.difference)
    echo(one_line(f"{name}: {made.snapshot}, {made.n_examples} examples; {counts}"))


@dataset.command()
@click.argument("reference")
@click.argument("path", metavar="FILE.jsonl")
@click.option("--drafts", is_flag=True, help="Write drafts too, which nobody has accepted yet.")
@click.option("--replace", is_flag=True, help="Replace an existing file.")
@FORMAT
@with_one_line_errors
def export(reference: str, path: str, drafts: bool, replace: bool, form: str) -> None:
    """Write the examples of a dataset, or of a snapshot, to a file that `add` and specs read; without drafts.

    The file includes pictures, sounds and PDFs, as data URLs.
    """
    store = existing_store()
    examples = load_snapshot(store, find_snapshot(store, reference))
    unaccepted = frozenset(() if drafts else examples.drafts())
    kept = (row for place, row in enumerate(examples) if place not in unaccepted and not is_erased(row.inputs))
    rows = [from_json(opened_text(to_json(row_of(row)), partial(content_in, store))) for row in kept]
    if not rows:
        raise InputError(f"dataset {reference!r}: got only drafts ({len(unaccepted)}), wanted --drafts to write them")
    write_rows(path, rows, replace=replace)
    if form == "json":
        print_json({"path": path, "n_examples": len(rows), "n_drafts_left_out": len(unaccepted)})
        return
    left_out = f"; {len(unaccepted)} drafts left out" if unaccepted else ""
    echo(one_line(f"{path}: {len(rows)} examples{left_out}"))


@dataset.command("ls")
@click.option("--all", "with_deleted", is_flag=True, help="Also deleted datasets.")
@FORMAT
@with_one_line_errors
def list_(with_deleted: bool, form: str) -> None:
    """List the datasets."""
    with store_to_list() as store:
        found = listed_datasets(store, with_deleted=with_deleted)
    if form == "json":
        print_json([{**asdict(row), "splits": row.by_split} for row in found])
        return
    if not found:
        echo(f"no datasets yet: {hints.add_dataset().code} or {hints.run().code} creates one")
        return
    columns = ("dataset", "snapshot", "examples", "splits", "versions", "source", "since (UTC)", "deleted (UTC)")
    out = table(*columns[: 7 + with_deleted], headings=2, wrapped=("splits", "source"))
    for row in found:
        shown = "" if row.splits == "{}" else row.splits
        counts = (str(row.n_examples), shown, str(row.versions))
        times = [f"{time:%Y-%m-%d %H:%M}" if time else "" for time in (row.since, row.deleted)]
        out.add_row(row.name, row.snapshot_id, *counts, row.source, *times[: 1 + with_deleted])
    console().print(out)


@dataset.command()
@click.argument("name")
@with_one_line_errors
def delete(name: str) -> None:
    """Hide a dataset and free its NAME. Its versions stay, and so does what ran on them: `dataset ls --all` lists it.

    `dataset add` with the same name begins another one.
    """
    hide_dataset(existing_store(), name, "dataset delete")
    echo(one_line(f"{name}: deleted; its versions stay"))


@dataset.command()
@click.argument("reference")
@FORMAT
@with_one_line_errors
def show(reference: str, form: str) -> None:
    """Show a dataset's versions, checks and first examples. REFERENCE is a dataset name or a snapshot id."""
    store = existing_store()
    snapshot = find_snapshot(store, reference)
    examples, versions = load_snapshot(store, snapshot), dataset_versions(store, reference)
    checks, first = snapshot_checks(store, snapshot), examples[:CHANGES_SHOWN]
    if form == "json":
        texts = ("inputs", "reference_outputs", "metadata")
        rows = [{**asdict(row), **{name: from_json(getattr(row, name)) for name in texts}} for row in first]
        counted = {"snapshot_id": snapshot, "n_examples": len(examples)}
        print_json({**counted, "versions": versions, "checks": checks, "first_examples": rows})
        return
    out = console()
    drafts = f", of which {n} are drafts" if (n := len(examples.drafts())) else ""
    out.print(f"{snapshot}: {len(examples)} examples{drafts}")
    for version in versions:
        since = f"{version.recorded_at:%Y-%m-%d %H:%M}"
        out.print(f"  since {since} UTC: {version.snapshot_id}, {version.n_examples} examples, from {version.source}")
    for check in checks:
        out.print(Text(f"  {check.mark}: {check.message}", style="bold red" if check.mark == "failed" else ""))
    out.print(_listed(first))


@dataset.command()
@click.argument("old")
@click.argument("new", required=False)
@FORMAT
@with_one_line_errors
def diff(old: str, new: str | None, form: str) -> None:
    """Show how NEW differs from OLD, both dataset names or snapshot ids.

    Without NEW, compare the newest version of dataset OLD with the version before it.
    """
    store = existing_store()
    before, after = (
        (_previous(store, old), find_snapshot(store, old))
        if new is None
        else (find_snapshot(store, old), find_snapshot(store, new))
    )
    old_examples, new_examples = load_snapshot(store, before), load_snapshot(store, after)
    difference = compare_examples(old_examples, new_examples)
    if form == "json":
        print_json({"old": before, "new": after, **asdict(difference)})
        return
    echo(f"{before} -> {after}: {difference_text(difference)}")
    for sign, identities in (("+", difference.added), ("-", difference.removed), ("~", difference.changed)):
        shown = {*identities[:CHANGES_SHOWN]} if sign == "~" else set()
        old_of, new_of = (
            {row.example_id: row for row in examples if row.example_id in shown}
            for examples in (old_examples, new_examples)
        )
        for identity in identities[:CHANGES_SHOWN]:
            echo(one_line(f"  {sign} {identity}"))
            if identity in shown:
                for change in field_changes(old_of[identity], new_of[identity]):
                    echo(one_line(f"      {change.path}: {short(change.old)} -> {short(change.new)}"))
        if len(identities) > CHANGES_SHOWN:
            echo(f"  {sign} … and {len(identities) - CHANGES_SHOWN} more")


def _columns(inputs: str | None, reference: str | None, id_: str | None) -> ExampleColumns | None:
    if not inputs:
        if reference or id_:
            raise InputError("--reference and --id: wanted --inputs too")
        return None
    return ExampleColumns.named(inputs, reference, id_)


def _previous(store: Store, name: str) -> str:
    query = "select parent_snapshot_id from source.dataset_versions where name = ? order by recorded_at desc limit 1"
    rows = store.query(query, [name])
    if not rows or rows[0][0] is None:
        find_snapshot(store, name)  # raises if there is no such dataset
        raise InputError(f"dataset {name!r}: has only one version, wanted a second name or snapshot to compare with")
    return str(rows[0][0])


def _listed(examples: list[ExampleRow]) -> object:
    out = table("id", "split", "inputs", "reference", headings=1, wrapped=("inputs", "reference"))
    for example in examples:
        out.add_row(example.example_id, example.split or "", example.inputs, example.reference_outputs or "")
    return out
