"""Groups of commands: modules are imported when a command is run, and usage errors are escaped."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from evalflows.cli.terminal import shortened
from evalflows.specs.safe_text import escaped


class LateCommand(click.Command):
    """A command named by `module:attribute`. Listing it in the help needs only its short help, not its module."""

    def __init__(self, name: str, reference: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self.reference = reference

    def load(self) -> click.Command:
        module, _, attribute = self.reference.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


class Commands(click.Group):
    """A group of late commands. Its usage errors are escaped, since they repeat the arguments."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LateCommand) else command, rest

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        with _escaped_usage_errors():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        with _escaped_usage_errors():
            return super().invoke(ctx)


@contextmanager
def _escaped_usage_errors() -> Iterator[None]:
    try:
        yield
    except click.ClickException as error:
        error.message = shortened(escaped(error.message))  # type: ignore[misc]  # click has no other way
        raise
