"""The options of commands that listen for requests."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def listening(*, port: int, token_variable: str, clients: str) -> Callable[[Command], Command]:
    """Give a command `--host`, `--port` and `--token`; the last may be in an environment variable."""
    token_help = (
        f"What {clients}. Better in {token_variable}: other users of the machine see the arguments of a process."
    )
    options = (
        click.option(
            "--host", default="127.0.0.1", show_default=True, help="Address to listen at; a wider one needs --token."
        ),
        click.option(
            "--port", type=click.IntRange(0, 65535), default=port, show_default=True, help="0: any free port."
        ),
        click.option("--token", envvar=token_variable, help=token_help),
    )

    def give(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return give
