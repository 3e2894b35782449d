"""The evaluators: listed and described, which loads no Prefect, or one of them tried on a row."""

import csv
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml
from rich.text import Text

from cli.errors import one_line_errors
from cli.look import VERBOSE, console, table
from specs.errors import NOT_ATTEMPTED, UNREACHABLE, IncompleteError, InputError, short
from specs.experiment import ExperimentSpec
from store.jsonl import parse_json
from store.rows import read_rows

if TYPE_CHECKING:
    from cli.described import Described
    from flows.trying import Fields

COLUMNS = ("name", "judges_by", "level", "asks_for", "reference", "returns", "about")
SCORE = ("metric", "turn", "value", "label", "comment", "status", "error")
SPENT = ("judge_model", "calls", "calls_cached", "tokens_in", "tokens_out", "cost_usd")


@click.command()
@click.argument("name", required=False)
@click.option("--try", "row", metavar="ROW", help="Judge a row: JSON text, or FILE:N, the Nth line or row of a file.")
@click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="A setting. May be given several times.")
@click.option("--connection", help="The connection of one that asks a model; openai where left out.")
@click.option("--model", help="The model; the connection's own where left out.")
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", help="json: one object a line."
)
@VERBOSE
def evaluators(
    name: str | None,
    row: str | None,
    changes: tuple[str, ...],
    connection: str | None,
    model: str | None,
    form: str,
    verbose: bool,
) -> None:
    """List the evaluators that have a short name, or tell all about NAME: one of these, or module:name of your own.

    With --try the evaluator judges {"inputs", "outputs", "reference_outputs", "metadata"}, with the answer under
    outputs. What a model is asked for that is paid, and kept in the ledger; nothing else is kept.
    """
    with one_line_errors(verbose):
        if name is None:
            _refuse_without_name({"--try": row, "--set": changes, "--connection": connection, "--model": model})
            _list(form)
            return
        if ":" in name:
            sys.path.append(str(Path.cwd()))  # a module of yours is found, and none hides one of ours
        if row is None:
            _tell(name, _settings(changes), form)
        else:
            _try(_spec(name, _settings(changes), connection, model), row, form)


def _refuse_without_name(options: Mapping[str, Any]) -> None:
    for option, given in options.items():
        if given:
            raise InputError(f"{option}: wanted the name of an evaluator before it")


def _settings(changes: Iterable[str]) -> dict[str, Any]:
    """The settings that `--set` gives, the values as YAML."""
    found = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set {change}: wanted key=value, such as ignore_case=true")
        try:
            found[key.strip()] = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise InputError(f"--set {change}: the value is not YAML: {' '.join(str(error).split())}") from error
    return found


# Listing and telling


def _list(form: str) -> None:
    from cli.described import ours  # the evaluators take a while to load, which other commands need not wait for

    if form == "table":
        out = table(*(column.replace("_", " ") for column in COLUMNS))
        for one in ours():
            out.add_row(*map(Text, _cells(one, ", ", "\n")))
        console().print(out)
    else:
        _print(ours(), form)


def _tell(name: str, settings: Mapping[str, Any], form: str) -> None:
    from cli.described import described

    one = described(name, settings)
    if form != "table":
        _print([one], form)
        return
    cells = dict(zip(COLUMNS, _cells(one, ", ", "; "), strict=True))
    said = [f"{column.replace('_', ' '):<11}{cells[column]}" for column in COLUMNS[:-1] if cells[column]]
    defaults = [f"  {setting}: {default}" for setting, default in one.settings.items()]
    click.echo("\n".join([*said, "", one.doc, "", "settings:" if defaults else "no settings", *defaults]))


def _cells(one: "Described", comma: str, between: str) -> list[str]:
    asks_for, returns = comma.join(one.asks_for), between.join(one.returns)
    return [one.name, one.judges_by, one.level, asks_for, one.reference, returns, one.about]


def _print(found: Iterable["Described"], form: str) -> None:
    if form == "csv":
        _csv(COLUMNS, [_cells(one, ", ", "; ") for one in found])
    else:
        for one in found:
            click.echo(json.dumps(_facts(one), ensure_ascii=False))


