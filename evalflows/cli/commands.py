"""Groups of commands: modules are imported when a command is run, and usage errors are escaped."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from evalflows.cli.terminal import shortened
from evalflows.specs.safe_text import escaped


class LateCommand(click.Command):
    """A command named by `module:attribute`. Listing it in the help needs only its short help, not its module."""

    def __init__(self, name: str, reference: str, short_help: str, group: str) -> None:
        super().__init__(name, short_help=short_help)
        self.reference, self.group = reference, group

    def load(self) -> click.Command:
        module, _, attribute = self.reference.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


class Commands(click.Group):
    """A group of late commands. Its usage errors are escaped, since they repeat the arguments."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for name, command in self.commands.items():
            if isinstance(command, LateCommand):
                groups[command.group].append((name, command.short_help or ""))
        widest = max(map(len, self.commands))
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(widest), about) for name, about in rows])

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
