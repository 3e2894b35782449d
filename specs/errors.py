"""The errors that cross a border: what the user gave, what a model's endpoint did, what is left to do."""

from collections.abc import Sequence
from typing import Literal

from pydantic import ValidationError

ErrorKind = Literal[
    "rate_limited",  # the provider refused for now: HTTP 429
    "server_error",  # HTTP 5xx
    "connection",  # no connection, or one that was cut
    "timeout",
    "bad_answer",  # an answer that cannot be read: no JSON, no choices, not of the schema
    "refused",  # the model declined, or a content filter did
    "truncated",  # the answer stops at the token limit and cannot be read without its end
    "context_too_long",
    "authentication",
    "quota_exhausted",  # no money left with the provider
    "bad_request",
    "raised",  # the user's own code raised
    "too_slow",  # the user's own code took longer than it may
    "bad_return",  # the user's own code returned what cannot be kept
    "no_output",  # nothing to judge, since the target failed
    "stopped",  # not attempted: what it needs was down, or a person ended the run
    "over_budget",  # not attempted: the money or the calls that the run may spend are spent
]

TRANSIENT: frozenset[ErrorKind] = frozenset({"rate_limited", "server_error", "connection", "timeout", "bad_answer"})
"""Kinds that another attempt may cure."""

UNREACHABLE: frozenset[ErrorKind] = TRANSIENT | {"authentication", "quota_exhausted"}
"""Kinds that say nothing of the item at hand: nobody was asked, so a later run may bring what lacks."""

NOT_ATTEMPTED: frozenset[ErrorKind] = frozenset({"stopped", "over_budget"})
"""Kinds by which nothing was tried at all."""


class InputError(Exception):
    """What the user gave cannot be used. One line: where, what was got, what was wanted."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class IncompleteError(Exception):
    """The run ended before every item had its row. What is done is kept, and can be resumed."""

    def __init__(self, message: str, experiments: Sequence[str] = (), decisions: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.experiments = tuple(experiments)  # the ids of all that were run
        self.decisions = tuple(decisions)  # and of what gates said of them all the same


class GateFailedError(Exception):
    """A gate said FAIL: a rule surely does not hold. The message says which, and by how much."""

    def __init__(self, message: str, decisions: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.decisions = tuple(decisions)  # the ids of all that were made


class CallError(Exception):
    """A model call that yielded no answer, after its retries."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        attempts: int = 1,
        retry_after_s: float | None = None,
        limit_is_empty: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.attempts = attempts
        self.retry_after_s = retry_after_s  # what the provider asked for
        self.limit_is_empty = limit_is_empty  # whether it said that nothing is left for now


def first_problem(error: ValidationError, where: str) -> str:
    """A pydantic error in one line: the first problem, what was got there, and how many more there are."""
    problems = error.errors(include_url=False)
    # A field that there is not is often a slip, and the cause of the other problems.
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    path = ".".join(str(part) for part in first["loc"])
    says, got = first["msg"].removeprefix("Value error, "), f", got {short(first['input'])}"
    if first["type"] == "extra_forbidden":
        says, got = "no such field", ""
    elif first["type"] in ("missing", "value_error"):
        got = ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}: {path + ': ' if path else ''}{says}{got}{more}"


def describe(error: BaseException) -> str:
    """An exception in one line, with its type."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def short(value: object, limit: int = 80) -> str:
    """A value as text that fits into a message."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