def _facts(one: "Described") -> dict[str, Any]:
    returns = {
        name: {"higher_is_better": metric.is_higher_better(name), "range": metric.range}
        for name, metric in one.metrics.items()
    }
    return {
        "name": one.name,
        "judges_by": one.judges_by,
        "level": one.level,
        "asks_for": [*one.asks_for],
        "reference": one.reference,
        "returns": returns,
        "about": one.about,
        "settings": {**one.settings},
        "doc": one.doc,
    }


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


# Trying


def _spec(name: str, settings: Mapping[str, Any], connection: str | None, model: str | None) -> ExperimentSpec:
    """An experiment of just this evaluator, so that it is checked as in a run. Its dataset and target are not used."""
    from cli.described import described

    one = described(name, settings)
    if one.level == "pair":
        raise InputError(f"--try: {name} compares two answers, wanted an evaluator that judges one")
    evaluator = {"use": name, "args": settings, "connection": connection, "model": model}
    which = "evaluators" if one.level == "run" else "summary_evaluators"
    recorded = {"kind": "recorded", "column": "outputs"}
    return ExperimentSpec.model_validate(
        {"name": "trial", "dataset": {"rows": []}, "targets": [recorded], which: [evaluator]}
    )


def _try(spec: ExperimentSpec, row: str, form: str) -> None:
    """Print what the evaluator says. Raises IncompleteError where a model could not be asked, InputError where it
    failed otherwise."""
    given, where, number = _row(row)
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    from flows.trying import try_evaluator  # Prefect takes seconds to import

    found = try_evaluator(spec, given, where, number)
    for one in found:
        if one.get("error"):
            kind = one.get("error_kind")
            error = IncompleteError if kind in UNREACHABLE | NOT_ATTEMPTED else InputError
            raise error(f"evaluator {one['metric']!r}: {' '.join(one['error'].split())}{_paid(one)}")
    if form == "csv":
        _csv((*SCORE, *SPENT), [[one.get(column) for column in (*SCORE, *SPENT)] for one in found])
    elif form == "json":
        for one in found:
            click.echo(json.dumps({column: one.get(column) for column in (*SCORE, *SPENT)}, ensure_ascii=False))
    else:
        for one in found:
            click.echo(_in_words(one))
        click.echo(_spent(found[0]))


def _row(text: str) -> tuple[dict[str, Any], str, int]:
    """A row, the file that it stands in, and its number there."""
    if place := re.fullmatch(r"(?!\s*[{\[])(.+):(\d+)", text):
        path, number = place[1], int(place[2])
        for found, row in read_rows(path):
            if found == number:
                return row, path, number
        raise InputError(f"{path}: has no row {number}")
    row = parse_json(text.encode("utf-8", "surrogateescape"), "--try")
    if not isinstance(row, dict):
        raise InputError(f"--try: got {short(row)}, wanted an object, or a file and a number: rows.jsonl:3")
    return row, "--try", 1


def _in_words(one: "Fields") -> str:
    turn = f", turn {one['turn']}" if one.get("turn") is not None else ""
    comment = one.get("comment")
    lines = [f"{one['metric']}{turn}: {_value(one)}", *(comment.splitlines() if comment else [])]
    return "\n  ".join(lines)


def _value(one: "Fields") -> str:
    value, label = one.get("value"), one.get("label")
    if value is None:
        return "does not apply" if label is None else str(label)
    said = str(bool(value)).lower() if one.get("data_type") == "BOOLEAN" else f"{value:.6g}"
    return said if label is None else f"{said} ({label})"


def _spent(one: "Fields") -> str:
    cost = "cost unknown" if one["cost_usd"] is None else f"{one['cost_usd']:.6f} USD"
    who = f"; {one['judge_model']} answered" if one.get("judge_model") else ""
    return f"{one['calls']} model calls, {one['calls_cached']} from the ledger, {cost}{who}"


def _paid(one: "Fields") -> str:
    return f" ({_spent(one)})" if one.get("calls") else ""
