"""Errors of the command line: one line on stderr, and an exit code by kind of error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from evalflows.cli.terminal import discard_output, echo_error, echo_traceback
from evalflows.specs.errors import GateFailedError, IncompleteError, InputError, StorageError, describe

FAILED, BAD_INPUT, NOT_ENOUGH_EVIDENCE, INCOMPLETE, FAULT, INTERRUPTED, PIPE = 1, 2, 3, 4, 70, 130, 141


@contextmanager
def one_line_errors(verbose: bool) -> Iterator[None]:
    """End the program with one line on stderr on any exception; if `verbose`, with the traceback too."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit):
        raise
    except InputError as error:
        _end(str(error), BAD_INPUT, verbose)
    except GateFailedError as error:
        _end(str(error), FAILED, verbose)
    except (IncompleteError, StorageError) as error:
        _end(str(error), INCOMPLETE, verbose)
    except (KeyboardInterrupt, click.Abort) as error:
        _end(f"stopped; {error}" if str(error) else "stopped", INTERRUPTED, verbose)
    except BrokenPipeError:
        discard_output()
        sys.exit(PIPE)
    except Exception as error:
        _end(f"internal error in evalflows: {describe(error)} (--verbose shows the traceback)", FAULT, verbose)


def _end(message: str, code: int, verbose: bool) -> None:
    if verbose:
        echo_traceback()
    echo_error(message)
    sys.exit(code)
