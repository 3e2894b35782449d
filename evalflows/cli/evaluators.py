"""List, describe and try evaluators, without loading Prefect."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import yaml

from evalflows.cli.late_commands import print_json, with_one_line_errors
from evalflows.cli.output import Text, console, echo, print_csv, stdout_to_stderr, table
from evalflows.cli.running import find_modules_here, prepare_runs
from evalflows.specs import hints
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import NOT_ATTEMPTED, UNREACHABLE, IncompleteError, InputError, short
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric_names import TRIAL
from evalflows.specs.target import RecordedTarget
from evalflows.specs.yaml_loader import SpecLoader, yaml_problem
from evalflows.store.file_formats import parse_json, read_rows
from evalflows.store.records import JudgementRow
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.cli.described import Described
    from evalflows.engine.results import EvaluationResult
    from evalflows.llm.ledger import Usage

TABLE_CSV_JSON = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    help="json: exactly one document on standard output.",
)

EVALUATOR_COLUMNS = ("name", "judges_by", "scope", "asks_for", "reference", "returns", "about")
SCORE = ("metric", "turn", "value", "label", "comment", "status", "error")
SPENT = ("judge_model", "calls", "calls_cached", "tokens_in", "tokens_out", "cost_usd")

ANSWER = "outputs"
"""The field of the row, and of the kept example's metadata, that holds the answer."""


@click.command()
@click.argument("name", required=False)
@click.option("--try", "row", metavar="ROW", help="Evaluate a row: JSON text, or FILE:N for the Nth row of a file.")
@click.option("--keep", is_flag=True, help="With --try: keep the scores, as an experiment with the tag `trial`.")
@click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="A setting of the evaluator. Repeatable.")
@click.option("--connection", help="Connection of a model-based evaluator. Default: openai.")
@click.option("--model", help="Model to call. Default: the connection's model.")
@TABLE_CSV_JSON
@with_one_line_errors
def evaluators(
    name: str | None,
    row: str | None,
    keep: bool,
    changes: tuple[str, ...],
    connection: str | None,
    model: str | None,
    form: str,
) -> None:
    """List the evaluators that have a short name, or describe evaluator NAME.

    NAME is a short name, or your own module:name.
    With --try, run the evaluator on one row: {"inputs", "outputs", "reference_outputs", "metadata"}, with the answer
    under outputs. Model calls are paid for and recorded in the ledger; the scores are stored with --keep.
    """
    if name is None:
        given = {"--try": row, "--keep": keep, "--set": changes, "--connection": connection, "--model": model}
        for option, value in given.items():
            if value:
                raise InputError(f"{option}: wanted the name of an evaluator too")
        _list(form)
        return
    if ":" in name:
        find_modules_here()
    if keep and row is None:
        raise InputError("--keep: wanted --try too")
    if row is None:
        _describe(name, _settings(changes), form)
    else:
        _try(_spec(name, _settings(changes), connection, model), row, form, keep=keep)


def _settings(changes: Iterable[str]) -> dict[str, Any]:
    """Parse the settings given with `--set`; values are YAML."""
    settings = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set {change}: wanted key=value, such as ignore_case=true")
        try:
            settings[key.strip()] = yaml.load(text, SpecLoader)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise InputError(f"--set {change}: the value is not YAML: {yaml_problem(error)}") from error
    return settings


# List and describe


def _list(form: str) -> None:
    from evalflows.cli.described import built_in  # late: loading the evaluators would slow down other commands

    if form == "table":
        columns = [column.replace("_", " ") for column in EVALUATOR_COLUMNS]
        out = table(*columns, headings=1, wrapped=columns[3:])
        for evaluator in built_in():
            out.add_row(*(Text(cell, lines=True) for cell in _evaluator_cells(evaluator, ", ", "\n")))
        console().print(out)
    else:
        _print(built_in(), form)


def _describe(name: str, settings: Mapping[str, Any], form: str) -> None:
    from evalflows.cli.described import described

    evaluator = described(name, settings)
    if form == "json":
        print_json(_facts(evaluator))
        return
    if form == "csv":
        _print([evaluator], form)
        return
    cells = dict(zip(EVALUATOR_COLUMNS, _evaluator_cells(evaluator, ", ", "; "), strict=True))
    facts = [f"{column.replace('_', ' '):<11}{cells[column]}" for column in EVALUATOR_COLUMNS[:-1] if cells[column]]
    defaults = [f"  {setting}: {default}" for setting, default in evaluator.settings.items()]
    echo("\n".join([*facts, "", evaluator.doc, "", "settings:" if defaults else "no settings", *defaults]))


def _evaluator_cells(evaluator: "Described", comma: str, between: str) -> list[str]:
    asks_for, returns = comma.join(evaluator.asks_for), between.join(evaluator.returns)
    basis, reference = evaluator.judges_by, evaluator.reference
    return [evaluator.name, basis, evaluator.scope, asks_for, reference, returns, evaluator.about]


def _print(evaluators: Iterable["Described"], form: str) -> None:
    if form == "csv":
        print_csv(EVALUATOR_COLUMNS, [_evaluator_cells(evaluator, ", ", "; ") for evaluator in evaluators])
    else:
        print_json([_facts(evaluator) for evaluator in evaluators])


