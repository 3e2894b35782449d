"""What all commands share: modules that are imported when a command is run, errors as one line on stderr with an
exit code by kind, and one JSON document for `--format json`. The table of commands is in `commands.py`.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from functools import wraps
from importlib import import_module
from itertools import pairwise
from typing import Any, Literal, NoReturn, TypeVar

import click

from evalflows.cli.output import discard_output, echo, echo_error, echo_traceback, shortened, stdout_to_stderr
from evalflows.specs.errors import GateFailedError, IncompleteError, InputError, NotFoundError, StorageError, describe
from evalflows.specs.escaping import escaped, json_text

VERBOSE_RUN = click.option("--verbose", is_flag=True, help="Show Prefect's log and the traceback of an error.")
Detail = Literal["all", "wide"] | None
"""How much is printed: all, all with all columns, or by default what matters most."""

Command = TypeVar("Command", bound=Callable[..., Any])

CHANGES = click.option(
    "--set",
    "changes",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change a field of the spec, such as repetitions=3 or budget_usd=10. Repeatable.",
)
IN_BATCHES = click.option(
    "--batch",
    "in_batches",
    is_flag=True,
    help="Use the provider's batch interface: within a day, for about half the price. Same as --set mode=batch.",
)
BATCHED = ("mode=batch",)
"""The change of a spec that `--batch` stands for."""
FRESH = click.option(
    "--fresh", is_flag=True, help="Start anew regardless of run_key, without cached model calls: pay for every call."
)
STARTED_ANEW = ("use_cache=false", "run_key=null")
"""The changes of a spec that `--fresh` stands for."""
WITH_FINAL = click.option(
    "--final", "with_final", is_flag=True, help="Show single final examples too. This is recorded and counts as a look."
)
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    help="json: exactly one document on standard output.",
)

FAILED, BAD_INPUT, NOT_ENOUGH_EVIDENCE, INCOMPLETE, FAULT, INTERRUPTED, PIPE = 1, 2, 3, 4, 70, 130, 141


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
        arguments = [*ctx._protected_args, *ctx.args]
        options = {*arguments, *map("=".join, pairwise(arguments))}
        try:
            with _escaped_usage_errors(bool(options & {"--format=json", "--json=-"})):
                return super().invoke(ctx)
        except KeyboardInterrupt:  # its module loads: click would exit with 1, as a failed gate does
            _end("stopped", "stopped", INTERRUPTED, verbose=False)


@contextmanager
def _escaped_usage_errors(as_document: bool = False) -> Iterator[None]:
    try:
        yield
    except click.ClickException as error:
        error.message = shortened(escaped(error.message))  # type: ignore[misc]  # click has no other way
        if as_document:
            _echo_error_document("usage", error.format_message())
            sys.exit(error.exit_code)
        raise


def with_detail(command: Command) -> Command:
    """Add the options that say how much is printed; the command gets them as `detail`."""
    columns = "Print everything, with all columns: counts, p-values and adjusted p-values."
    command = click.option("--wide", "detail", flag_value="wide", help=columns)(command)
    return click.option("--all", "detail", flag_value="all", help="Print everything.")(command)


def print_json(document: Any) -> None:
    """Print a document. Raise ValueError for a NaN in it."""
    echo(json_document(document), nl=False)


def json_document(document: Any) -> str:
    """Return a document as the text of a file; it may hold records and times. Raise ValueError for a NaN in it."""
    return f"{json_text(document, indent=2, allow_nan=False, default=_as_json)}\n"


def _as_json(value: Any) -> Any:
    """Return a record as an object, and a time as ISO 8601 in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"got {type(value).__name__}, wanted a value of JSON, a record or a time")


def stdout_for(form: str) -> AbstractContextManager[None]:
    """With json, send to standard error what the block prints: the user's code, libraries, and their processes."""
    return stdout_to_stderr() if form == "json" else nullcontext()


@contextmanager
def one_line_errors(verbose: bool) -> Iterator[None]:
    """End the program with one line on stderr on any exception; if `verbose`, with the traceback too."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit):
        raise
    except InputError as error:
        _end("not_found" if isinstance(error, NotFoundError) else "bad_input", str(error), BAD_INPUT, verbose)
    except GateFailedError as error:
        _end("gate_failed", str(error), FAILED, verbose)
    except (IncompleteError, StorageError) as error:
        _end("storage" if isinstance(error, StorageError) else "incomplete", str(error), INCOMPLETE, verbose)
    except (KeyboardInterrupt, click.Abort) as error:
        _end("stopped", f"stopped; {error}" if str(error) else "stopped", INTERRUPTED, verbose)
    except BrokenPipeError:
        discard_output()
        sys.exit(PIPE)
    except Exception as error:
        if is_interrupted_query(error):
            _end("stopped", "stopped", INTERRUPTED, verbose)
        message = f"internal error in evalflows: {describe(error)} (--verbose shows the traceback)"
        _end("internal", message, FAULT, verbose)


def with_one_line_errors(command: Command) -> Command:
    """Add `--verbose`, which the command does not get, and end the program with one line on stderr on any exception."""

    @wraps(command)
    def run(*, verbose: bool, **given: Any) -> None:
        with one_line_errors(verbose):
            command(**given)

    return click.option("--verbose", is_flag=True, help="Show the traceback of an error.")(run)  # type: ignore[return-value]


def is_interrupted_query(error: BaseException) -> bool:
    """Return whether DuckDB raised an error since Ctrl-C was pressed while it worked: it says so in no other way."""
    return type(error) is RuntimeError and error.args == ("Query interrupted",)


def _end(kind: str, message: str, code: int, verbose: bool) -> NoReturn:
    if verbose:
        echo_traceback()
    context = click.get_current_context(silent=True)
    if context and (context.params.get("form") == "json" or context.params.get("json") == "-"):
        _echo_error_document(kind, message)
    else:
        echo_error(message)
    sys.exit(code)


def _echo_error_document(kind: str, message: str) -> None:
    echo(json_text({"error": error_fields(kind, message)}), err=True)


def error_fields(kind: str, message: str) -> dict[str, str | None]:
    """Return an error as the fields of a document: its kind, its message, and of that where it is and what was wanted.

    These two are None where the message is not of the usual form, `where: got this, wanted that`.
    """
    where, found, _ = message.partition(": ")
    _, _, wanted = message.rpartition("wanted ")
    has_wanted = "wanted " in message
    return {
        "kind": kind,
        "message": message,
        "where": where if found else None,
        "wanted": wanted if has_wanted else None,
    }
