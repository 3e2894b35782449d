"""Targets, the systems under test, in their common form, a function of an example's fields: a chat completion with
tools, an HTTP application, a Python function, or recorded answers."""

import asyncio
import hashlib
import json
import math
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, NamedTuple

from evalflows.specs.attachments import WANTED, attachment_in, part_of
from evalflows.specs.columns import value_of
from evalflows.specs.errors import CallError, InputError, short
from evalflows.specs.escaping import print_note
from evalflows.specs.files import texts
from evalflows.specs.frozen import dataclass
from evalflows.specs.json_schemas import JSON_TYPES
from evalflows.specs.placeholders import fill, fill_json, placeholders
from evalflows.specs.protocols import Complete, Completion, Message, Post
from evalflows.specs.reference import is_async, name_of, parameters_of
from evalflows.specs.target import ChatTarget, HttpTarget
from evalflows.specs.thinking import without_thinking
from evalflows.specs.values import identifier, is_blank, stored
from evalflows.store.records import OutputRow, derived_id, to_json
from evalflows.store.spilled import SpilledRows

__all__ = [
    "OFFERED", "Answer", "NoRecordedAnswerError", "Target", "as_outputs", "at_path", "attached_parts", "awaited",
    "chat", "chat_with_attachments", "check_body", "check_fields", "check_tools", "ended_within", "http", "length_of",
    "python", "recorded", "recorded_column", "replayed", "seed_of", "text_of",
]  # fmt: skip

TRIAL = ("repetition", "seed")
"""What a target can ask for to tell one answer to an example from another; a field of the inputs goes first."""
OFFERED = ("inputs", "metadata", "example", "example_id", "attachments", *TRIAL)
"""What a target can ask for, besides the fields of the inputs by name."""

USAGE = {
    "tokens_in": ("input_tokens", "prompt_tokens"),
    "tokens_out": ("output_tokens", "completion_tokens"),
    "cost_usd": ("cost_usd",),
    "calls": ("calls",),
}
"""What an application can report of its own model calls, and the names under which it does."""

GRACE_S = 1.0
"""Seconds that cancelled code has to end; after that it is abandoned, and its result is ignored."""

Key = tuple[str, int | None]
"""An example, by its id or its inputs, and a repetition from 0; None for all repetitions."""
Answers = SpilledRows[Key, Mapping[str, Any]]

MOST_NAMED = 10
"""Most repetitions that a message names."""
MAX_SECONDS = 1e8
"""Longest recorded latency, some three years; a longer one is an error of the record, and unknown."""
REFERENCE = "reference_outputs"
"""The column that stands for the example's reference, such as a person's answer, instead of a metadata field."""

MAX_NAME = 64
"""Most characters of a function's name that OpenAI accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The system under test.

    `call` takes a mapping with the names in OFFERED. It returns outputs, an Answer, or an awaitable of either, even if
    it is not async: a lambda may return a coroutine.
    """

    call: Callable[[Mapping[str, Any]], Any | Awaitable[Any]]
    is_async: bool
    is_recorded: bool = False  # whether a call only looks up an answer


class Answer(NamedTuple):
    """Outputs together with what the target knows about them, such as a recorded latency or cost.

    A tuple, since a frozen dataclass takes four times as long to make.
    """

    outputs: Any
    attempts: int = 1
    latency_s: float | None = None  # None if unknown; the caller's own measurement is not used
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    calls: int | None = None  # model calls that the target made itself; None if unknown
    steps: str | None = None  # as JSON
    reused_from: str | None = None  # the run whose outputs these are
    application_version: str | None = None


