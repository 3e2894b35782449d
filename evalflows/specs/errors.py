"""Exceptions, the kinds of errors, and errors in words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from pydantic import ValidationError

MOST = 10
"""Names in a message."""

MOST_FIELDS = 20
"""Fields of a spec in a message."""

ErrorKind = Literal[
    "rate_limited",  # the provider refused for now: HTTP 429
    "server_error",  # HTTP 5xx
    "connection",  # could not connect, or the connection was lost
    "timeout",
    "bad_answer",  # an unreadable answer: no JSON, no choices, or not matching the schema
    "refused",  # the model declined, or a content filter did
    "truncated",  # the answer stops at the token limit
    "empty_answer",  # an answer without text, and without tool calls
    "context_too_long",
    "authentication",
    "quota_exhausted",  # no credit left with the provider
    "bad_request",
    "raised",  # the user's own code raised
    "too_slow",  # the user's own code exceeded its timeout
    "bad_return",  # the user's own code returned an invalid value
    "no_output",  # nothing to judge, because the target failed
    "agent_failed",  # in a conversation, the target raised, or answered nothing
    "user_failed",  # in a conversation, the user could not go on
    "world_failed",  # a world could not be built, or has a state that is no JSON
    "too_many_turns",  # a conversation did not end, or a turn took too many steps
    "invalid_trial",  # a simulated user did not keep to its goal, twice: no fault of the target
    "expired",  # not attempted: no batch ran the call
    "stopped",  # not attempted: a service was down, or a person cancelled the run
    "over_budget",  # not attempted: the budget or the maximum number of calls was used up
    "unpriced",  # not attempted: the price is unknown, so no budget could be held
]

TRANSIENT: frozenset[ErrorKind] = frozenset({"rate_limited", "server_error", "connection", "timeout", "bad_answer"})
"""Kinds for which another attempt may succeed."""

UNREACHABLE: frozenset[ErrorKind] = TRANSIENT | {"authentication", "quota_exhausted"}
"""Kinds that say nothing about the item itself: the model was not reached, so a later run may succeed."""

REFUSED_BY_BUDGET: frozenset[ErrorKind] = frozenset({"over_budget", "unpriced"})
"""Kinds of calls that a budget did not allow."""

NOT_ATTEMPTED: frozenset[ErrorKind] = REFUSED_BY_BUDGET | {"stopped", "expired"}
"""Kinds of items that were not attempted at all."""

RETRIED_LATER: frozenset[ErrorKind] = TRANSIENT | {"stopped"}
"""Kinds of error for which Prefect retries the chunk after a delay."""

_WANTED = {
    "string_type": "a text",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "a mapping"),
}
"""What pydantic's kinds of problems with a type want."""


def names_to_choose(name: str, known: Iterable[str], others: Iterable[str] = (), *, most: int = MOST) -> str:
    """Return the names that are close to the given one, `a or b`; if none is, the first ones, `one of: a, b, …`.

    Args:
        name: What was given.
        known: All names.
        others: More names, which are named only if they are close.
        most: The most names, if none is close.
    """
    names = list(dict.fromkeys(known))
    if close := get_close_matches(name, dict.fromkeys([*names, *others]), n=3):
        return " or ".join(close)
    return _one_of(names, most)


def _one_of(names: Sequence[str], most: int) -> str:
    return f"one of: {', '.join(names[:most]) or 'none yet'}{', …' if len(names) > most else ''}"


