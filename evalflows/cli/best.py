"""Which of several variants is best, corrected for the search. Nothing here loads Prefect."""

from dataclasses import asdict

import click

from evalflows.analysis.figures import figure
from evalflows.cli.late_commands import FORMAT, print_json, with_one_line_errors
from evalflows.cli.output import Text, console, table
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.store import existing_store


@click.command()
@click.argument("experiments", nargs=-1, required=True, metavar="EXPERIMENT...")
@click.option("--metric", help="The metric. Default: the only metric of an evaluator.")
@click.option("--baseline", metavar="EXPERIMENT", help="Baseline of the gain. Default: the first.")
@FORMAT
@with_one_line_errors
def best(experiments: tuple[str, ...], metric: str | None, baseline: str | None, form: str) -> None:
    """Find the best of several variants that ran on the same examples, and its corrected mean and gain.

    EXPERIMENTS are ids, id prefixes, names, or run groups. The variant with the highest mean was also lucky: its mean
    and its gain are corrected for the selection. Variants that cannot be told apart from the best are listed. A missing
    value counts against its own variant.
    """
    from evalflows.analysis.best import best_of  # late: specs are slow to import

    store = existing_store()
    ids = [identity for reference in experiments for identity in find_experiments(store, reference)]
    base = find_experiments(store, baseline, just_one=True)[0] if baseline else None
    found = best_of(store, ids, metric, base)
    if form == "json":
        print_json({**asdict(found), "sentences": found.sentences})
        return
    out = console()
    for sentence in found.sentences:
        out.print(Text(sentence, style="bold"))
    out.print()
    lacks = any(variant.n_missing for variant in found.variants)
    rows = table(
        "variant", *(("missing", "worst case", "best case") if lacks else ("mean",)), "may be the best", headings=1
    )
    for variant in found.variants:
        may_be = {True: "yes", False: "no", None: "unknown"}[variant.may_be_best]
        mean, best_case = (figure(mean, found.metric) for mean in (variant.mean, variant.best_case))
        rows.add_row(variant.name, *((str(variant.n_missing), mean, best_case) if lacks else (mean,)), may_be)
    out.print(rows)
