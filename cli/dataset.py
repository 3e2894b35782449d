"""The datasets in the store: add, ls, show, diff. None of these loads Prefect."""

import click
from rich.text import Text

from cli.errors import one_line_errors
from cli.look import VERBOSE, console, table
from specs.columns import ExampleColumns
from specs.dataset import DatasetSpec
from specs.errors import InputError
from store.catalog import connect
from store.datasets import Difference, compare_examples, find_snapshot, grown, load_dataset
from store.parquet import Store
from store.records import ExampleRow
from store.rows import stem
from store.snapshots import current_snapshot, freeze, load_snapshot

SHOWN = 5
"""Examples that `show` prints, and ids that `diff` lists of each kind."""


@click.group()
def dataset() -> None:
    """The datasets in the store."""


def _fields(context: click.Context, parameter: click.Parameter, text: str | None) -> list[str] | None:
    return [name.strip() for name in text.split(",") if name.strip()] if text else None


@dataset.command()
@click.argument("path")
@click.option("--name", help="What the dataset is called; the file's name where left out.")
@click.option("--inputs", callback=_fields, help="The columns of the inputs, where the file has no `inputs`.")
@click.option("--reference", callback=_fields, help="The columns of the reference outputs.")
@click.option("--id", "id_", help="The column of the examples' ids.")
@click.option("--replace", is_flag=True, help="From now on the name stands for this file's rows alone.")
@VERBOSE
def add(
    path: str,
    name: str | None,
    inputs: list[str] | None,
    reference: list[str] | None,
    id_: str | None,
    replace: bool,
    verbose: bool,
) -> None:
    """Add the rows of a file (JSONL, JSON, CSV, Parquet) at PATH to a dataset, or make one of them.

    Examples that are there already keep their ids, so that experiments before and after can be compared on them.
    """
    with one_line_errors(verbose):
        store, name = Store(), name or stem(path)
        examples = load_dataset(store, DatasetSpec(path=path, columns=_columns(inputs, reference, id_))).every
        before = current_snapshot(store, name)
        old = load_snapshot(store, before) if before else []
        if not replace:
            examples = grown(old, examples, path)
        identity = freeze(store, examples, name=name, source=path)
        click.echo(f"{name}: {identity}, {len(examples)} examples; {_counts(compare_examples(old, examples))}")


@dataset.command("ls")
@VERBOSE
def list_(verbose: bool) -> None:
    """List the datasets."""
    with one_line_errors(verbose), connect() as catalog:
        rows = catalog.execute(
            "select name, snapshot_id, n_examples, splits::text, versions, source, since from datasets order by name"
        ).fetchall()
        if not rows:
            click.echo("no datasets yet: `evalflows dataset add FILE` makes one, and so does `evalflows run SPEC`")
            return
        out = table("dataset", "snapshot", "examples", "splits", "versions", "source", "since (UTC)")
        for name, snapshot, n, splits, versions, source, since in rows:
            shown = "" if splits == "{}" else splits
            out.add_row(name, snapshot, str(n), shown, str(versions), source, f"{since:%Y-%m-%d %H:%M}")
        console().print(out)


@dataset.command()
@click.argument("reference")
@VERBOSE
def show(reference: str, verbose: bool) -> None:
    """Show a dataset's versions, its checks, and its first examples; REFERENCE is its name or a snapshot's id."""
    with one_line_errors(verbose):
        store = Store()
        snapshot = find_snapshot(store, reference)
        examples = load_snapshot(store, snapshot)
        with connect() as catalog:
            versions = catalog.execute(_VERSIONS, [reference]).fetchall()
            checks = catalog.execute(_CHECKS, [snapshot]).fetchall()
        out = console()
        out.print(f"{snapshot}: {len(examples)} examples")
        for since, version, n, source in versions:
            out.print(f"  since {since:%Y-%m-%d %H:%M} UTC: {version}, {n} examples, from {source}")
        for passed, severity, message in checks:
            mark = "ok" if passed else "failed" if severity == "error" else "warning"
            out.print(Text(f"  {mark}: {message}", style="bold red" if mark == "failed" else ""))
        out.print(_listed(examples[:SHOWN]))


@dataset.command()
@click.argument("old")
@click.argument("new", required=False)
@VERBOSE
def diff(old: str, new: str | None, verbose: bool) -> None:
    """Show how NEW differs from OLD: names or snapshots. Of a name alone, its newest version from the one before."""
    with one_line_errors(verbose):
        store = Store()
        before, after = (
            (_previous(store, old), find_snapshot(store, old))
            if new is None
            else (
                find_snapshot(store, old),
                find_snapshot(store, new),
            )
        )
        found = compare_examples(load_snapshot(store, before), load_snapshot(store, after))
        click.echo(f"{before} -> {after}: {_counts(found)}")
        for sign, identities in (("+", found.added), ("-", found.removed), ("~", found.changed)):
            for identity in identities[:SHOWN]:
                click.echo(f"  {sign} {identity}")
            if len(identities) > SHOWN:
                click.echo(f"  {sign} … and {len(identities) - SHOWN} more")


def _columns(inputs: list[str] | None, reference: list[str] | None, id_: str | None) -> ExampleColumns | None:
    if inputs is None:
        if reference or id_:
            raise InputError("--reference and --id: wanted --inputs too, to say what is what")
        return None
    return ExampleColumns.model_validate({"inputs": inputs, "reference_outputs": reference or [], "id": id_})


def _counts(found: Difference) -> str:
    counts = ((len(found.added), "added"), (len(found.removed), "removed"), (len(found.changed), "changed"))
    said = [f"{count} {what}" for count, what in counts if count]
    return ", ".join([*said, f"{found.same} as before"])


def _previous(store: Store, name: str) -> str:
    query = "select parent_snapshot_id from source.dataset_versions where name = ? order by recorded_at desc limit 1"
    rows = store.query(query, [name])
    if not rows or rows[0][0] is None:
        find_snapshot(store, name)  # raises for a name that there is not
        raise InputError(f"dataset {name!r}: has no version before this one, wanted a second name or snapshot")
    return str(rows[0][0])


def _listed(examples: list[ExampleRow]) -> object:
    out = table("id", "split", "inputs", "reference")
    for example in examples:
        out.add_row(example.example_id, example.split or "", example.inputs, example.reference_outputs or "")
    return out


_VERSIONS = """
select v.recorded_at, v.snapshot_id, s.n_examples, v.source
from dataset_versions v join snapshots s using (snapshot_id)
where v.name = $1 order by v.recorded_at desc
"""

_CHECKS = """
select passed, severity, message from checks
where subject_kind = 'snapshot' and subject_id = ? and (not passed or passed is null or severity = 'error')
order by passed nulls first, message
"""
