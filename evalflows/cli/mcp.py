"""The store as tools for coding agents."""

import click

from evalflows.cli.commands import COMMANDS
from evalflows.cli.late_commands import LateCommand, with_one_line_errors
from evalflows.specs.errors import InputError, names_to_choose


@click.command()
@click.option(
    "--allow", type=click.Choice(["run"]), help="run: also tools that run, gate and resume, and may cost money."
)
@click.option("--budget-usd", type=click.FloatRange(0, min_open=True), help="Maximum cost of all runs together.")
@click.option("--max-calls", type=click.IntRange(1), help="Maximum number of model calls of all runs together.")
@with_one_line_errors
def mcp(allow: str | None, budget_usd: float | None, max_calls: int | None) -> None:
    """Serve the store as tools to a coding agent, on standard input and output (Model Context Protocol).

    Its tools only read, unless --allow run is given with a budget, which holds for the whole life of the server.
    """
    given = (budget_usd, max_calls)
    if allow and None in given:
        raise InputError("mcp: got --allow run, wanted --budget-usd and --max-calls too")
    if not allow and given != (None, None):
        raise InputError("mcp: got a budget, wanted --allow run too")
    try:
        from evalflows.mcp_server import Allowance, server
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise InputError("mcp: got no package mcp, wanted `pip install 'evalflows[mcp]'`") from error
    from evalflows.store.store import Store

    allowance = Allowance(usd=budget_usd, calls=max_calls) if budget_usd and max_calls else None
    server(Store(), help_of, allowance).run("stdio")


def help_of(name: str | None) -> str:
    """Return the help of a command such as `labels import`; for None, one line for each command."""
    listed = {command: entry for group in COMMANDS.values() for command, entry in group.items()}
    if name is None:
        return "\n".join(f"evalflows {command}: {about}" for command, (_, about) in listed.items())
    first, *rest = name.removeprefix("evalflows ").split() or [name]
    if first not in listed:
        raise InputError(f"command: got {name!r}, wanted {names_to_choose(first, listed)}")
    command = LateCommand(first, f"evalflows.cli.{listed[first][0]}", "", "").load()
    for word in rest:
        found = command.commands.get(word) if isinstance(command, click.Group) else None
        if found is None:
            raise InputError(f"command: got {name!r}, but {first!r} has no {word!r}")
        command = found
    with click.Context(command, info_name=f"evalflows {' '.join([first, *rest])}") as context:
        return command.get_help(context)
