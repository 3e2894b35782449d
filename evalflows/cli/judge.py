"""Judge stored answers, pairs or items of production again, and print two judges side by side."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from evalflows.cli.late_commands import (
    CHANGES,
    FORMAT,
    VERBOSE_RUN,
    Detail,
    one_line_errors,
    print_json,
    stdout_for,
)
from evalflows.cli.output import Table, Text, cell_of_lines, console, echo, table
from evalflows.cli.sections import IN_BRIEF_SHOWN, Section, lines_section, print_sections
from evalflows.specs import hints
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.escaping import one_line
from evalflows.specs.moments import moment_in
from evalflows.store.records import from_json
from evalflows.store.store import Store, existing_store

if TYPE_CHECKING:
    from evalflows.analysis.two_judges import MetricOfTwo, TwoJudges
    from evalflows.engine.budget_parts import AnySpec
    from evalflows.reports.documents import PlannedCallsDocument
    from evalflows.store.queries.two_judges import TwoJudgements

SAME = "same"

FLIPS_SHOWN = 6
"""Examples of what is judged differently that are printed by default, the largest changes first."""

SHORT = 60
"""Characters of a text in the list of examples."""


@click.command()
@click.argument("judged", nargs=-1, metavar="[EXPERIMENT|COMPARISON]...")
@click.option(
    "--with",
    "judges",
    metavar="FILE",
    default=SAME,
    show_default=True,
    help="A YAML file with an evaluator, a list of evaluators, or a spec whose evaluators are used. same: the same "
    "judges again, without the ledger.",
)
@click.option("--in", "production", metavar="EVALUATION", help="Judge the items of a trace evaluation again.")
@click.option("--since", help="With --in: items that began since then, such as 2026-11-01 or 2026-11-01T08:00.")
@click.option("--until", help="With --in: only items that began until then. Default: now.")
@click.option("--compare-cost", is_flag=True, help="Print what the other judge saves, and what that loses.")
@click.option("--people", metavar="METRIC", help="Name of the human-label metric, if different.")
@click.option("--budget", type=click.FloatRange(0), metavar="USD", help="Maximum cost of judging (--set budget_usd).")
@click.option("--plan", "only_plan", is_flag=True, help="Print the estimated cost; judge nothing.")
@click.option("--stored", is_flag=True, help="Print the stored repeated judgements; judge nothing.")
@click.option("--texts", is_flag=True, help="Print the inputs and outputs whose judgements differ.")
@click.option("--all", "detail", flag_value="all", help="Print everything.")
@CHANGES
@FORMAT
@VERBOSE_RUN
def judge(
    judged: tuple[str, ...],
    judges: str,
    production: str | None,
    since: str | None,
    until: str | None,
    budget: float | None,
    only_plan: bool,
    stored: bool,
    changes: tuple[str, ...],
    form: str,
    verbose: bool,
    **shown: Any,
) -> None:
    """Judge stored answers again with other judges, without asking the target, and compare the judgements.

    EXPERIMENTS are names, ids or run groups with the same examples; of several runs, the first is the baseline. For a
    comparison, its pairs are judged again. Both judgements are kept, and no gate decides again.
    """
    with one_line_errors(verbose):
        existing_store()
        changes = (*changes, *(() if budget is None else (f"budget_usd={budget!r}",)))
        make_spec, incomplete = partial(_spec, judged, judges, (production, since, until), changes), None
        if stored:
            if len(names := [*judged, *([production] if production else [])]) != 1:
                raise InputError(f"--stored: got {len(names)} names, wanted one: the original or the second judging")
            (reference,) = names
        elif only_plan:
            os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
            from evalflows.cli.running import find_modules_here

            find_modules_here()
            _print_plan(make_spec(), form)
            return
        else:
            reference, incomplete = _judge(make_spec, form, verbose, shown["people"])
        _print(reference, form=form, **shown)
        if incomplete is not None:
            raise incomplete


def _spec(
    judged: Sequence[str], judges: str, window: tuple[str | None, str | None, str | None], changes: Sequence[str]
) -> "AnySpec":
    from evalflows.api.judging import spec_again
    from evalflows.engine.judging_again import load_judges
    from evalflows.specs.files import change_spec

    production, since, until = window
    bounds = moment_in("--since", since), moment_in("--until", until)
    given = None if judges == SAME else load_judges(judges)
    return change_spec(spec_again(judged, given, production, *bounds), changes, "judge")


def _judge(
    make_spec: Callable[[], "AnySpec"], form: str, verbose: bool, people: str | None
) -> tuple[str, IncompleteError | None]:
    """Judge by a spec, and return what it is found by, with the error if not all was judged."""
    from evalflows.analysis.two_judges import check_people
    from evalflows.cli.running import prepare_runs

    check_people(Store(), people)  # before anything is paid
    with stdout_for(form), prepare_runs(verbose) as watch:
        spec = make_spec()
        from evalflows.api.judging import run_again

        try:
            return run_again(spec, watch), None
        except IncompleteError as error:
            if not error.experiments:
                raise
            return error.experiments[0], error


def _print_plan(spec: "AnySpec", form: str) -> None:
    from evalflows.analysis.figures import usd
    from evalflows.engine.judging_again import planned_again
    from evalflows.specs.experiment import ExperimentSpec

    sentences: list[str] = []
    calls: Sequence[PlannedCallsDocument] = []
    judges = planned_again(spec)
    if isinstance(spec, ExperimentSpec):
        from evalflows.analysis.plan import cost_sentences
        from evalflows.api.planning import plan
        from evalflows.cli.plan import calls_table, plan_document

        planned = plan(spec)
        sentences, calls = [*cost_sentences(planned)], plan_document(planned)["calls"]
        judges = [judge for judge in judges if judge.metric in planned.total.unpriced]  # of the others it knows more
    if form == "json":
        print_json({"name": spec.name, "sentences": sentences, "calls": calls, "judges": judges})
        return
    for sentence in sentences:
        console().print(Text(sentence, style="bold"))
    for judge in judges:
        cost = (
            "an unknown amount" if judge.usd is None else f"about {usd(judge.usd)} USD, with as many tokens as before"
        )
        echo(one_line(f"{judge.metric} by {judge.model}: {judge.judgements} judgements, as before: {cost}"))
    if calls:
        console().print(calls_table(calls))
    elif not judges:
        echo("no judge makes model calls that can be counted")


def _print(
    reference: str,
    *,
    form: str = "table",
    people: str | None = None,
    compare_cost: bool = False,
    texts: bool = False,
    detail: Detail = None,
) -> None:
    """Print what was judged again beside what it was before."""
    from evalflows.analysis.two_judges import two_judges
    from evalflows.reports.two_judges import remarks_of, two_judges_document

    store = Store()
    record = two_judges(store, reference, people)
    if form == "json":
        print_json(two_judges_document(record))
        return
    remarks = remarks_of(record, with_cost=compare_cost)
    if compare_cost:
        remarks.sort(key=lambda remark: remark.about not in ("cost", "labels"))
    out = console()
    flips = [(metric, flip) for metric in record.metrics for flip in metric.flips]
    sections = [
        Section(items=record.metrics, draw=_judges_table, what="metric"),
        lines_section([Text(r.text, "bold" if r.is_loud else "") for r in remarks], is_apart=True),
        Section(
            items=flips if detail else flips[:FLIPS_SHOWN],
            draw=lambda some: _flips_table(store, record, some, with_texts=texts),
            what="example",
            least=None,
            count=len(flips),
            is_apart=True,
        ),
    ]
    print_sections(out, sections, 10_000 if detail else IN_BRIEF_SHOWN, "--stored --all")
    echo(f"\nkept: {hints.judged_again(record.after[0])}")


def _judges_table(metrics: Sequence["MetricOfTwo"]) -> Table:
    from evalflows.analysis.figures import figure
    from evalflows.reports.two_judges import each_text

    out = table("metric", "", "model", "judged", "failed", "mean", "a judgement", headings=3, wrapped=("model",))
    for metric in metrics:
        for when, judge, mean in (
            ("before", metric.before, metric.before_mean),
            ("now", metric.after, metric.after_mean),
        ):
            cells = [metric.metric if when == "before" else "", when, judge.judge_model or judge.evaluator]
            out.add_row(*cells, str(judge.n_judged), str(judge.n_failed), figure(mean, ""), each_text(judge))
    return out


def _flips_table(
    store: Store,
    record: "TwoJudges",
    flips: Sequence[tuple["MetricOfTwo", "TwoJudgements"]],
    *,
    with_texts: bool,
) -> Table:
    from evalflows.reports.two_judges import said_by, texts_of
    from evalflows.store.queries.labels import text_of

    said = texts_of(store, record, [flip for _, flip in flips]) if with_texts else {}
    out = table(
        "judged differently", "before", "now", "why, now", headings=1, wrapped=("judged differently", "why, now")
    )
    for metric, flip in flips:
        parts = [flip.example_id, f"({flip.repetition})" if flip.repetition else ""]
        parts += [flip.target or "" if len(record.before) > 1 else "", metric.metric if len(record.metrics) > 1 else ""]
        named = " ".join(filter(None, parts))
        texts = said.get(flip.unit)
        contents = (texts.inputs, texts.outputs) if texts else ()
        comment = one_line(flip.comment_after or "")
        shown = comment if len(comment) <= SHORT or with_texts else f"{comment[:SHORT]}…"
        out.add_row(
            cell_of_lines([named, *(one_line(text_of(from_json(text) or {})) for text in contents)]),
            said_by(metric, flip, "before"),
            said_by(metric, flip, "after"),
            shown,
        )
    return out
