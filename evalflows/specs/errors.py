"""What all packages share: exceptions and error kinds, texts made harmless where they are shown, protocols of
callables, names of metrics and slices, and names imported on first use.
"""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TextIO, get_args

from evalflows.specs.rare_collection import without_collection

if TYPE_CHECKING:
    from pydantic import ValidationError


MOST = 10
"""Names in a message."""


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
    return f"one of: {', '.join(names[:most]) or 'none yet'}{', …' if len(names) > most else ''}"


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
        f"{count} {kind.replace('_', ' ')}" for kind, count in sorted(counts.items(), key=lambda one: -one[1])
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


_WANTED = {
    "string_type": "a text",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "a mapping"),
}
"""What pydantic's kinds of problems with a type want."""


def first_problem(error: "ValidationError", where: str, kinds: Sequence[str] = ()) -> str:
    """Format a pydantic error as one line: the first problem, the value it got, and the number of further problems.

    `kinds` are those that are possible, if a `kind` is missing.
    """
    problems = error.errors(include_url=False)
    # An unknown field is often a typo, and the cause of the other problems.
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    path = ".".join(str(part) for part in first["loc"])
    message, got = first["msg"].removeprefix("Value error, "), f", got {short(first['input'])}"
    if first["type"] == "extra_forbidden":
        message, got = "no such field", ""
    elif first["type"] in ("missing", "value_error"):
        got = ""
    elif first["type"] in ("union_tag_not_found", "union_tag_invalid"):
        context = first.get("ctx", {})
        wanted = context.get("expected_tags", ", ".join(map(repr, kinds))).replace("'", "") or "a kind"
        message, got = f"kind: got {short(context['tag']) if 'tag' in context else 'none'}, wanted one of: {wanted}", ""
    elif first["type"] == "string_type" and isinstance(first["input"], bool):
        message, got = "wanted a text", f", got {first['input']}: in YAML, quote words such as 'no' and 'yes'"
    elif wanted := _WANTED.get(first["type"]):
        message, got = f"got {short(first['input'])}, wanted {wanted}", ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}: {path + ': ' if path else ''}{message}{got}{more}"


def describe(error: BaseException) -> str:
    """Format an exception as one line, with its type."""
    try:
        text = " ".join(str(error).split())
    except Exception as fault:  # of the user's own type of exception
        text = f"its text cannot be made: {type(fault).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def type_described(described: str) -> str:
    """Return the type of the exception that `describe` formatted."""
    return described.partition(":")[0]


def short(value: object, limit: int = 80) -> str:
    """Format a value as text short enough for a message."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package: `modules` lists the names that come from each of its modules.

    The package also lists the names in `__all__`, and imports them under TYPE_CHECKING.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] not in sys.modules:
            with without_collection():
                import_module(homes[name])
        return getattr(sys.modules[homes[name]], name)

    def names() -> list[str]:
        return sorted({*vars(import_module(package)), *homes})

    return find, names


LATENCY = "latency"

TRIAL = "trial"
"""The tag of an experiment that only tries something: baselines, gates and backtests leave it out."""

MIN_EXAMPLES = 20
"""The examples that gates ask for by default."""

LENGTH = "answer_length"  # not `length`, which people call scores

MEASURES = (LATENCY, "cost", "tokens", LENGTH)
"""Built-in metrics of every run, without an evaluator: seconds, USD, input and output tokens, characters. Lower is
better."""

SCORE_SUFFIX = "_score"

RETURNED_AS = "returned_as"
"""The field of a score's metadata with the name that its evaluator gave it, if that is the name of a measure."""

PassKind = Literal["pass@", "pass^"]

PASS_K = rf" ({'|'.join(re.escape(kind) for kind in get_args(PassKind))})[0-9]+$"
"""The ending of such a name, as a regular expression for Python and DuckDB."""


def kept_apart(metric: str) -> str:
    """Return the name of an evaluator's metric: with `_score` if every run has a measure of its name, as `cost`."""
    return f"{metric}{SCORE_SUFFIX}" if metric in MEASURES else metric


def pass_k_name(metric: str, kind: PassKind, k: int) -> str:
    return f"{metric} {kind}{k}"


def base_metric(metric: str) -> str:
    """Return the metric that a pass@k metric is computed from; any other metric is its own base."""
    return re.sub(PASS_K, "", metric)


def is_pass_k(metric: str) -> bool:
    return base_metric(metric) != metric


_SLICED = re.compile(r"(.+?)@(split|cluster|(?:inputs|metadata|reference_outputs)\.[^@=]+)=(.*)", re.DOTALL)


class SlicedMetric(NamedTuple):
    """A metric on all examples, or on those with a value at a path such as `split` or `metadata.topic`."""

    metric: str
    path: str | None = None  # None for all examples, like `value`
    value: str | None = None  # a text, or as JSON what is not a text

    @property
    def slice(self) -> str | None:
        """The slice in words, `split=hard`; None for all examples."""
        return None if self.path is None else f"{self.path}={self.value}"

    @property
    def name(self) -> str:
        return self.metric if self.path is None else f"{self.metric}@{self.slice}"


def sliced_metric(name: str) -> SlicedMetric:
    """Return the metric and the slice that a rule names. A name such as `precision@k=5` is a metric on all examples."""
    match = _SLICED.fullmatch(name)
    return SlicedMetric(name) if match is None else SlicedMetric(*match.groups())


