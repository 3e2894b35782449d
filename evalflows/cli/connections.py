"""List and test the connections to models."""

import os
from collections.abc import Iterable, Mapping

import click

from evalflows.cli.late_commands import FORMAT, print_json, with_one_line_errors
from evalflows.cli.output import Table, Text, console, echo, table
from evalflows.llm.connections import address, key_source, known, resolve
from evalflows.specs.connections import ConnectionSpec, LocalConnection
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import one_line
from evalflows.specs.experiment import load_experiment

CONNECTION_COLUMNS = ("name", "where", "model", "key", "at once", "per minute", "USD/M in, out", "answers")

CONNECTION_KEYS = ("name", "address", "model", "key", "max_in_flight", "per_minute", "usd_per_million", "answer_form")
"""Names of the same in JSON."""

_PREFIXES = {"works": "ok, ", "fails": "", "not_tried": "not tried: "}


@click.command()
@click.argument("spec", required=False)
@click.option(
    "--test", "is_test", is_flag=True, help="Send each a short request; local and auto only if named with --only."
)
@click.option("--only", metavar="NAME", multiple=True, help="Only this connection. Repeatable.")
@FORMAT
@with_one_line_errors
def connections(spec: str | None, is_test: bool, only: tuple[str, ...], form: str) -> None:
    """List the connections that a spec can name, or test them with --test.

    These are the connections of SPEC, those of connections.yaml (or of the file named by EVALFLOWS_CONNECTIONS), and
    openai, local and auto. Keys are never shown.
    """
    own = load_experiment(spec).connections if spec else {}
    listed = {name: resolve(name, own) for name in only} if only else known(own)
    if is_test:
        _test(listed, form, is_chosen=bool(only))
    elif form == "json":
        print_json([dict(zip(CONNECTION_KEYS, _cells(*pair), strict=True)) for pair in listed.items()])
    else:
        console().print(_listed(listed))


def _listed(connections: Mapping[str, ConnectionSpec]) -> Table:
    out = table(*CONNECTION_COLUMNS, headings=2, wrapped=CONNECTION_COLUMNS[3:])
    for name, connection in connections.items():
        out.add_row(*map(Text, _cells(name, connection)))
    return out


def _cells(name: str, connection: ConnectionSpec) -> tuple[str, ...]:
    return (
        name,
        address(connection),
        connection.model or "",
        key_source(connection),
        _at_once(connection),
        _per_minute(connection),
        _price(connection),
        connection.answer_form,
    )


def _at_once(connection: ConnectionSpec) -> str:
    limit = None if isinstance(connection, LocalConnection) else connection.provider_limit
    return f"{connection.max_in_flight}; in total: {limit}" if limit else str(connection.max_in_flight)


def _per_minute(connection: ConnectionSpec) -> str:
    if isinstance(connection, LocalConnection):
        return ""
    limits = ((connection.requests_per_minute, "requests"), (connection.tokens_per_minute, "tokens"))
    return ", ".join(f"{limit:.12g} {what}" for limit, what in limits if limit is not None)


def _price(connection: ConnectionSpec) -> str:
    """Price of the connection's model. If it names none, the price depends on the model that a spec names."""
    from evalflows.llm.prices import price_of  # late: loading the price list would slow down other commands

    price = price_of(connection, connection.model or "")
    if price is None:
        return "not known" if connection.model else "by the model"
    by_name = f" ({price.by_name}'s, by the model's name)" if price.by_name else ""
    return f"{price.usd_per_million_input_tokens:g}, {price.usd_per_million_output_tokens:g}{by_name}"


def _test(connections: Mapping[str, ConnectionSpec], form: str, is_chosen: bool) -> None:
    """Test the connections and print the outcomes. Raise InputError if one fails, or if none could be tested.

    A connection named with --only (`is_chosen`) that cannot be tested counts as failed.
    """
    selected = {
        name: connection
        for name, connection in connections.items()
        if is_chosen or not _only_if_named(name, connection)
    }
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    from evalflows.engine.connection_trials import Trial, try_connections  # Prefect takes seconds to import

    failed, tried = [], 0
    trials: Iterable[Trial] = try_connections(selected)
    if form == "json":
        print_json(trials := [*trials])
    for trial in trials:
        if form == "table":
            echo(one_line(f"{trial.name}: {_PREFIXES[trial.outcome]}{trial.message}"))
        tried += trial.outcome != "not_tried"
        if trial.outcome == "fails" or (is_chosen and trial.outcome == "not_tried"):
            failed.append(trial.name)
    if failed:
        raise InputError(f"connections: {len(failed)} of {len(selected)} did not answer: {', '.join(failed)}")
    if not tried:
        raise InputError("connections: none could be tested, wanted a key, or a connection named with --only")


def _only_if_named(name: str, connection: ConnectionSpec) -> bool:
    """Return whether a test could download the local model, or would test the same connection under a second name."""
    return name == "auto" or (isinstance(connection, LocalConnection) and connection.gguf is None)
