"""Human labels: import them, validate judges against them, and choose what to label next."""

import io
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalflows.analysis.figures import figure
from evalflows.cli.late_commands import (
    FORMAT,
    VERBOSE_RUN,
    one_line_errors,
    print_json,
    stdout_for,
    with_one_line_errors,
)
from evalflows.cli.output import Text, console, echo, print_csv, table
from evalflows.cli.stores import store_to_list
from evalflows.reports.judges import JudgeReport, judge_reports
from evalflows.specs import hints
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import one_line, write_csv
from evalflows.store.labels import import_labels
from evalflows.store.queries.labels import effort_of, listed_batches
from evalflows.store.records import to_json
from evalflows.store.store import Store, existing_store

if TYPE_CHECKING:
    from evalflows.analysis.label_sampling import Order

PEOPLE = click.option(
    "--people", "--as", "people", metavar="METRIC", help="Name of the human-label metric, if different."
)


@click.group()
def labels() -> None:
    """Import human labels, and validate judges against them."""


@labels.command("import")
@click.argument("path", metavar="FILE")
@click.option("--metric", help="Metric of rows that name none.")
@click.option("--labeller", help="Labeller of rows that name none.")
@click.option("--machine", metavar="NAME", help="A program gave these labels: they never count as a person's.")
@FORMAT
@with_one_line_errors
def import_(path: str, metric: str | None, labeller: str | None, machine: str | None, form: str) -> None:
    """Import the labels of a FILE (CSV, JSON, JSONL, Parquet). On the first error, import nothing.

    A row has run_id, or experiment and example_id; value, label or feedback (up, down), or winner and
    other_experiment; and optionally metric, labeller, comment, labelled_at. Importing the same labels again changes
    nothing.
    """
    imported = import_labels(Store(), path, metric=metric, labeller=labeller, machine=machine)
    if form == "json":
        print_json(imported)
        return
    metrics = ", ".join(sorted({label.metric for label in imported.labels}))
    outcome = "already imported" if imported.already_imported else "imported"
    empty = f"; {imported.left_empty} rows without a label skipped" if imported.left_empty else ""
    echo(one_line(f"{len(imported.labels)} labels of {metrics} {outcome}{empty}"))


@labels.command("ls")
@FORMAT
@with_one_line_errors
def list_(form: str) -> None:
    """List the imported labels by file, and feedback by day, newest first."""
    with store_to_list() as store:
        rows = listed_batches(store)
    if form == "json":
        print_json(rows)
        return
    if not rows:
        echo(f"no labels yet: {hints.import_labels().code} imports some")
        return
    timed = any(row.n_timed for row in rows)
    efforts = ("took", "USD each") if timed else ()
    columns = ("from", "experiments", "metrics", "labels", *efforts, "labellers", "imported (UTC)")
    out = table(*columns, headings=2, wrapped=("from", "experiments", "metrics"))
    for row in rows:
        took = "" if row.median_seconds is None else f"{row.median_seconds:.0f} s"
        effort = (took, "" if row.usd_per_label is None else f"{row.usd_per_label:.2g}") if timed else ()
        counts, when = (str(row.n_labels), *effort, str(row.n_labellers)), f"{row.imported_at:%Y-%m-%d %H:%M}"
        out.add_row(row.source, row.experiments or "", row.metrics, *counts, when)
    console().print(out)


@labels.command()
@click.argument("experiment")
@click.argument("metric")
@PEOPLE
@FORMAT
@VERBOSE_RUN
def agreement(experiment: str, metric: str, people: str | None, form: str, verbose: bool) -> None:
    """Validate the judges of a METRIC against human labels: agreement, bias, and the mean people would give overall.

    EXPERIMENT is the id or name of an experiment, a comparison or a trace evaluation.
    """
    from evalflows.cli.running import prepare_runs

    with one_line_errors(verbose):
        existing_store()
        with stdout_for(form), prepare_runs(verbose):
            from evalflows.api.calling import flow_settings
            from evalflows.flows.validate_judge import compare_with_people

            with flow_settings():
                batch = compare_with_people(experiment, metric, people)
        reports, effort = judge_reports(Store(), batch), effort_of(Store(), experiment, metric, people or metric)
        if form == "json":
            more = {"effort": asdict(effort)}
            shown = ({**asdict(one), "judge": one.judge, "sentences": one.sentences, **more} for one in reports)
            print_json([*shown])
            return
        for report in reports:
            _print(report)
        if effort.sentence:
            echo(effort.sentence)


