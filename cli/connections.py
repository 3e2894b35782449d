"""The connections to models: listed, which does not load Prefect, or tried."""

import os
from collections.abc import Mapping

import click
from rich.table import Table
from rich.text import Text

from cli.errors import one_line_errors
from cli.look import VERBOSE, console, table
from llm.connections import address, known, resolve, whence_key
from specs.connection import ConnectionSpec, LocalConnection
from specs.errors import InputError
from specs.experiment import load_experiment

COLUMNS = ("name", "where", "model", "key", "at once", "per minute", "USD/M in, out", "answers")


@click.command()
@click.argument("spec", required=False)
@click.option(
    "--test", "asked", is_flag=True, help="Ask each for one word; local and auto only where --only names them."
)
@click.option("--only", metavar="NAME", multiple=True, help="Only this connection. May be given several times.")
@VERBOSE
def connections(spec: str | None, asked: bool, only: tuple[str, ...], verbose: bool) -> None:
    """List the connections that a spec can name, or with --test try them: those of SPEC, those of connections.yaml (or
    of the file that EVALFLOWS_CONNECTIONS names), openai, local, auto. A key is never shown."""
    with one_line_errors(verbose):
        own = load_experiment(spec).connections if spec else {}
        found = {name: resolve(name, own) for name in only} if only else known(own)
        if asked:
            _try(found, is_chosen=bool(only))
        else:
            console().print(_listed(found))


def _listed(found: Mapping[str, ConnectionSpec]) -> Table:
    out = table(*COLUMNS)
    for name, connection in found.items():
        out.add_row(*map(Text, _cells(name, connection)))
    return out


def _cells(name: str, connection: ConnectionSpec) -> tuple[str, ...]:
    return (
        name,
        address(connection),
        connection.model or "",
        whence_key(connection),
        _at_once(connection),
        _per_minute(connection),
        _price(connection),
        connection.answer_form,
    )


def _at_once(connection: ConnectionSpec) -> str:
    limit = None if isinstance(connection, LocalConnection) else connection.provider_limit
    return f"{connection.max_in_flight}; over all: {limit}" if limit else str(connection.max_in_flight)


def _per_minute(connection: ConnectionSpec) -> str:
    if isinstance(connection, LocalConnection):
        return ""
    limits = ((connection.requests_per_minute, "requests"), (connection.tokens_per_minute, "tokens"))
    return ", ".join(f"{most:.12g} {what}" for most, what in limits if most is not None)


def _price(connection: ConnectionSpec) -> str:
    """Of the model that it names; of a model that a spec will name, the price list may have one."""
    from llm.prices import price_of  # the price list takes a while to load, which other commands need not wait for

    price = price_of(connection, connection.model or "")
    if price is None:
        return "not known" if connection.model else "by the model"
    return f"{price.usd_per_million_input_tokens:g}, {price.usd_per_million_output_tokens:g}"


def _try(found: Mapping[str, ConnectionSpec], is_chosen: bool) -> None:
    """Print how each does. Raises InputError unless all that were asked answered, and something was.

    Whoever names a connection wants to know whether it works: that it could not be asked is a failure then.
    """
    wanted = {name: each for name, each in found.items() if is_chosen or not _waits_to_be_named(name, each)}
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    from flows.connections import try_connections  # Prefect takes seconds to import

    failed, tried = [], 0
    for trial in try_connections(wanted):
        click.echo(f"{trial.name}: {_SAID[trial.outcome]}{trial.says}")
        tried += trial.outcome != "not_tried"
        if trial.outcome == "fails" or (is_chosen and trial.outcome == "not_tried"):
            failed.append(trial.name)
    if failed:
        raise InputError(f"connections: {len(failed)} of {len(wanted)} did not answer: {', '.join(failed)}")
    if not tried:
        raise InputError("connections: none could be asked, wanted a key, or one named by --only")


_SAID = {"works": "ok, ", "fails": "", "not_tried": "not tried: "}


def _waits_to_be_named(name: str, connection: ConnectionSpec) -> bool:
    """Whether to ask it might fetch the local model, or would ask a second time what has another name too."""
    return name == "auto" or (isinstance(connection, LocalConnection) and connection.gguf is None)
