"""Compare experiments pair by pair, and show the results of a comparison."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from evalflows.cli.late_commands import (
    CHANGES,
    FORMAT,
    FRESH,
    STARTED_ANEW,
    VERBOSE_RUN,
    Detail,
    one_line_errors,
    print_json,
    stdout_for,
    with_detail,
)
from evalflows.cli.output import Table, Text, console, table
from evalflows.cli.sections import IN_BRIEF, Section, lines_section, print_sections
from evalflows.cli.show import P_VERDICT, links_here, print_next, styled
from evalflows.reports.comparison import ComparisonReport, Overview, RankedExperiment, WinRate, comparison_report
from evalflows.reports.documents import document
from evalflows.reports.markdown_pages import after_comparison
from evalflows.specs import hints
from evalflows.specs.errors import InputError
from evalflows.store.store import Store, existing_store

if TYPE_CHECKING:
    from evalflows.specs.comparison import ComparisonSpec


BUILT_IN = "pairwise_preference"
"""The default judge, and the only one that takes criteria."""

SMALL_RANKING = 6
"""A ranking of at most so many systems is printed whole."""

OF_JUDGES = {
    "judges": "judge",
    "connection": "connection",
    "model": "model",
    "criteria": "criteria",
    "both_orders": "both-orders",
}
"""Options about judges, by their parameters; votes have none."""


@click.command()
@click.argument("experiments", nargs=-1)
@click.option("--votes", help="File of votes on pairs of systems, instead of EXPERIMENTS and judges.")
@click.option("--judge", "judges", multiple=True, help="pairwise_preference (default) or module:name. Repeatable.")
@click.option("--connection", help="Connection used by the judges.")
@click.option("--model", help="Model used by the judges.")
@click.option("--criteria", multiple=True, help="Criterion for pairwise_preference, such as helpfulness. Repeatable.")
@click.option("--both-orders", is_flag=True, help="Judge each pair in both orders. Costs twice as much.")
@click.option("--baseline", help="Experiment that the others are compared with. Default: the first.")
@click.option("--by", multiple=True, help="Also win rates per value of a field, such as metadata.topic. Repeatable.")
@click.option("--name", help="Name of the comparison.")
@click.option("--run-key", help="A later call with the same key continues the comparison, and can add experiments.")
@CHANGES
@FRESH
@with_detail
@FORMAT
@VERBOSE_RUN
def compare(
    experiments: tuple[str, ...],
    changes: tuple[str, ...],
    fresh: bool,
    detail: Detail,
    form: str,
    verbose: bool,
    **options: Any,
) -> None:
    """Compare the answers of two or more EXPERIMENTS pair by pair, or rate systems by a file of votes.

    EXPERIMENTS are names, ids or run groups of existing experiments.
    A comparison can also be described by a file: `evalflows compare comparison.yaml`.
    """
    with one_line_errors(verbose):
        settings = [*changes, *(STARTED_ANEW if fresh else ())]
        spec = _spec(experiments, options, settings)
        if spec.votes is None:
            existing_store()
        run_comparison(spec, None, verbose, detail=detail, form=form)


def _spec(experiments: Sequence[str], options: dict[str, Any], changes: Sequence[str]) -> "ComparisonSpec":
    from evalflows.specs.comparison import ComparisonSpec, load_comparison
    from evalflows.specs.files import make_spec

    if len(experiments) == 1 and experiments[0].endswith((".yaml", ".yml")):
        if named := next((name for name, value in options.items() if value), None):
            raise InputError(f"--{named.replace('_', '-')}: the file sets it, wanted --set to change the file's value")
        return load_comparison(experiments[0], changes)
    if options["votes"]:
        return make_spec(ComparisonSpec, _of_votes(experiments, options), changes, "compare")
    if not experiments:
        raise InputError("compare: got no experiments, wanted two or more, or --votes FILE")
    uses = options["judges"] or [BUILT_IN]
    if options["criteria"] and BUILT_IN not in uses:
        raise InputError(f"--criteria: got judges that take no criteria ({', '.join(uses)}), wanted --judge {BUILT_IN}")
    judges = [_judge(use, options) for use in uses]
    fields = {
        "experiments": list(experiments),
        "evaluators": judges,
        "both_orders": options["both_orders"],
        "slice_by": list(options["by"]),
        **{name: options[name] for name in ("name", "baseline", "run_key") if options[name]},
    }
    return make_spec(ComparisonSpec, fields, changes, "compare")


def _of_votes(experiments: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    for name, option in OF_JUDGES.items():
        if options[name]:
            raise InputError(f"--{option}: got it with --votes, wanted one of the two")
    if experiments:
        raise InputError(f"--votes: got it with {', '.join(experiments)}, wanted --votes alone: it names the systems")
    named = {name: options[name] for name in ("name", "baseline", "run_key") if options[name]}
    return {"votes": {"path": options["votes"]}, "slice_by": list(options["by"]), **named}


def _judge(use: str, options: dict[str, Any]) -> dict[str, Any]:
    has_criteria = use == BUILT_IN and options["criteria"]
    args = {"args": {"criteria": list(options["criteria"])}} if has_criteria else {}
    return {"use": use, "connection": options["connection"], "model": options["model"], **args}


def run_comparison(
    spec: "ComparisonSpec", resume: str | None, verbose: bool, *, detail: Detail = None, form: str = "table"
) -> None:
    """Run a comparison and print its results."""
    from evalflows.cli.running import prepare_runs

    with stdout_for(form), prepare_runs(verbose) as watch:
        from evalflows import compare as run_flow

        comparison_id = run_flow(spec, resume, watch)
    show_comparison(comparison_id, IN_BRIEF, detail=detail, form=form)


def show_comparison(comparison_id: str, most: int, *, detail: Detail = None, form: str = "table") -> None:
    """Print a comparison and the command to run next."""
    report = comparison_report(Store(), comparison_id)
    command = after_comparison(Store(), report.overview)
    if form == "json":
        print_json(document([], comparison=report, next_command=command))
        return
    if detail is None:
        print_sections(console(), comparison_sections(report), most, hints.show_all(comparison_id).command)
    else:
        print_comparison(report, wide=detail == "wide")
    print_next(console(), command, links_here().comparison(comparison_id))


def comparison_sections(report: ComparisonReport, *, is_alone: bool = True) -> list[Section]:
    """Return the verdicts, the ranking of the judge that decides most pairs first, the win rates over all examples and
    those of slices that differ, then what is known of the judges. Below other results, only the verdicts and a small
    ranking stay however many lines there are."""
    verdicts, others = report.verdicts, report.remarks
    overall = [] if report.has_many_pairs else report.overall
    slices = [rate for rate in report.win_rates if not rate.is_overall]
    slices.sort(key=lambda rate: rate.conclusion not in ("better", "worse"))
    differing = sum(rate.conclusion in ("better", "worse") for rate in slices)
    ranking = report.ranking_by_decided if report.has_ranking else []
    of_first = sum(row.metric == ranking[0].metric for row in ranking)  # of the judge that decides most
    biases = [Text(bias.text, style="yellow" if bias.passed is False else "") for bias in report.known_biases]
    biases.sort(key=lambda text: text.style != "yellow")
    errors = [Text(f"  {count} x {evaluator}: {error}", "yellow") for evaluator, error, count in report.errors]
    return [
        lines_section(
            [Text(verdict, "bold") for verdict in verdicts],
            "verdict",
            least=min(4 if is_alone else 1, len(verdicts)),
            is_apart=is_alone,
        ),
        Section(
            items=ranking,
            draw=lambda rows: _ranking(rows, wide=False),
            what="rank",
            least=of_first if of_first <= SMALL_RANKING else SMALL_RANKING * is_alone,
            is_apart=True,
        ),
        Section(
            items=[*overall, *slices[:differing]],
            draw=_rates,
            what="win rate",
            least=min(4, len(overall)) * is_alone,
            count=len(overall) + len(slices),
            is_apart=True,
        ),
        lines_section([Text(text) for text in others], least=min(3, len(others)) * is_alone, is_apart=True),
        lines_section(biases, "judge check", least=min(1, len(biases)) * is_alone),
        lines_section(errors, "failure", least=min(1, len(errors)) * is_alone),
        lines_section(
            [_in_words(report.overview)], "status line", least=int(is_alone or report.overview.state != "completed")
        ),
    ]


def print_comparison(report: ComparisonReport, *, wide: bool = False) -> None:
    """Print win rates, the ranking, known judge biases, and a summary in sentences; with `wide` also p-values."""
    out = console()
    if wide or not report.has_many_pairs:
        out.print(_all_columns(report) if wide else _rates(report.win_rates))
    if report.has_ranking:
        out.print(_ranking(report.ranking, wide=wide))
    for sentence in report.sentences:
        out.print(Text(sentence, style="bold"))
    for bias in report.known_biases:
        out.print(Text(bias.text, style="yellow" if bias.passed is False else ""))
    out.print(_in_words(report.overview))
    if report.has_many_pairs and not wide:
        out.print(Text(f"all pairs of systems: {hints.show_all(report.overview.comparison_id)}"))
    for evaluator, error, count in report.errors:
        out.print(Text(f"  {count} x {evaluator}: {error}", style="yellow"))


def _rates(rates: Sequence[WinRate]) -> Table:
    """Return one row per pair of experiments, and per slice; the number of missing pairs only if there are any."""
    has_slices, has_missing = any(map(_slice, rates)), any(rate.missing for rate in rates)
    columns = ("metric", "candidate", "baseline", *(("on",) if has_slices else ()), "win rate", "wins/ties/losses")
    out = table(*columns, *(("missing",) if has_missing else ()), "verdict", headings=3, wrapped=("verdict",))
    for rate in rates:
        cells = [rate.metric, rate.candidate, rate.baseline, *([_slice(rate)] if has_slices else []), rate.rate_text]
        cells += ["" if rate.length_controlled else f"{rate.wins}/{rate.ties}/{rate.losses}"]
        cells += [rate.counts[-1]] if has_missing else []
        out.add_row(*cells, styled(rate.verdict_text, rate.conclusion))
    return out


def _all_columns(report: ComparisonReport) -> Table:
    counted = ("counted",) if any(rate.discrete_win_rate is not None for rate in report.win_rates) else ()
    columns = ("metric", "candidate", "baseline", "on", "win rate", *counted, "wins", "ties", "losses", "missing")
    out = table(*columns, *P_VERDICT, headings=4, wrapped=("verdict",))
    for rate in report.win_rates:
        cells = [rate.metric, rate.candidate, rate.baseline, _slice(rate), rate.rate_text]
        cells += [*([rate.discrete_text] if counted else []), *rate.counts]
        out.add_row(*cells, rate.p_text, rate.p_adjusted_text, styled(rate.verdict_text, rate.conclusion))
    return out


def _slice(rate: WinRate) -> str:
    return "" if rate.what == "all" else rate.what


def _ranking(ranking: Sequence[RankedExperiment], *, wide: bool) -> Table:
    columns = ("metric", "rank", "experiment", "rating", "win rate over all")
    out = table(*columns, *(("wins", "ties", "losses") if wide else ()), headings=1)
    for row in ranking:
        counts = [str(count) for count in (row.wins, row.ties, row.losses) if wide]
        out.add_row(row.metric, row.rank_text, row.experiment, row.rating_text, row.rate_text, *counts)
    return out


def _in_words(overview: Overview) -> Text:
    text = Text(f"{overview.name} ({overview.comparison_id}) ")
    text.append(overview.state, style="green" if overview.state == "completed" else "bold red")
    return text.append(f": {overview.progress_text}")