def seed_of(example_id: str, repetition: int) -> int:
    """Return the seed of an answer, from 0 to 2^31 - 1: the first 31 bits of SHA-256 of `example_id/repetition`.

    It is the same for every target, run and machine, so that a target that draws at random answers alike each time.
    """
    digest = hashlib.sha256(f"{example_id}/{repetition}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message: its content, or the texts among its parts."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def length_of(outputs: Mapping[str, Any]) -> int:
    """Return the number of characters: of the text if that is the only field, of what the assistant says in `messages`,
    else of the outputs as JSON.

    Raise TypeError or ValueError for values that JSON cannot hold.
    """
    messages = outputs.get("messages")
    if isinstance(messages, list) and all(isinstance(message, Mapping) and "role" in message for message in messages):
        return sum(len(text_of(message)) for message in messages if message["role"] == "assistant")
    only = next(iter(outputs.values())) if len(outputs) == 1 else None
    return len(only if isinstance(only, str) else to_json(outputs, mend=True))


def as_outputs(returned: object) -> dict[str, Any]:
    """Return what a target returned as a mapping of values as JSON has them; another value becomes `{"output": …}`.

    Raise InputError, which names the field, for a value that cannot be stored: see `stored`.
    """
    fields = stored(returned, "outputs")
    return fields if isinstance(fields, dict) else {"output": fields}


def http(spec: HttpTarget, post: Post) -> Target:
    """Build the target from its spec: post each example, and read the answer from the response at `spec.answer`."""

    lacking = f"target {spec.name!r}: a response has nothing at usage {spec.usage!r}: its model calls are unknown"
    says_no_usage = iter([lacking])

    async def call(available: Mapping[str, Any]) -> Answer:
        inputs = available["inputs"]
        posted = await post(dict(inputs) if spec.body is None else fill_json(spec.body, inputs))
        reported = {} if spec.usage is None else _reported(posted.response, spec.usage)
        if spec.usage is not None and not any(value is not None for value in reported.values()):
            for said_once in says_no_usage:
                print_note(said_once)
        if posted.cost_is_unknown:
            reported["cost_usd"] = None
        outputs = posted.response if spec.answer is None else at_path(posted.response, spec.answer)
        return Answer(
            outputs=outputs,
            latency_s=posted.latency_s,
            attempts=posted.attempts,
            application_version=posted.version,
            **reported,
        )

    return Target(call=call, is_async=True)


def _reported(response: Any, path: str) -> dict[str, Any]:
    """Return the numbers that a response reports at a path; what it does not report is unknown."""
    try:
        usage = at_path(response, path)
    except CallError:  # the answer is good without it
        return {}
    found = usage if isinstance(usage, Mapping) else {}
    return {column: _number(column, found, names) for column, names in USAGE.items()}


def _number(column: str, usage: Mapping[str, Any], names: Sequence[str]) -> Any:
    value = next((usage[name] for name in names if name in usage), None)
    if isinstance(value, str) and re.fullmatch(r"\d{1,15}(\.\d{1,15})?", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return None
    return float(value) if column == "cost_usd" else int(value)


def check_body(spec: HttpTarget, inputs: Mapping[str, Any], where: str) -> None:
    """Raise InputError if the body asks for a field that these inputs lack."""
    for template in texts(spec.body):
        for name in sorted(placeholders(template) - inputs.keys()):
            got = ", ".join(inputs) or "no field"
            raise InputError(f"target {spec.name!r}: body asks for {{{name}}}, {where} has {got}")


def at_path(response: Any, path: str) -> Any:
    """Return the value at a path of names and positions, such as `choices.0.message`.

    Raise CallError if the response has nothing there.
    """
    value = response
    for step in path.split("."):
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and re.fullmatch(r"-?\d{1,9}", step) and -len(value) <= int(step) < len(value):
            value = value[int(step)]
        else:
            raise CallError("bad_return", f"the response has nothing at {path!r}, got {_shape(value)} before {step!r}")
    return value


def _shape(value: Any) -> str:
    if isinstance(value, Mapping):
        error = value.get("error")
        said = error.get("message") if isinstance(error, Mapping) else error
        return f"a mapping with {_listed(value)}" + (f" ({short(said, 200)})" if isinstance(said, str) else "")
    return f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__


def _listed(names: Mapping[Any, Any], most: int = 20) -> str:
    shown = [" ".join(str(name).split())[:40] for name in list(names)[:most]]
    return ", ".join([*shown, *(["…"] if len(names) > most else [])]) or "nothing"


def python(
    function: Callable[..., Any], fields: frozenset[str], timeout_s: float | None = None, also: Sequence[str] = ()
) -> Target:
    """Build a target that calls a function with the fields of the inputs by name, or with the inputs as one dict.

    The texts that a generator yields, also an async one, are joined. A call that takes longer than `timeout_s` raises
    CallError `too_slow`.

    `fields` are the fields that the inputs of all examples share. The function may also ask for any name in OFFERED;
    a field called `repetition` or `seed` goes before ours. `also` are further names that it may ask for.
    If it has a single parameter with none of these names, that parameter gets the inputs.
    Raise InputError for a parameter that cannot be filled.
    """
    signature = parameters_of(function, f"target {name_of(function)!r}")
    parameters = [p for p in signature if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    offered = [name for name in (*OFFERED, *also) if name not in TRIAL or name not in fields]
    given = function.keywords if isinstance(function, partial) else {}  # such as a seed that is fixed
    requested = [p.name for p in parameters if p.name not in given and (p.name in offered or p.name in fields)]
    unfilled = [p.name for p in parameters if p.name not in requested and p.default is p.empty]
    takes_dict = len(unfilled) == 1 and not (set(requested) - set(offered))
    if unfilled and not takes_dict:
        known = ", ".join(sorted(fields)) or "no field is in all examples"
        raise InputError(
            f"target {name_of(function)!r}: asks for {unfilled[0]!r}, wanted a field of the inputs ({known}), "
            f"one of {', '.join((*OFFERED, *also))}, or the inputs as one argument"
        )
    sources = {name: name for name in requested} | ({unfilled[0]: "inputs"} if takes_dict else {})
    order = [p for p in parameters if p.name in sources or p.kind is p.POSITIONAL_ONLY]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature)

    def call(available: Mapping[str, Any]) -> Any:
        values = {**available["inputs"], **{name: available[name] for name in offered if name in available}}
        filled = {p.name: values[sources[p.name]] if p.name in sources else p.default for p in order}
        positional = [filled.pop(p.name) for p in order if p.kind is p.POSITIONAL_ONLY]
        rest = (
            {n: v for n, v in available["inputs"].items() if n not in sources} if takes_any and not takes_dict else {}
        )
        return _begun(partial(function, *positional, **rest, **filled), timeout_s)

    return Target(call=call, is_async=is_async(function))


def _begun(call: Callable[[], Any], timeout_s: float | None) -> Any:
    """Return what a call returns, or what is to be awaited for it."""

    def made() -> Any:
        returned = call()
        return _joined([*returned]) if isinstance(returned, Iterator) else returned

    if timeout_s is None:
        returned = made()
        return awaited(returned) if isinstance(returned, AsyncIterator) else returned
    returned = _within(timeout_s, made)
    is_later = isawaitable(returned) or isinstance(returned, AsyncIterator)
    return ended_within(timeout_s, awaited(returned)) if is_later else returned


async def awaited(returned: Any) -> Any:
    """Return what an awaitable gives, and the texts of a generator joined. Raise CallError if it yields others."""
    value = await returned if isawaitable(returned) else returned
    if isinstance(value, AsyncIterator):
        return _joined([part async for part in value])
    return _joined([*value]) if isinstance(value, Iterator) else value


def _joined(parts: Sequence[Any]) -> str:
    others = [type(part).__name__ for part in parts if not isinstance(part, str)]
    if others:
        raise CallError("bad_return", f"yielded {others[0]}, wanted texts, or one value that is returned")
    return "".join(parts)


def _within(timeout_s: float, call: Callable[[], Any]) -> Any:
    """Call a sync function on a thread of its own, which is left running if it takes too long: none can be stopped."""
    ended: list[Callable[[], Any]] = []

    def run() -> None:
        try:
            value = call()
        except BaseException as error:
            ended.append(partial(_raise, error))
        else:
            ended.append(lambda: value)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="evalflows-answer", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not ended:
        raise CallError("too_slow", f"took longer than {timeout_s:g} s and was left running")
    return ended[0]()


def _raise(error: BaseException) -> None:
    raise error


async def ended_within(timeout_s: float, work: Awaitable[Any], left_s: Callable[[], float] | None = None) -> Any:
    """Return what an awaitable of the user's gives. Raise CallError `too_slow` if it takes longer than `timeout_s`.

    `left_s` returns the seconds until it is asked again, 0 once the time is over; by default the time that is left. A
    result or error after the cancellation is ignored.
    """
    end = time.monotonic() + timeout_s
    left_s = left_s or (lambda: end - time.monotonic())
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # retrieved, or asyncio complains
    try:
        while not task.done() and (seconds := left_s()) > 0:
            await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_S)
        raise CallError("too_slow", f"took longer than {timeout_s:g} s and was stopped")
    finally:
        task.cancel()


class NoRecordedAnswerError(LookupError):
    """The recording has no answer for this example, or an error in its place."""


def recorded(answers: Iterable[tuple[int, Mapping[str, Any]]], where: str) -> Target:
    """Build a target that returns recorded answers, looked up by the example's id or else by its inputs.

    `answers` are numbered rows of {"id" or "inputs", "repetition", "outputs" or "error", "latency_s"}. A row without
    `repetition` answers every repetition that has no row of its own. Raise InputError, with the row's number, for a row
    of another shape and for a second row with the same example and repetition.
    """
    known, numbers, repetitions = Answers(), dict[Key, int](), dict[str, list[int]]()
    for number, row in answers:
        key = example, repetition = _key(row, f"{where}:{number}")
        if key in numbers:
            raise InputError(f"{where}:{number}: answers {_of(repetition)}the same example as line {numbers[key]}")
        numbers[key] = number
        known[key] = row
        if repetition is not None:
            repetitions.setdefault(example, []).append(repetition)

    def call(available: Mapping[str, Any]) -> Answer:
        examples = (f"id:{available['example_id']}", _inputs_key(available["inputs"]))
        keys = [(example, number) for example in examples for number in (available["repetition"], None)]
        row = next((row for key in keys if (row := known.get(key)) is not None), None)
        if row is None or row.get("outputs") is None:
            error = row.get("error") if row else None
            has = [number for example in examples for number in repetitions.get(example, ())]
            raise NoRecordedAnswerError(error or f"{where} has no answer for {_lacking(available['repetition'], has)}")
        return Answer(outputs=row["outputs"], latency_s=_seconds(row.get("latency_s")))

    return Target(call=call, is_async=False, is_recorded=True)


def recorded_column(column: str) -> Target:
    """Build a target that returns a field of the example's metadata, or the example's reference."""

    def call(available: Mapping[str, Any]) -> Answer:
        answer = _reference(available) if column == REFERENCE else available["metadata"].get(column)
        if answer is None:
            holder = "example" if column == REFERENCE else "example's metadata"
            raise NoRecordedAnswerError(f"the {holder} has no {column!r}")
        return Answer(outputs=answer)

    return Target(call=call, is_async=False, is_recorded=True)


def replayed(outputs: Iterable[OutputRow], experiment: str, otherwise: Target | None = None) -> Target:
    """Build a target that returns the outputs of another experiment, by example and repetition, and their cost.

    `otherwise` is asked for those that the experiment lacks; without it they are errors.
    """
    known = SpilledRows[tuple[str, int], OutputRow]()
    for output in outputs:
        known[output.example_id, output.repetition] = output

    def call(available: Mapping[str, Any]) -> Any:
        row = known.get((available["example_id"], available["repetition"]))
        if row is None or row.outputs is None:
            if otherwise is not None:
                return otherwise.call(available)
            error = row.error if row else None
            raise NoRecordedAnswerError(error or f"{experiment} has no answer for this example and repetition")
        return Answer(
            outputs=json.loads(row.outputs),
            latency_s=row.latency_s,
            tokens_in=row.tokens_in,
            tokens_out=row.tokens_out,
            cost_usd=row.cost_usd,
            steps=row.steps,
            reused_from=row.run_id,
        )

    return Target(call=call, is_async=otherwise is not None and otherwise.is_async, is_recorded=otherwise is None)


def _reference(available: Mapping[str, Any]) -> Any:
    return available["example"].reference_outputs


def _of(repetition: int | None) -> str:
    return "" if repetition is None else f"repetition {repetition} of "


def _lacking(repetition: int, recorded_ones: Sequence[int]) -> str:
    """Return what has no answer: a repetition, if the recording has others of this example, else the example."""
    if not recorded_ones:
        return "this example"
    return (
        f"repetition {repetition} of this example, only for {', '.join(map(str, sorted(recorded_ones)[:MOST_NAMED]))}"
    )


def _key(row: Mapping[str, Any], where: str) -> Key:
    if "outputs" not in row and not row.get("error"):
        raise InputError(f"{where}: got {', '.join(row) or 'nothing'}, wanted 'outputs' (or 'error')")
    return _example_key(row, where), _repetition(row.get("repetition"), where)


def _repetition(given: object, where: str) -> int | None:
    """Return a repetition, given as a number or as text, as in CSV; None if the row does not say."""
    if given is None or given == "":
        return None
    number = int(given) if isinstance(given, float) and given.is_integer() else given
    if isinstance(number, str) and re.fullmatch(r"[0-9]{1,9}", number):
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise InputError(f"{where}: repetition: got {short(given)}, wanted a whole number from 0")
    return number


def _example_key(row: Mapping[str, Any], where: str) -> str:
    if (identity := identifier(row.get("id"), f"{where}: id")) is not None:
        return f"id:{identity}"
    if not is_blank(row.get("inputs")):
        try:
            return _inputs_key(row["inputs"])
        except (TypeError, ValueError) as error:
            raise InputError(f"{where}: inputs: not JSON: {error}") from error
    raise InputError(f"{where}: got {', '.join(row)}, wanted 'id' or 'inputs' to find the example by")


def _inputs_key(inputs: Any) -> str:
    return derived_id("inputs", to_json(inputs if isinstance(inputs, Mapping) else {"input": inputs}))


def _seconds(value: Any) -> float | None:
    """Return a recorded latency, given as a number or as text; None if it is not a valid latency."""
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds <= MAX_SECONDS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Tools in OpenAI's format, and the names that they have in the spec or the example, by the names sent."""

    sent: Sequence[Mapping[str, Any]]
    own_names: Mapping[str, str]

    def with_own_name(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a model's call with the tool's own name."""
        function = call.get("function")
        if not isinstance(function, Mapping) or function.get("name") not in self.own_names:
            return dict(call)
        return {**call, "function": {**function, "name": self.own_names[function["name"]]}}


def as_tools(given: Any) -> Tools | None:
    """Return a list of tools as they are sent; None without any.

    Functions (name, description, parameters) are put into OpenAI's format. Their names get `_` for characters that
    OpenAI refuses, such as dots, and types that Python names, such as `dict`, are named as in JSON schema. Tools of
    other types are sent unchanged. Raise InputError for what is not a list of tools.
    """
    if not given:
        return None
    if not isinstance(given, list | tuple):
        raise InputError(f"tools: got {short(given)}, wanted a list of tools")
    names = [_function(tool)["name"] for tool in given if _is_function(tool)]
    own_names = {_name_sent(name): name for name in names}
    if len(own_names) < len(names):
        got = ", ".join(names)
        raise InputError(f"tools: got {got}, wanted names that differ in letters, digits, _ and -")
    return Tools(sent=[_sent(tool) if _is_function(tool) else tool for tool in given], own_names=own_names)


def tools_at(path: str, available: Mapping[str, Any]) -> Tools | None:
    """Return the tools of an example with these `inputs` and `metadata`. Raise InputError as `as_tools` does, and
    without the field."""
    return as_tools(value_of(available, path, "tools"))


def check_tools(spec: ChatTarget, available: Mapping[str, Any], where: str) -> None:
    """Raise InputError if `tools` is a path at which an example, with its `inputs` and `metadata`, has no tools."""
    if not isinstance(spec.tools, str):
        return
    try:
        tools_at(spec.tools, available)
    except InputError as error:
        raise InputError(f"target {spec.name!r}: {where}: {error}") from error


def _is_function(tool: Any) -> bool:
    return not isinstance(tool, Mapping) or "function" in tool or tool.get("type", "function") == "function"


def _function(tool: Any) -> Mapping[str, Any]:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InputError(f"tools: got {short(tool)}, wanted a function with a name")
    return function


def _name_sent(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_NAME]


def _sent(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {name: value for name, value in _function(tool).items() if name != "type"}
    function["name"] = _name_sent(function["name"])
    if "parameters" in function:
        function["parameters"] = _schema(function["parameters"])
    return {**(tool if "function" in tool else {"type": "function"}), "function": function}


def _schema(schema: Any) -> Any:
    """Return a schema with the types as JSON schema names them; `any` allows all, so it is left out."""
    if not isinstance(schema, Mapping):
        return schema
    return {name: _part(name, value) for name, value in schema.items() if (name, value) != ("type", "any")}


def _part(name: str, value: Any) -> Any:
    if name == "type" and isinstance(value, str):
        return JSON_TYPES.get(value, value)
    if name == "properties" and isinstance(value, Mapping):
        return {field: _schema(schema) for field, schema in value.items()}
    if name in ("anyOf", "oneOf", "allOf") and isinstance(value, list):
        return [_schema(schema) for schema in value]
    return _schema(value) if name in ("items", "additionalProperties") else value


def chat(spec: ChatTarget, complete: Complete) -> Target:
    """Build the target from its spec.

    Its outputs are `{"output": text}`, or the fields of the answer if a schema is set, plus `tool_calls`, by the tools'
    own names, if the model made any. An answer that was cut off, unless the spec says to score it, or that has no text
    is a CallError. Raise InputError for unusable tools.
    """
    optional = {
        "temperature": spec.temperature,
        "max_tokens": spec.max_tokens,
        "seed": spec.seed,
        "schema": spec.response_schema,
    }
    fixed = None if isinstance(spec.tools, str) else as_tools(spec.tools)
    parameters = {name: value for name, value in optional.items() if value is not None} | spec.extra

    async def call(available: Mapping[str, Any]) -> dict[str, Any]:
        request = _messages(spec, available["inputs"])
        tools = tools_at(spec.tools, available) if isinstance(spec.tools, str) else fixed
        offered: dict[str, Any] = {} if tools is None else {"tools": tools.sent}
        repetition = available.get("repetition", 0)
        completion = await complete(request, model=spec.model, repeat=repetition, **offered, **parameters)
        return _outputs(spec, completion, tools)

    return Target(call=call, is_async=True)


def chat_with_attachments(spec: ChatTarget, complete: Complete) -> Target:
    """Build the target of `chat`, which also sends an example's attachments, in the last user message."""
    plain = chat(spec, complete)

    async def call(available: Mapping[str, Any]) -> Any:
        parts = attached_parts(available.get("attachments"))
        if not parts:
            return await plain.call(available)

        async def attaching(messages: str | Sequence[Message], **parameters: Any) -> Completion:
            return await complete(_with_parts(messages, parts), **parameters)

        return await chat(spec, attaching).call(available)

    return Target(call=call, is_async=True)


def attached_parts(attachments: Any) -> list[dict[str, Any]]:
    """Return an example's attachments as content parts. Raise InputError for one that no part can hold."""
    if isinstance(attachments, Mapping | list):
        values = attachments.values() if isinstance(attachments, Mapping) else attachments
        return [part for value in values for part in attached_parts(value)]
    if attachments is None:
        return []
    if attachment := attachment_in(attachments):
        return [part_of(attachment)]
    if isinstance(attachments, str) and attachments.startswith(("https://", "http://")):
        return [{"type": "image_url", "image_url": {"url": attachments}}]
    raise InputError(f"attachments: got {short(attachments)}, wanted the path or data URL of a {WANTED} file")


def _with_parts(messages: str | Sequence[Message], parts: Sequence[Message]) -> list[Message]:
    """Return messages with parts at the end of the last one of the user."""
    given: list[Message] = [{"role": "user", "content": messages}] if isinstance(messages, str) else [*messages]
    place = next((n for n in range(len(given) - 1, -1, -1) if given[n].get("role") == "user"), None)
    if place is None:
        return [*given, {"role": "user", "content": [*parts]}]
    content = given[place].get("content")
    before = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    given[place] = {**given[place], "content": [*before, *parts]}
    return given


def check_fields(spec: ChatTarget, inputs: Mapping[str, Any], where: str) -> None:
    """Raise InputError if these inputs lack a field that the templates or the conversation need."""
    got = ", ".join(inputs) or "no field"
    for part, template in spec.templates.items():
        for name in sorted(placeholders(template) - inputs.keys()):
            problem = f"target {spec.name!r}: {part} asks for {{{name}}}, {where} has {got}"
            raise InputError(problem + " (write {{ and }} for braces)")
    if isinstance(spec.messages, str):
        _check_conversation(spec, spec.messages, inputs, where)
    elif spec.messages is None and spec.user is None and len(_besides_tools(spec, inputs)) != 1:
        raise InputError(f"target {spec.name!r}: wanted a user template, since {where} has {got}")


def _check_conversation(spec: ChatTarget, field: str, inputs: Mapping[str, Any], where: str) -> None:
    if field not in inputs:
        got = ", ".join(inputs) or "no field"
        raise InputError(f"target {spec.name!r}: messages are read from {field!r}, {where} has {got}")
    if not _is_conversation(inputs[field]):
        raise InputError(f"target {spec.name!r}: {field!r} of {where} is not a list of {{role, content}}")


def _messages(spec: ChatTarget, inputs: Mapping[str, Any]) -> list[Message]:
    texts = {name: fill(template, inputs) for name, template in spec.templates.items()}
    system = [{"role": "system", "content": texts["system"]}] if "system" in texts else []
    conversation: list[Message] = []
    if isinstance(spec.messages, str):
        conversation = list(inputs[spec.messages])
    elif isinstance(spec.messages, list):
        named = {f"messages.{index}": message for index, message in enumerate(spec.messages)}
        conversation = [{**m, "content": texts.get(name, m.get("content"))} for name, m in named.items()]
    if "user" in texts:
        return [*system, *conversation, {"role": "user", "content": texts["user"]}]
    if spec.messages is not None:
        return [*system, *conversation]
    only = next(iter(_besides_tools(spec, inputs).values()))
    if _is_conversation(only):
        return [*system, *only]
    return [*system, {"role": "user", "content": fill("{input}", {"input": only})}]


def _besides_tools(spec: ChatTarget, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of the inputs that are not the example's tools."""
    return {name: value for name, value in inputs.items() if f"inputs.{name}" != spec.tools}


def _is_conversation(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(message, Mapping) and isinstance(message.get("role"), str) for message in value)
    )


def _outputs(spec: ChatTarget, completion: Completion, tools: Tools | None) -> dict[str, Any]:
    text = without_thinking(completion.text) if spec.strip_thinking else completion.text
    ended = f"(finish_reason {completion.finish_reason})"
    if completion.is_truncated and completion.parsed is None and spec.truncated == "fail":
        message = f"the answer was cut off at the token limit {ended}, wanted more tokens, or `truncated: score`"
        raise CallError("truncated", message)
    if not (text.strip() or completion.tool_calls or completion.parsed is not None or completion.is_truncated):
        what = "only thinking, no text" if completion.has_thinking or completion.text.strip() else "no text"
        raise CallError("empty_answer", f"the answer has {what} {ended}")
    made = [call if tools is None else tools.with_own_name(call) for call in completion.tool_calls]
    calls = {"tool_calls": made} if made else {}
    if isinstance(completion.parsed, dict):
        return completion.parsed | calls
    return {"output": text if completion.parsed is None else completion.parsed} | calls
