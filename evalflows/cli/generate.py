"""`dataset generate`: drafts from documents, or like some examples."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalflows.cli.late_commands import FORMAT, print_json, with_one_line_errors
from evalflows.cli.output import echo
from evalflows.specs import hints
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.escaping import json_text, one_line, print_note

if TYPE_CHECKING:
    from evalflows.analysis.generating import DraftCounts, Generation

_FILE = re.compile(r".+\.jsonl", re.IGNORECASE)


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "--to",
    "to",
    metavar="DATASET|FILE.jsonl",
    required=True,
    help="Dataset or new file for the drafts; created if missing.",
)
@click.option("--connection", required=True, help="The connection of the model that writes the drafts.")
@click.option("--model", help="Model to call. Default: the connection's model.")
@click.option("-n", "n", type=click.IntRange(min=1), default=50, show_default=True, help="Number of drafts to ask for.")
@click.option(
    "--kinds",
    metavar="KIND,…",
    help="Kinds of questions about documents, all equally often: simple, several, unanswerable, adversarial.  [all]",
)
@click.option("--inputs", help="Input columns of files of examples, if they have no column `inputs`: question,context.")
@click.option("--reference", help="Columns of their reference outputs: answer=best.")
@click.option("--besides", metavar="FILE", multiple=True, help="Leave out drafts like these examples. Repeatable.")
@click.option("--seed", type=int, default=0, help="Seed for the order of the passages.")
@click.option("--budget", type=click.FloatRange(0, min_open=True), metavar="USD", help="Maximum cost of the calls.")
@click.option("--plan", "only_plan", is_flag=True, help="Print the estimated cost; call no model.")
@FORMAT
@with_one_line_errors
def generate(
    sources: tuple[str, ...],
    to: str,
    connection: str,
    model: str | None,
    n: int,
    kinds: str | None,
    inputs: str | None,
    reference: str | None,
    besides: tuple[str, ...],
    seed: int,
    budget: float | None,
    only_plan: bool,
    form: str,
) -> None:
    """Let a model draft examples from documents, or like existing examples, for a person to accept.

    SOURCES are documents (Markdown, text, HTML, PDF), folders of them, and dataset files with a few examples. Drafts
    are left out of runs until somebody has accepted them on the page Review.
    """
    from evalflows.analysis import generating
    from evalflows.specs.columns import ExampleColumns
    from evalflows.specs.dataset import DatasetSpec
    from evalflows.store.dataset_versions import add_examples
    from evalflows.store.file_formats import READERS, suffix
    from evalflows.store.ingest import load_dataset
    from evalflows.store.snapshots import to_examples
    from evalflows.store.store import Store

    store, is_file = Store(), bool(_FILE.fullmatch(to))
    if Path(to).exists() if is_file else suffix(Path(to)) in READERS:
        why = "which exists, wanted a new file" if is_file else "wanted a file whose name ends in .jsonl"
        raise InputError(f"--to: got {to!r}, {why}, or a dataset's name")
    if is_file and not Path(to).absolute().parent.is_dir():
        raise InputError(f"--to: got {to!r}, in a missing folder, wanted an existing folder")
    if reference and not inputs:
        raise InputError("--reference: wanted --inputs too")
    generation = generating.planned(
        store,
        sources,
        connection,
        n=n,
        kinds=[] if kinds is None else [kind.strip() for kind in kinds.split(",")],
        columns=ExampleColumns.named(inputs, reference, None) if inputs else None,
        model=model,
        seed=seed,
        budget_usd=budget,
    )
    known = [
        row.inputs for path in besides for row in load_dataset(store, DatasetSpec(path=path, drafts=True)).examples
    ]
    if only_plan:
        _print_plan(generation, form)
        return
    print_note(_plan_text(generation))
    rows, counts = generating.generate(store, generation, None if is_file else to, known)
    snapshot, total = None, len(rows)
    if rows and is_file:
        write_rows(to, rows)
    elif rows:
        source = f"drafts by {generation.model} from {', '.join(sources)}"
        made = add_examples(store, to, to_examples(enumerate(rows, start=1), source), source=source)
        snapshot, total = made.snapshot, made.n_examples
    if form == "json":
        print_json({"to": to, "snapshot_id": snapshot, "counts": counts})
    else:
        _print(to, snapshot, total, counts)
    if not rows and counts.known < len(generation.tasks):
        raise IncompleteError(f"{to}: no draft was written, wanted at least one")


def write_rows(path: str, rows: Sequence[Mapping[str, Any]], *, replace: bool = False) -> None:
    """Write a dataset's file. Raise InputError for another ending, for one that exists, and if it cannot be written."""
    if not _FILE.fullmatch(path):
        raise InputError(f"{path}: wanted a file whose name ends in .jsonl")
    lines = (json_text({name: value for name, value in row.items() if value is not None}) for row in rows)
    try:
        with Path(path).open("w" if replace else "x", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except FileExistsError as error:
        raise InputError(f"{path}: exists, wanted another name or --replace") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def _plan_text(generation: "Generation") -> str:
    from evalflows.analysis.figures import usd
    from evalflows.llm.prices import LONG_ANSWER

    cost = "cost unknown" if generation.usd is None else f"at most about {usd(generation.usd)} USD"
    n, known = len(generation.tasks), len(generation.tasks) - len(generation.paid)
    calls = f"{n} call{'s' * (n != 1)} to {generation.model} ({generation.name})"
    if known:
        calls += f", of which {known} {'are' if known > 1 else 'is'} in the ledger and not paid again"
    if generation.connection.embedding_model:
        calls += ", and embeddings of the questions"
    return f"{calls}: {cost}, if no answer has more than {LONG_ANSWER} tokens"


def _print_plan(generation: "Generation", form: str) -> None:
    if form == "json":
        known = len(generation.tasks) - len(generation.paid)
        plan = {"model": generation.model, "connection": generation.name, "calls": len(generation.tasks)}
        costs = {"in_ledger": known, "usd_at_most": generation.usd, "budget_usd": generation.budget_usd}
        print_json(plan | costs)
        return
    echo(one_line(_plan_text(generation)))
    if generation.budget_usd is not None and (generation.usd or 0) > generation.budget_usd:
        echo(f"--budget {generation.budget_usd:g} may not be enough: fewer drafts would be written")


def _print(to: str, snapshot: str | None, total: int, counts: "DraftCounts") -> None:
    from evalflows.analysis.figures import usd

    kinds = ", ".join(f"{kind} {n}" for kind, n in counts.by_kind.items())
    where = f"{snapshot}, {total} example{'s' * (total != 1)}; " if snapshot else ""
    added = f"{counts.drafts} draft{'s' * (counts.drafts != 1)} added"
    echo(one_line(f"{to}: {where}{added}{f' ({kinds})' if kinds else ''}"))
    by = "by embeddings" if counts.by_meaning else "by their words; by meaning with pip install 'evalflows[embeddings]'"
    left_out = (
        (counts.known, "already in the dataset"),
        (counts.duplicates, f"near duplicates ({by})"),
        (counts.ungrounded, "whose quotations are not in the passages"),
        (counts.failed, f"failed: {counts.first_failure}"),
        (counts.not_asked, "not asked, since the budget is spent"),
    )
    if told := [f"{n} {what}" for n, what in left_out if n]:
        echo(one_line(f"  left out: {', '.join(told)}"))
    cost = "" if counts.usd is None else f", {usd(counts.usd)} USD"
    echo(f"  {counts.calls} call{'s' * (counts.calls != 1)} paid{cost}")
    if not counts.drafts:
        return
    if snapshot:
        echo(f"accept, edit or reject them on the page Review: {hints.dashboard().command}")
    else:
        echo(one_line(f"accept them by removing `draft`, or on the page Review after {hints.add_dataset(to).code}"))