@labels.command("next")
@click.argument("experiment")
@click.argument("metric")
@PEOPLE
@click.option("--n", type=click.IntRange(min=1), default=20, show_default=True, help="Number of runs or traces.")
@click.option(
    "--order",
    type=click.Choice(["mixed", "random", "informative"]),
    default="mixed",
    show_default=True,
    help="random: only a random sample, which estimates use; informative: only runs of which the judge is least sure; "
    "mixed: half of each.",
)
@click.option(
    "--disagree",
    is_flag=True,
    help="METRIC is a composite: take runs that some of its possible weights put above the median and others below. "
    "Their labels show which weights are right: `calibrate --labels`.",
)
@click.option(
    "--since", type=click.DateTime(["%Y-%m-%d"]), help="Of a trace evaluation, only traces begun on that day or later."
)
@click.option("--out", metavar="FILE.csv", help="Output file. Default: standard output.")
@with_one_line_errors
def next_(
    experiment: str,
    metric: str,
    people: str | None,
    n: int,
    order: "Order",
    disagree: bool,
    since: datetime | None,
    out: str | None,
) -> None:
    """Write the runs or traces to label next as CSV: fill in the column `value`, then import the file.

    EXPERIMENT is the id or name of an experiment or a trace evaluation.

    By default, half are a random sample, which all estimates use, and half are runs of which the judge of METRIC is
    least sure.
    """
    from evalflows.analysis.label_sampling import next_to_label

    existing_store()
    if disagree and order != "mixed":
        raise InputError(f"labels next: got --disagree with --order {order}, wanted one of the two")
    chosen_by: Order = "disagree" if disagree else order
    selection = next_to_label(experiment, metric, people or metric, n, chosen_by, since and since.date())
    if not selection.rows:
        echo(one_line(f"every judged {selection.item} of {selection.name} has a label of {people or metric}"), err=True)
        return
    columns, rows = [*selection.rows[0]], [row.values() for row in selection.rows]
    if out is None:
        print_csv(columns, rows)
    else:
        text = io.StringIO()
        write_csv(text, columns, rows)
        _write_new(Path(out), text.getvalue())
    echo(selection.text, err=True)


@labels.command()
@click.argument("experiment")
@click.argument("metric")
@PEOPLE
@click.option("--out", metavar="FILE.jsonl", help="Output file. Default: standard output.")
@with_one_line_errors
def anchors(experiment: str, metric: str, people: str | None, out: str | None) -> None:
    """Write the labelled answers of an EXPERIMENT as anchors of the judge of METRIC.

    Name the file as `anchors` of the judge: it then judges some of them again in every run, so that its drift shows.
    Answers on which people are evenly split are left out.
    """
    from evalflows.store.queries.labels import anchor_rows

    found = anchor_rows(existing_store(), experiment, people or metric)
    if not found:
        got = f"got none of {people or metric!r} in {experiment!r}"
        raise InputError(f"labels: {got}, wanted some: {hints.import_labels().code} imports them")
    text = "".join(f"{to_json(row)}\n" for row in found)
    if out is None:
        echo(text, nl=False)
    else:
        _write_new(Path(out), text)
        echo(f"{len(found)} anchors; next: `anchors: {out}` of the evaluator of {metric}", err=True)


@labels.command()
@FORMAT
@with_one_line_errors
def judges(form: str) -> None:
    """List all judges with human labels, by label metric, best agreement first.

    Several people's labels of an item count once, by majority.
    """
    from evalflows.analysis.labels import judge_standings

    with store_to_list() as store:
        standings = judge_standings(store)
    if form == "json":
        print_json(standings)
        return
    if not standings:
        echo(f"no judge has human labels yet: {hints.import_labels().code} imports some")
        return
    columns = ("label metric", "judge", "model", "metric", "agreement", "kappa", "correlation", "bias")
    out = table(*columns, "items", "labels", "version", headings=4)
    for judge in standings:
        numbers = (figure(judge.kappa, ""), figure(judge.correlation, ""), figure(judge.bias, "", signed=True))
        n = f"{judge.n_labels} (feedback)" if judge.from_feedback else str(judge.n_labels)
        share = "-" if judge.agreement is None else f"{judge.agreement:.1%}"
        cells = (judge.people_metric, judge.evaluator, judge.judge_model, judge.metric, share)
        out.add_row(*cells, *numbers, str(judge.n_items), n, judge.evaluator_version[:8])
    console().print(out)


def _write_new(target: Path, text: str) -> None:
    """Write a new file. Raise InputError if it exists: it may contain labels."""
    try:
        with target.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError(f"{target}: exists and may contain labels, wanted another name") from error
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error


def _print(report: JudgeReport) -> None:
    out, observed = console(), report.observed
    of = "" if observed["people_metric"] == report.metric else f" (people: {observed['people_metric']})"
    title = f"{report.judge}, {report.metric}{of}, in {observed['name']}: "
    out.print(Text(f"{title}{observed['n_labelled']} labelled of {observed['n_judged']} judged", style="bold"))
    interval = f"interval ({observed['confidence_level']:.0%})"
    figures = table("", "value", interval, wrapped=(interval,))
    for line in report.lines:
        figures.add_row(*line)
    out.print(figures)
    if report.confusion:
        header, rows = report.confusion
        counts = table(*header, headings=1)
        for row in rows:
            counts.add_row(*row)
        out.print(counts)
    if report.means:
        means = table("", "value", interval, "from", wrapped=("from",))
        for mean in report.means:
            means.add_row(*mean)
        out.print(means)
    for sentence in report.sentences:
        out.print(Text(sentence, style="yellow" if report.passed is False else ""))
