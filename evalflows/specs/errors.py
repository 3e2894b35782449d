"""Exceptions and error kinds shared by all packages: invalid input, failed model calls, incomplete runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pydantic import ValidationError

ErrorKind = Literal[
    "rate_limited",  # the provider refused for now: HTTP 429
    "server_error",  # HTTP 5xx
    "connection",  # could not connect, or the connection was lost
    "timeout",
    "bad_answer",  # an unreadable answer: no JSON, no choices, or not matching the schema
    "refused",  # the model declined, or a content filter did
    "truncated",  # the answer stops at the token limit and is unreadable without its end
    "context_too_long",
    "authentication",
    "quota_exhausted",  # no credit left with the provider
    "bad_request",
    "raised",  # the user's own code raised
    "too_slow",  # the user's own code exceeded its timeout
    "bad_return",  # the user's own code returned an invalid value
    "no_output",  # nothing to judge, because the target failed
    "stopped",  # not attempted: a service was down, or a person cancelled the run
    "over_budget",  # not attempted: the budget or the maximum number of calls was used up
]

TRANSIENT: frozenset[ErrorKind] = frozenset({"rate_limited", "server_error", "connection", "timeout", "bad_answer"})
"""Kinds for which another attempt may succeed."""

UNREACHABLE: frozenset[ErrorKind] = TRANSIENT | {"authentication", "quota_exhausted"}
"""Kinds that say nothing about the item itself: the model was not reached, so a later run may succeed."""

NOT_ATTEMPTED: frozenset[ErrorKind] = frozenset({"stopped", "over_budget"})
"""Kinds of items that were not attempted at all."""

RETRIED_LATER: frozenset[ErrorKind] = TRANSIENT | {"stopped"}
"""Kinds of error for which Prefect retries the chunk after a delay."""


class InputError(Exception):
    """Invalid input from the user. The message is one line: where, what was got, what was wanted."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class NotFoundError(InputError):
    """Invalid input that names what is not in the store: an unknown id or name."""


class IncompleteError(Exception):
    """The run ended before every item had its row. Finished work is kept, and the run can be resumed."""

    def __init__(
        self, message: str, experiments: Sequence[str] = (), decisions: Sequence[str] = (), batch: str | None = None
    ) -> None:
        super().__init__(message)
        self.batch = batch  # of a trace evaluation
        self.experiments = tuple(experiments)  # ids of all experiments of the run
        self.decisions = tuple(decisions)  # ids of the decisions made despite that


class GateFailedError(Exception):
    """A gate decided FAIL: a rule is significantly violated. The message says which rule, and by how much."""

    def __init__(self, message: str, decisions: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.decisions = tuple(decisions)  # ids of all decisions of the run


class StorageError(Exception):
    """The store or the spool cannot be read or written: a full disk, a folder that is gone. The message names the path.

    It is no fault of the user's code and of no item, so it ends the run; what is finished is kept.
    """


class CallError(Exception):
    """A model call that failed after all its retries."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        attempts: int = 1,
        retry_after_s: float | None = None,
        limit_is_empty: bool = False,
        trace: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.attempts = attempts
        self.retry_after_s = retry_after_s  # as requested by the provider
        self.limit_is_empty = limit_is_empty  # whether the provider reported no remaining quota for now
        self.trace = trace  # the user's frames, if their code raised


def first_problem(error: "ValidationError", where: str) -> str:
    """Format a pydantic error as one line: the first problem, the value it got, and the number of further problems."""
    problems = error.errors(include_url=False)
    # An unknown field is often a typo, and the cause of the other problems.
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    path = ".".join(str(part) for part in first["loc"])
    message, got = first["msg"].removeprefix("Value error, "), f", got {short(first['input'])}"
    if first["type"] == "extra_forbidden":
        message, got = "no such field", ""
    elif first["type"] in ("missing", "value_error"):
        got = ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}: {path + ': ' if path else ''}{message}{got}{more}"


def describe(error: BaseException) -> str:
    """Format an exception as one line, with its type."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def short(value: object, limit: int = 80) -> str:
    """Format a value as text short enough for a message."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