class _QuotingError(Exception):
    """An error whose message quotes no data, since Prefect keeps it. `whole` does, for the caller; no pickle has it."""

    whole: str | None = None

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows of it: the message, which is complete, without frames."""
        return [f"{type(self).__name__}: {self}"]

    def __reduce__(self) -> Any:
        return type(self), self.args, {**vars(self), "whole": None}


class InputError(_QuotingError):
    """Invalid input from the user. The message is one line: where, what was got, what was wanted."""

    def __init__(self, message: str, *, whole: str | None = None) -> None:
        super().__init__(" ".join(message.split()))
        self.whole = whole and " ".join(whole.split())


class NotFoundError(InputError):
    """Invalid input that names what is not in the store: an unknown id or name."""


class ChangedError(InputError):
    """A change of something that is not as it was shown, since others have changed it meanwhile."""


class IncompleteError(_QuotingError):
    """The run ended before every item had its row. Finished work is kept, and the run can be resumed."""

    def __init__(
        self,
        message: str,
        experiments: Sequence[str] = (),
        decisions: Sequence[str] = (),
        batch: str | None = None,
        *,
        whole: str | None = None,
    ) -> None:
        super().__init__(message)
        self.whole = whole
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


def kinds_in_words(counts: Mapping[str, int]) -> str:
    """Return how often errors of each kind occurred, the most frequent first: `2 rate limited, 1 timeout`."""
    return ", ".join(
        f"{count} {kind.replace('_', ' ')}" for kind, count in sorted(counts.items(), key=lambda item: -item[1])
    )


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
        cost_is_unknown: bool = False,
        trace: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.attempts = attempts
        self.retry_after_s = retry_after_s  # as requested by the provider
        self.limit_is_empty = limit_is_empty  # whether the provider reported no remaining quota for now
        self.cost_is_unknown = cost_is_unknown  # whether the last attempt may have been paid, nobody knows at what cost
        self.trace = trace  # the user's frames, if their code raised
        self.received: str | None = None  # what the endpoint sent, as JSON
        self.finish_reason: str | None = None


def first_problem(error: "ValidationError", where: str, of: Any = None) -> str:
    """Format a pydantic error as one line: the first problem, the value it got, and the number of further problems.

    `of` is the model that was wanted, or the type that consists of models: its fields and kinds are named.
    """
    problems = error.errors(include_url=False)
    # An unknown field is often a typo, and the cause of the other problems.
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    path = ".".join(str(key) for key in first["loc"])
    message, got = first["msg"].removeprefix("Value error, "), f", got {short(first['input'])}"
    if first["type"] == "extra_forbidden":
        *place, name = first["loc"]
        fields = [field for model in _models_at(of, place) for field in model.model_fields]
        names = list(dict.fromkeys([*get_close_matches(str(name), fields), *fields]))  # the nearest first
        message, got = f"no such field{f', wanted {_one_of(names, MOST_FIELDS)}' if names else ''}", ""
    elif first["type"] == "missing":
        message, got = "missing", ""
    elif first["type"] == "value_error":
        got = ""
    elif first["type"] in ("union_tag_not_found", "union_tag_invalid"):
        context, kinds = first.get("ctx", {}), ", ".join(_tags(_models_at(of, first["loc"])))
        wanted = context.get("expected_tags", kinds).replace("'", "") or "a kind"
        message, got = f"kind: got {short(context['tag']) if 'tag' in context else 'none'}, wanted one of: {wanted}", ""
    elif first["type"] == "string_type" and isinstance(first["input"], bool):
        message, got = "wanted a text", f", got {first['input']}: in YAML, quote words such as 'no' and 'yes'"
    elif wanted := _WANTED.get(first["type"]):
        message, got = f"got {short(first['input'])}, wanted {wanted}", ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}: {path + ': ' if path else ''}{message}{got}{more}"


def _models_at(of: Any, place: Sequence[int | str]) -> list[Any]:
    """Return the models that may stand at a place in a model: several if its kind is not known."""
    models = [*_models_in(of)]
    for key in place:
        inner = [
            each
            for model in models
            if key in model.model_fields
            for each in _models_in(model.model_fields[key].annotation)
        ]
        models = (
            inner or [model for model in models if str(key) in _tags([model])] or models
        )  # else a number, or a name
    return models


def _models_in(of: Any) -> Iterator[Any]:
    """Yield the models of which a type consists, such as a list or a union."""
    if hasattr(of, "model_fields"):
        yield of
    for part in get_args(of):
        yield from _models_in(part)


def _tags(models: Iterable[Any]) -> Iterator[str]:
    """Yield the kinds that models are of."""
    for model in models:
        if "kind" in model.model_fields:
            yield from get_args(model.model_fields["kind"].annotation)


def describe(error: BaseException) -> str:
    """Format an exception as one line, with its type."""
    try:
        text = " ".join(str(error).split())
    except Exception as fault:  # of the user's own type of exception
        text = f"its text cannot be built: {type(fault).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def type_described(described: str) -> str:
    """Return the type of the exception that `describe` formatted."""
    return described.partition(":")[0]


def short(value: object, limit: int = 80) -> str:
    """Format a value as text short enough for a message."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
