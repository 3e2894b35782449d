"""Apply rules of retention. Does not load Prefect."""

from collections.abc import Sequence

import click

from evalflows.cli.documents import FORMAT, print_json
from evalflows.cli.errors import one_line_errors
from evalflows.cli.forget import COPIES, who
from evalflows.cli.show import VERBOSE
from evalflows.cli.tables import table
from evalflows.cli.terminal import console, echo
from evalflows.specs.retention import load_retention
from evalflows.store.erasing.retention import Retained, would_retain
from evalflows.store.erasing.retention import retain as apply_rules
from evalflows.store.existing import existing_store


@click.command()
@click.argument("spec", metavar="SPEC", type=click.Path())
@click.option("--yes", is_flag=True, help="Erase and remove. Without it, only say what is too old.")
@FORMAT
@VERBOSE
def retain(spec: str, form: str, verbose: bool, yes: bool) -> None:
    """Erase texts and remove experiments that are older than the rules of a SPEC file (YAML) allow.

    Says what is too old; --yes erases or removes it, which cannot be undone. Figures of erased texts stay. Baselines,
    decisions, comparisons, labels and the experiments that they refer to stay, and so do the newest of each name. What
    a process works on waits for the next time.
    """
    with one_line_errors(verbose):
        rules, store = load_retention(spec), existing_store()
        done = apply_rules(store, rules, who()) if yes else would_retain(store, rules)
        if form == "json":
            print_json([{"rule": one.rule, "rows": dict(one.rows), "experiments": [*one.experiments]} for one in done])
        else:
            _print(done, yes)


def _print(done: Sequence[Retained], yes: bool) -> None:
    if not any(one.rows for one in done):
        echo("nothing is too old")
        return
    rows = table("rule", "table", "rows", headings=1)
    for one in done:
        for name, count in one.rows.items():
            rows.add_row(one.rule, name, str(count))
    console().print(rows)
    for one in done:
        for experiment in one.experiments:
            echo(f"{'removed' if yes else 'to remove'}: {experiment}")
    if not yes:
        echo("nothing is erased or removed yet: --yes does it for good")
    echo(COPIES, err=True)
