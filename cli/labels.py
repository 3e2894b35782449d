"""People's labels: import them, hold judges against them, and say what to label next."""

import csv
import io
from pathlib import Path

import click
from rich.text import Text

from cli.errors import one_line_errors
from cli.look import VERBOSE, VERBOSE_RUN, console, table
from specs.errors import InputError
from store.judge_report import JudgeReport, judge_reports, judge_standings
from store.labels import import_labels
from store.parquet import Store
from store.people import listed_batches
from store.results import figure

PEOPLE = click.option(
    "--people", "--as", "people", metavar="METRIC", help="What people's labels are called, if not so."
)


@click.group()
def labels() -> None:
    """What people say, and judges held against it."""


@labels.command("import")
@click.argument("path", metavar="FILE")
@click.option("--metric", help="What was judged, for rows that do not say it.")
@click.option("--labeller", help="Who did, for rows that do not say it.")
@VERBOSE
def import_(path: str, metric: str | None, labeller: str | None, verbose: bool) -> None:
    """Keep the labels of a FILE (CSV, JSON, JSONL, Parquet): all of them, or none and the first mistake.

    A row has run_id, or experiment and example_id; value, label or feedback (up, down), or winner and
    other_experiment; and may have metric, labeller, comment, labelled_at. The same labels again change nothing.
    """
    with one_line_errors(verbose):
        done = import_labels(Store(), path, metric=metric, labeller=labeller)
        metrics = ", ".join(sorted({label.metric for label in done.labels}))
        said = "were there already" if done.was_there else "imported"
        empty = f"; {done.left_empty} rows without a label are left out" if done.left_empty else ""
        click.echo(f"{len(done.labels)} labels of {metrics} {said}{empty}")


@labels.command("ls")
@VERBOSE
def list_(verbose: bool) -> None:
    """List what was imported, the newest first."""
    with one_line_errors(verbose):
        rows = listed_batches(Store())
        if not rows:
            click.echo("no labels yet: `evalflows labels import FILE` keeps some")
            return
        out = table("from", "metrics", "labels", "labellers", "experiments", "imported (UTC)", "batch")
        for batch, source, metrics, n, labellers, experiments, at in rows:
            out.add_row(source, metrics, str(n), str(labellers), experiments or "", f"{at:%Y-%m-%d %H:%M}", batch)
        console().print(out)


@labels.command()
@click.argument("experiment")
@click.argument("metric")
@PEOPLE
@VERBOSE_RUN
def agreement(experiment: str, metric: str, people: str | None, verbose: bool) -> None:
    """Hold the judge of a METRIC against people: agreement, bias, and what people would say of everything.

    EXPERIMENT is one, or a comparison, by id or name.
    """
    from cli.running import prepared

    with one_line_errors(verbose):
        with prepared(verbose, experiment):
            from flows.judge_people import compare_with_people

            batch = compare_with_people(experiment, metric, people)
        for report in judge_reports(Store(), batch):
            _print(report)


@labels.command("next")
@click.argument("experiment")
@click.argument("metric")
@PEOPLE
@click.option("--n", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--out", metavar="FILE.csv", help="Where to write them; standard output where left out.")
@VERBOSE
def next_(experiment: str, metric: str, people: str | None, n: int, out: str | None, verbose: bool) -> None:
    """Write a form (CSV) of the runs to label next: fill in `value`, and import it.

    Half of them are a fair sample, on which all figures rest; half are those of which the judge of METRIC is least
    sure.
    """
    with one_line_errors(verbose):
        from flows.labelling import next_to_label

        found = next_to_label(experiment, metric, people or metric, n)
        if not found.rows:
            click.echo(f"every judged run of {found.name} has a label of {people or metric}", err=True)
            return
        text = io.StringIO()
        writer = csv.DictWriter(text, [*found.rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(found.rows)
        if out is None:
            click.echo(text.getvalue(), nl=False)
        else:
            _write_new(Path(out), text.getvalue())
        unsure = len(found.rows) - found.n_fair
        click.echo(
            f"{found.n_fair} drawn fairly, {unsure} as the judge is unsure; {found.left} more have none", err=True
        )


@labels.command()
@VERBOSE
def judges(verbose: bool) -> None:
    """List all judges beside which there are labels, the best first for each thing that people were asked."""
    with one_line_errors(verbose):
        found = judge_standings(Store())
        if not found:
            click.echo("no judge has labels beside it: `evalflows labels import FILE` keeps some")
            return
        out = table(
            "people's", "judge", "model", "metric", "agreement", "kappa", "correlation", "bias", "labels", "version"
        )
        for one in found:
            numbers = (figure(one.kappa, ""), figure(one.correlation, ""), figure(one.bias, "", signed=True))
            n = f"{one.n_labels} (feedback)" if one.from_feedback else str(one.n_labels)
            cells = (one.people_metric, one.evaluator, one.judge_model, one.metric, f"{one.agreement:.1%}", *numbers)
            out.add_row(*cells, n, one.evaluator_version[:8])
        console().print(out)


def _write_new(target: Path, text: str) -> None:
    """Write a file that is not there yet: one that is may have labels in it. Raises InputError."""
    try:
        with target.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError(f"{target}: is there, and may have labels in it; wanted another name") from error
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error


def _print(report: JudgeReport) -> None:
    out, told = console(), report.told
    of = "" if told["people_metric"] == report.metric else f" (people: {told['people_metric']})"
    title = f"{report.judge}, {report.metric}{of}, in {told['name']}: "
    out.print(Text(f"{title}{told['n_labelled']} labelled of {told['n_judged']} judged", style="bold"))
    figures = table("", "value", f"interval ({told['level']:.0%})")
    for line in report.lines:
        figures.add_row(*line)
    out.print(figures)
    if report.confusion:
        header, rows = report.confusion
        counts = table(*header)
        for row in rows:
            counts.add_row(*row)
        out.print(counts)
    if report.means:
        means = table("", "value", f"interval ({told['level']:.0%})", "from")
        for mean in report.means:
            means.add_row(*mean)
        out.print(means)
    for sentence in report.sentences:
        out.print(Text(sentence, style="yellow" if report.passed is False else ""))