def slice_named(text: str) -> SlicedMetric | None:
    """Return the slice that a text names, `metadata.topic=billing`, with quotes or without; None for any other text,
    such as a SQL condition."""
    match = _SLICE.fullmatch(text.strip())
    return None if match is None else SlicedMetric("", match[1], match[2] or match[3])


_SLICE = re.compile(
    r"(split|cluster|(?:inputs|metadata|reference_outputs)\.[^@=\s>'()]+)\s*=\s*"
    r"(?:'([^']+)'|(?!.*\s(?:and|or)\s)([^\s'=()<>](?:[^'=()<>]*[^\s'=()<>])?))",
    re.IGNORECASE,
)


def metric_of(name: str) -> str:
    """Return the metric that a rule names, without its slice."""
    return sliced_metric(name).metric


Message = dict[str, Any]
"""One chat message: role, content, and any other fields of the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A model's answer."""

    text: str
    parsed: Any = None  # the answer as JSON, if a schema was requested
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    has_thinking: bool = False  # apart from the text
    finish_reason: str | None = None
    is_truncated: bool = False  # whether it stops at the token limit
    model: str
    call_id: str
    cached: bool = False  # from the ledger, at no cost
    attempts: int = 1
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None  # None if the price is not known
    latency_s: float | None = None  # of the successful attempt, without queueing


class Complete(Protocol):
    """Call a model. Async evaluators await it, synchronous ones just call it."""

    async def __call__(
        self,
        messages: str | Sequence[Message],
        *,
        schema: dict[str, Any] | None = None,
        model: str | None = None,
        repeat: int = 0,
        **parameters: Any,
    ) -> Completion:
        """Return the model's answer. Raise CallError if all attempts failed.

        `messages` may be a single user message as text; `schema` is a JSON schema that the answer must match; `repeat`
        distinguishes repeated calls with the same messages.
        """
        ...


class Embed(Protocol):
    """Embed texts."""

    async def __call__(self, texts: Sequence[str], *, model: str | None = None) -> list[list[float]]:
        """Return one vector per text, in order. Raise CallError if all attempts failed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """The response of an application behind HTTP."""

    response: Any  # JSON, or text if it is not JSON
    attempts: int = 1
    latency_s: float | None = None  # of the successful attempt, without queueing
    version: str | None = None  # of the application, if it says it
    cost_is_unknown: bool = False  # whether an attempt before it may have been paid, nobody knows at what cost


class Post(Protocol):
    """Post JSON to an application behind HTTP."""

    async def __call__(self, body: Any) -> Posted:
        """Return the response. Raise CallError if all attempts failed."""
        ...


_SPOOFING = "\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
"""Line and paragraph separators, embeddings, overrides and isolates of direction, surrogates, which cannot be encoded,
and two characters that XML forbids."""

_MARKS = "\u061c\u200e\u200f"
"""Invisible marks of direction: ordinary in Arabic and Hebrew texts beside Latin, without a place in names."""

_ACTIVE = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_SPOOFING}]")
_ACTIVE_OR_BREAK = re.compile(rf"[\x00-\x1f\x7f-\x9f{_MARKS}{_SPOOFING}]")
_ACTIVE_IN_JSON = re.compile(rf"[\x7f-\x9f{_SPOOFING}]")  # json.dumps escapes the others

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The characters with which a cell begins that a spreadsheet may take for a formula."""


def escaped(text: str) -> str:
    r"""Show control characters as escapes such as `\x1b`: C0 except newline and tab, DEL, C1, bidi, U+2028 and U+2029.

    A terminal obeys such characters: they move the cursor, change colours, or reorder the text around them. Marks of
    direction stay.
    """
    return _ACTIVE.sub(_escape, text)


def one_line(text: str) -> str:
    """Show newlines, tabs and marks of direction as escapes too: a text cannot pretend to be a line of its own."""
    return _ACTIVE_OR_BREAK.sub(_escape, text)


def print_note(message: str) -> None:
    """Print a message of evalflows on standard error, as one line."""
    print(one_line(f"evalflows: {message}"), file=sys.stderr, flush=True)


def joined(text: str) -> str:
    """Put a text of several lines on one, with a space for every run of spaces, tabs and line ends."""
    return re.sub(r"[ \t\r\n]+", " ", text).strip(" ")


def last_line(text: str, limit: int = 400) -> str:
    """Return the last line of a process's output that is not blank, shortened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:limit] if lines else "no output"


def json_text(value: Any, **options: Any) -> str:
    r"""Format a value as JSON like `json.dumps`, keeping letters, but with active characters as `\uXXXX`."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return _ACTIVE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def csv_cell(value: Any) -> Any:
    """Return a cell for CSV: a text that a spreadsheet may take for a formula gets a leading apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def write_csv(file: TextIO, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a table as CSV; texts that a spreadsheet may take for formulas get a leading apostrophe."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(csv_cell, columns))
    writer.writerows(map(csv_cell, row) for row in rows)


def from_csv_cell(value: Any) -> Any:
    """Return the value that `csv_cell` has turned into this cell."""
    is_marked = isinstance(value, str) and value.startswith("'") and value[1:].startswith(FORMULA)
    return value[1:] if is_marked else value


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    named = {9: "\\t", 10: "\\n"}
    return named.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