def _facts(evaluator: "Described") -> dict[str, Any]:
    returns = {
        name: {"higher_is_better": metric.is_higher_better(name), "range": metric.range}
        for name, metric in evaluator.metrics.items()
    }
    return {
        "name": evaluator.name,
        "judges_by": evaluator.judges_by,
        "scope": evaluator.scope,
        "asks_for": [*evaluator.asks_for],
        "reference": evaluator.reference,
        "returns": returns,
        "about": evaluator.about,
        "settings": {**evaluator.settings},
        "doc": evaluator.doc,
    }


# Try


def _spec(name: str, settings: Mapping[str, Any], connection: str | None, model: str | None) -> ExperimentSpec:
    """Return an experiment with only this evaluator, checked as in a run. Its dataset and target are not used."""
    from evalflows.cli.described import described

    scope = described(name, settings).scope
    if scope == "pair":
        raise InputError(f"--try: {name} compares two answers, wanted an evaluator of one answer")
    evaluator = {"use": name, "args": settings, "connection": connection, "model": model}
    which = "evaluators" if scope == "run" else "summary_evaluators"
    recorded = {"kind": "recorded", "column": "outputs"}
    return ExperimentSpec.model_validate(
        {"name": "trial", "dataset": {"rows": []}, "targets": [recorded], which: [evaluator]}
    )


def _try(spec: ExperimentSpec, row: str, form: str, *, keep: bool) -> None:
    """Print the scores of the row. Raise IncompleteError if a model could not be called, InputError on other errors."""
    content, source, number = _row(row)
    kept = None
    results: Sequence[EvaluationResult | JudgementRow]
    if keep:
        kept, results = run_trial(spec, content, f"{source}:{number}")
    else:
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
        from evalflows.engine.try_evaluator import try_evaluator  # late: Prefect takes seconds to import

        results = try_evaluator(spec, content, source, number)
    _print_scores(results, form)
    if kept:
        echo(f"kept: {hints.show(kept)}", err=form != "table")


def _print_scores(results: "Sequence[EvaluationResult | JudgementRow]", form: str) -> None:
    for result in results:
        if result.error:
            kind = result.error_kind
            error = IncompleteError if kind in UNREACHABLE | NOT_ATTEMPTED else InputError
            raise error(f"evaluator {result.metric!r}: {' '.join(result.error.split())}{_paid(result)}")
    if form == "csv":
        print_csv((*SCORE, *SPENT), [list(_columns(result).values()) for result in results])
    elif form == "json":
        print_json([_columns(result) for result in results])
    else:
        for result in results:
            turn = f", turn {result.turn}" if result.turn is not None else ""
            lines = [f"{result.metric}{turn}: {_value(result)}", *(result.comment or "").splitlines()]
            echo("\n  ".join(lines))
        echo(_spent(results[0]))


def _row(text: str) -> tuple[dict[str, Any], str, int]:
    """Return the row, where it comes from, and its number there."""
    if place := re.fullmatch(r"(?!\s*[{\[])(.+):(\d+)", text):
        path, number = place[1], int(place[2])
        for position, row in read_rows(path):
            if position == number:
                return row, path, number
        raise InputError(f"{path}: has no row {number}")
    row = parse_json(text.encode("utf-8", "surrogateescape"), "--try")
    if not isinstance(row, dict):
        raise InputError(f"--try: got {short(row)}, wanted a JSON object, or FILE:N such as rows.jsonl:3")
    return row, "--try", 1


def _usage(result: "EvaluationResult | JudgementRow") -> "Usage | JudgementRow":
    """Return what the score cost: a stored score says it itself."""
    return result if isinstance(result, JudgementRow) else result.usage


def _columns(result: "EvaluationResult | JudgementRow") -> dict[str, Any]:
    usage = _usage(result)
    return {name: getattr(usage if hasattr(usage, name) else result, name) for name in (*SCORE, *SPENT)}


def _value(result: "EvaluationResult | JudgementRow") -> str:
    if result.value is None:
        return "does not apply" if result.label is None else result.label
    text = str(bool(result.value)).lower() if result.data_type == "BOOLEAN" else f"{result.value:.6g}"
    return text if result.label is None else f"{text} ({result.label})"


def _spent(result: "EvaluationResult | JudgementRow") -> str:
    usage = _usage(result)
    cost = "cost unknown" if usage.cost_usd is None else f"{usage.cost_usd:.6f} USD"
    model = f"; model {result.judge_model}" if result.judge_model else ""
    if usage.calls is None:
        return f"model calls not recorded, {cost}{model}"
    return f"{usage.calls} model calls, {usage.calls_cached} from the ledger, {cost}{model}"


def _paid(result: "EvaluationResult | JudgementRow") -> str:
    return f" ({_spent(result)})" if _usage(result).calls else ""


def run_trial(spec: ExperimentSpec, row: Mapping[str, Any], where: str) -> tuple[str, list[JudgementRow]]:
    """Run a spec's one evaluator on a row as an experiment. Return its id and its scores.

    Raise InputError for a row without an answer, and IncompleteError if a model could not be called.
    """
    if row.get(ANSWER) is None:
        raise InputError(f"{where}: no outputs, wanted 'outputs', the answer to judge")
    kept = {name: value for name, value in row.items() if name != ANSWER}
    kept["metadata"] = {**(row.get("metadata") or {}), ANSWER: row[ANSWER]}
    target = RecordedTarget(kind="recorded", name="row", column=ANSWER)
    changes = {"dataset": DatasetSpec(rows=[kept]), "targets": [target], "tags": [TRIAL]}
    with stdout_to_stderr(), prepare_runs(False) as watch:
        from evalflows import run

        (identity,) = run(spec.model_copy(update=changes), None, watch)
    return identity, Store().read("judgements", identity)
