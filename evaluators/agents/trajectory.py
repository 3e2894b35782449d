"""Read an agent's trajectory from its outputs, in the formats of agents and published datasets, pair its calls one
to one with the expected ones, and score them. `transcript.py` writes it for a judge.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, NoReturn, get_args

import numpy as np
from numpy.typing import NDArray

from evalflows.evaluators.paths import as_text, value_at
from evalflows.evaluators.views import RunView
from evalflows.specs.errors import short
from evalflows.specs.frozen import dataclass
from evalflows.specs.json_schemas import JSON_TYPES

FloatArray = NDArray[np.float64]

_ARGUMENTS = ("arguments", "args", "input", "kwargs", "parameters")

Rule = Literal["exact", "per_argument", "types", "allowed"]
Numbers = Literal["equal", "strict"]

_OPTIONAL = ("", None)  # among the allowed values, these mean that the argument is optional
_IGNORED = re.compile(r"[ ,./\-_*^]")

Message = Mapping[str, Any]

_ASSISTANT = ("assistant", "ai")
_SYSTEM = ("system", "developer")
TEXT_PARTS = ("text", "output_text", "input_text", "summary_text")

_MOST_SHOWN = 3
_LONGEST = 160

_NO_ANSWERS = ("tool_calls", "messages", "reasoning_steps")


def best_pairs(worth: FloatArray) -> list[tuple[int, int]]:
    """Return the pairs (row, column) with the largest total worth, with each row and each column in at most one pair.

    `worth` has shape (n, m) and no negative values; pairs worth 0 are left out.
    """
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped, unused-ignore]  # late: few evaluators pair

    rows, columns = linear_sum_assignment(worth, maximize=True)
    return [pair for pair in zip(rows.tolist(), columns.tolist(), strict=True) if worth[pair] > 0]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool's name and arguments; None for arguments that are not a JSON object, which match nothing."""

    name: str
    arguments: dict[str, Any] | None
    given: Any = field(default=None, compare=False)  # the arguments as given

    def __str__(self) -> str:
        arguments = "not a JSON object" if self.arguments is None else json.dumps(self.arguments, ensure_ascii=False)
        return f"{self.name}({arguments})"


def read_calls(given: Any, where: str) -> tuple[Call, ...]:
    """Read a list of calls.

    An element is {"name", "arguments"} (or args, input, kwargs, parameters), the same inside "function" as in OpenAI's
    format, or {name: arguments}. Raise ValueError, with `where` first, for a value that is not a list, and for an
    element without a name.
    """
    if not isinstance(given, list | tuple):
        raise ValueError(f"{where}: got {short(given)}, wanted a list of calls")
    return tuple(_read_call(item, f"{where}[{index}]") for index, item in enumerate(given))


def _read_call(item: Any, where: str) -> Call:
    if isinstance(item, Mapping):
        fields = item["function"] if _has_name(item.get("function")) else item
        if _has_name(fields):
            return _call(fields["name"], next((fields[key] for key in _ARGUMENTS if key in fields), None))
        if len(item) == 1:
            ((name, arguments),) = item.items()
            if isinstance(arguments, Mapping):
                return _call(str(name), arguments)
    raise ValueError(f"{where}: got {short(item)}, wanted a call: name and arguments")


def _call(name: str, arguments: Any) -> Call:
    return Call(name, read_arguments(arguments), arguments)


def _has_name(fields: Any) -> bool:
    return isinstance(fields, Mapping) and isinstance(fields.get("name"), str)


def read_arguments(given: Any) -> dict[str, Any] | None:
    """Read arguments by name from a mapping or a JSON text; None for anything else. Null or an empty text is {}."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    if isinstance(given, str):
        try:
            given = json.loads(given, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None
    return {str(name): value for name, value in given.items()} if isinstance(given, Mapping) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


CallScore = Callable[[Call, Call], float]
"""A function of the expected and the actual call: the score of the actual call, 0 if the names differ."""


def rule(arguments: Any, tools: Any = None, numbers: Any = "equal") -> CallScore:
    """Return the function that scores a pair of calls. Raise ValueError for unknown rules, and for those that do not
    go together."""
    if arguments not in get_args(Rule):
        raise ValueError(f"arguments: got {short(arguments)}, wanted one of {', '.join(get_args(Rule))}")
    if numbers not in get_args(Numbers):
        raise ValueError(f"numbers: got {short(numbers)}, wanted one of {', '.join(get_args(Numbers))}")
    strict = numbers == "strict"
    if tools is not None:
        schemas = _schemas(tools)
        if arguments != "types":
            raise ValueError(f"tools: got tools with arguments {arguments!r}, wanted arguments 'types'")
        return _if_same_tool(
            lambda expected, actual: _share_of_schema(schemas.get(actual.name), actual.arguments or {}, strict)
        )
    if strict and arguments == "types":
        raise ValueError("numbers: got 'strict' with arguments 'types', wanted tools, whose schemas have the types")
    score_arguments = _RULES[arguments]
    return _if_same_tool(lambda expected, actual: score_arguments(expected, actual, strict))


def tools_of(setting: Any, inputs: dict[str, Any] | None, metadata: dict[str, Any] | None) -> Any:
    """Return the tools of a setting: the list itself, or what the example has at the path that it names."""
    roots = {"inputs": inputs, "metadata": metadata}
    return value_at("tools", setting, roots) if isinstance(setting, str) else setting


def same(first: Any, second: Any, strict: bool = False) -> bool:
    """Return whether two JSON values are deeply equal: 1 equals 1.0, but not True or "1"; a tuple equals a list.

    With `strict`, the numbers in a list must be written alike: [1] does not equal [1.0].
    """
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(same(value, second[name], strict) for name, value in first.items())
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        pairs = zip(first, second, strict=False)
        return len(first) == len(second) and all(same(*pair, strict) and _alike(*pair, strict) for pair in pairs)
    return bool(first == second)


def _alike(first: Any, second: Any, strict: bool) -> bool:
    """Return whether two elements of lists, if numbers, are written alike: both as integers, or neither."""
    return not strict or not isinstance(first, int | float) or isinstance(first, float) == isinstance(second, float)


def json_type(value: Any) -> str:
    """Return the JSON type of a value; integer for a number without a fraction."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) or value.is_integer() else "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, Mapping) else "array"


def _if_same_tool(score_arguments: CallScore) -> CallScore:
    def score(expected: Call, actual: Call) -> float:
        return 0.0 if expected.name != actual.name or actual.arguments is None else score_arguments(expected, actual)

    return score


def _exact(expected: Call, actual: Call, strict: bool) -> float:
    return float(same(expected.arguments, actual.arguments, strict))


def _per_argument(expected: Call, actual: Call, strict: bool) -> float:
    return _share(expected.arguments or {}, actual.arguments or {}, lambda first, second: same(first, second, strict))


def _types(expected: Call, actual: Call, strict: bool) -> float:
    return _share(expected.arguments or {}, actual.arguments or {}, lambda first, second: _type(first) == _type(second))


def _type(value: Any) -> str:
    kind = json_type(value)
    return "number" if kind == "integer" else kind


def _share(expected: Mapping[str, Any], actual: Mapping[str, Any], alike: Callable[[Any, Any], bool]) -> float:
    """Return the share of all arguments of either call that both have and that are alike."""
    names = expected.keys() | actual.keys()
    matching = [name for name in expected.keys() & actual.keys() if alike(expected[name], actual[name])]
    return len(matching) / len(names) if names else 1.0


def _allowed(expected: Call, actual: Call, strict: bool) -> float:
    allowed_values = expected.arguments or {}
    for name, values in allowed_values.items():
        if not isinstance(values, list | tuple):
            raise ValueError(
                f"reference: {expected.name}: {name}: got {short(values)}, wanted a list of allowed values"
            )
    return float(_fits_fields(actual.arguments or {}, allowed_values, strict))


def _fits_fields(given: Mapping[str, Any], reference: Mapping[str, Any], strict: bool) -> bool:
    allowed = {name: values if isinstance(values, list | tuple) else [values] for name, values in reference.items()}
    needed = {name for name, values in allowed.items() if not any(value in _OPTIONAL for value in values)}
    return needed <= given.keys() <= allowed.keys() and all(
        any(_fits(value, option, strict) for option in allowed[name]) for name, value in given.items()
    )


def _fits(value: Any, allowed: Any, strict: bool) -> bool:
    if isinstance(value, str) and isinstance(allowed, str):
        return _folded(value) == _folded(allowed)
    if isinstance(value, list | tuple) and isinstance(allowed, list | tuple):
        pairs = zip(value, allowed, strict=False)
        return len(value) == len(allowed) and all(_fits(*pair, strict) and _alike(*pair, strict) for pair in pairs)
    if isinstance(value, Mapping) and isinstance(allowed, Mapping):
        return _fits_fields(value, allowed, strict)
    return same(value, allowed, strict)


def _folded(text: str) -> str:
    """Normalise a text as BFCL's checker does: ignore case, spaces and , . / - _ * ^, and use one kind of quotes."""
    return _IGNORED.sub("", text).lower().replace("'", '"')


_RULES: Mapping[Rule, Callable[[Call, Call, bool], float]] = {
    "exact": _exact,
    "per_argument": _per_argument,
    "types": _types,
    "allowed": _allowed,
}


def _schemas(tools: Any) -> dict[str, Mapping[str, Any]]:
    """Return the parameters of each tool by name."""
    if not isinstance(tools, Sequence) or isinstance(tools, str) or not tools:
        raise ValueError(f"tools: got {short(tools)}, wanted a list of tools")
    schemas: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise ValueError(f"tools: got {short(tool)}, wanted name and parameters")
        schemas[inner["name"]] = inner.get("parameters") or {}
    return schemas


def _share_of_schema(schema: Mapping[str, Any] | None, actual: Mapping[str, Any], strict: bool) -> float:
    """Return the share of all given or required arguments that are given and have the schema's type."""
    if schema is None:
        return 0.0
    fields = schema.get("properties") or {}
    names = {*actual, *(schema.get("required") or ())}
    matching = [name for name, value in actual.items() if name in fields and _is_of(value, fields[name], strict)]
    return len(matching) / len(names) if names else 1.0


def _is_of(value: Any, field: Any, strict: bool, inside: bool = False) -> bool:
    """Return whether a value has a schema's type. `strict` looks at the elements of arrays too, where an integer is not
    a number and 2.0 not an integer; `inside` says that the value is such an element."""
    types, kind = _types_of(field), json_type(value)
    if inside and isinstance(value, float):
        kind = "number"
    also = ["integer"] if "number" in types and not inside else []
    if "any" not in types and kind not in [*types, *also]:
        return False
    items = field.get("items") if isinstance(field, Mapping) else None
    return not (strict and isinstance(value, list | tuple)) or all(_is_of(item, items, strict, True) for item in value)


def _types_of(field: Any) -> list[str]:
    """Return the JSON types that a schema allows, whether it names them as JSON schema, Python or BFCL does."""
    declared = field.get("type", "any") if isinstance(field, Mapping) else "any"
    return [JSON_TYPES.get(name, name) for name in ([declared] if isinstance(declared, str) else declared)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantParts:
    """The assistant's calls, reasoning and final answer in a list of messages."""

    calls: tuple[Call, ...] = ()
    reasoning: tuple[str, ...] = ()
    answer: str | None = None


def is_conversation(value: Any) -> bool:
    """Return whether the value is a non-empty list of chat messages or of items of OpenAI's Responses API."""
    return isinstance(value, list | tuple) and bool(value) and all(kind_of(item) for item in value)


def read_messages(given: Any, where: str) -> list[Message]:
    """Return chat messages unchanged. Raise ValueError for a value that is not a list of them; it can be empty."""
    if not isinstance(given, list | tuple):
        raise ValueError(f"{where}: got {short(given)}, wanted a list of messages")
    for index, item in enumerate(given):
        if not kind_of(item):
            raise ValueError(f"{where}[{index}]: got {short(item)}, wanted a message: role and content")
    return list(given)


def new_messages(messages: Iterable[Message], inputs: Mapping[str, Any] | None) -> list[Message]:
    """Return the messages without system messages, and without the inputs' conversation if they begin with it."""
    rest = [message for message in messages if kind_of(message) not in _SYSTEM]
    earlier = next((value for value in (inputs or {}).values() if is_conversation(value)), ())
    known = [_identity(message) for message in earlier if kind_of(message) not in _SYSTEM]
    begins_with_known = [_identity(message) for message in rest[: len(known)]] == known
    return rest[len(known) :] if begins_with_known else rest


def assistant_parts(messages: Iterable[Message]) -> AssistantParts:
    """Return the assistant's calls in order, its texts with calls, and its last text without a call."""
    calls: list[Call] = []
    reasoning: list[str] = []
    answer: str | None = None
    for message in messages:
        new_calls, text = calls_of(message), text_of(message)
        calls += new_calls
        if text and (new_calls or kind_of(message) == "reasoning"):
            reasoning.append(text)
        elif text and is_assistant(message):
            answer = text
    return AssistantParts(calls=tuple(calls), reasoning=tuple(reasoning), answer=answer)


def is_assistant(message: Message) -> bool:
    return kind_of(message) in (*_ASSISTANT, "message")


def calls_of(message: Message) -> tuple[Call, ...]:
    """Return the calls of an assistant's message (OpenAI, LangChain, Anthropic), or of one item of a response."""
    if kind_of(message) == "function_call":
        return read_calls([message], "function_call")
    if not is_assistant(message):
        return ()
    content = message.get("content")
    used = [part for part in parts_of(content) if isinstance(part, Mapping) and part.get("type") == "tool_use"]
    return read_calls([*(message.get("tool_calls") or ()), *used], "tool_calls")


def text_of(message: Message) -> str:
    """Return the text of a message, from all its text parts."""
    content = message.get("summary") if kind_of(message) == "reasoning" else message.get("content")
    texts = [part if isinstance(part, str) else _text_of_part(part) for part in parts_of(content)]
    return "\n".join(text for text in texts if text.strip())


def _text_of_part(part: Any) -> str:
    is_text = isinstance(part, Mapping) and part.get("type") in TEXT_PARTS
    return str(part.get("text") or "") if is_text else ""


def parts_of(content: Any) -> Sequence[Any]:
    """Return the parts of a message's content; a single value is one part."""
    return content if isinstance(content, list | tuple) else [] if content is None else [content]


def kind_of(message: Any) -> str:
    """Return the role of a message, or the type in LangChain and for an item of a response; "" for anything else."""
    kind = (message.get("role") or message.get("type")) if isinstance(message, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _identity(message: Message) -> tuple[str, str]:
    """Return what identifies a message: its role, in one spelling, and its text."""
    kind = kind_of(message)
    return {"ai": "assistant", "human": "user"}.get(kind, kind), text_of(message)


@dataclass(frozen=True, slots=True)
class Paired:
    """Pairs of expected and actual calls with a score above 0, and the score of each pair."""

    expected: Sequence[Call]
    actual: Sequence[Call]
    pairs: Sequence[tuple[int, int]]
    scores: Sequence[float]

    @property
    def total(self) -> float:
        return float(sum(self.scores))

    def faults(self, arguments: Rule | None, *, extra: bool = True) -> str | None:
        """Return the first three faults of the calls, with `extra` also extra calls; None without faults.

        `arguments` is the rule by which arguments were compared; None if they were not compared with each other.
        """
        faults = [*self._partial(arguments), *self._unpaired(arguments, extra)]
        more = [f"and {len(faults) - _MOST_SHOWN} more"] if len(faults) > _MOST_SHOWN else []
        return "; ".join([*faults[:_MOST_SHOWN], *more]) or None

    def _partial(self, arguments: Rule | None) -> list[str]:
        partial = [pair for pair, share in zip(self.pairs, self.scores, strict=True) if share < 1]
        return [_wrong(self.expected[row], self.actual[column], arguments) for row, column in partial]

    def _unpaired(self, arguments: Rule | None, extra: bool) -> list[str]:
        """Return the faults of unpaired calls; an expected and an actual call of the same tool make one fault."""
        paired_expected, paired_actual = {row for row, _ in self.pairs}, {column for _, column in self.pairs}
        left = [call for index, call in enumerate(self.actual) if index not in paired_actual]
        faults = []
        for expected in (call for index, call in enumerate(self.expected) if index not in paired_expected):
            namesake = next((call for call in left if call.name == expected.name), None)
            if namesake:
                left.remove(namesake)
            faults.append(_wrong(expected, namesake, arguments) if namesake else f"no call of {_cut(expected)}")
        return [*faults, *(f"not wanted: {_cut(call)}" for call in left if extra)]


def _wrong(expected: Call, actual: Call, arguments: Rule | None) -> str:
    """Return what is wrong with a call: the first three of its arguments, and both calls."""
    wrong = [] if arguments is None or actual.arguments is None else [*_wrong_arguments(expected, actual, arguments)]
    both = f"wanted {_cut(expected)}, got {_cut(actual)}"
    return f"{', '.join(wrong[:_MOST_SHOWN])}: {both}" if wrong else both


def _wrong_arguments(expected: Call, actual: Call, arguments: Rule) -> Iterator[str]:
    given, is_list = actual.arguments or {}, arguments == "allowed"
    for name, value in (expected.arguments or {}).items():
        options = value if is_list else [value]
        if name not in given:
            if not (is_list and any(option in _OPTIONAL for option in options)):
                yield f"argument {name} is missing"
            continue
        kinds = [_type(option) for option in options if not (is_list and option in _OPTIONAL)]
        fits = any(_fits(given[name], option, False) if is_list else same(option, given[name]) for option in options)
        if not fits and _type(given[name]) not in kinds:
            yield f"argument {name} has the wrong type ({_type(given[name])})"
        elif not fits and arguments != "types":
            yield f"argument {name} has the wrong value"
    yield from (f"argument {name} is not wanted" for name in given if name not in (expected.arguments or {}))


def _cut(call: Call) -> str:
    text = str(call)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def paired(expected: Sequence[Call], actual: Sequence[Call], score_call: CallScore) -> Paired:
    """Pair the calls so that the total score is largest, whatever their order."""
    scores = [[score_call(expected_call, actual_call) for actual_call in actual] for expected_call in expected]
    worth = np.array(scores, dtype=np.float64)
    pairs = best_pairs(worth.reshape(len(expected), len(actual)))
    return Paired(expected, actual, pairs, [float(worth[pair]) for pair in pairs])


@dataclass(frozen=True, slots=True)
class Trajectory:
    """An agent's calls in order, its reasoning in order, and its final answer as text; None without an answer."""

    tool_calls: tuple[Call, ...]
    reasoning_steps: tuple[str, ...]
    final_answer: str | None


def read_trajectory(
    outputs: Mapping[str, Any], inputs: Mapping[str, Any] | None = None, run: RunView | None = None
) -> Trajectory:
    """Return the trajectory of a run.

    Calls come from `tool_calls`; without that field from `messages` (or `output`, if it is a conversation), except
    those already in the inputs; and if there are none, from the run's steps: those of kind "tool", else the calls in
    recorded model responses. Reasoning comes from `reasoning_steps`, else from texts alongside calls. The final answer
    is that of `answer_of`. Arguments that are not a JSON object are None.

    Raise ValueError for fields that are not a list of calls, messages or steps.
    """
    messages = messages_of(outputs, inputs)
    from_messages, from_steps = assistant_parts(messages), assistant_parts(_recorded(run))
    calls = from_messages.calls or _tools(run) or from_steps.calls
    if outputs.get("tool_calls") is not None:
        calls = read_calls(outputs["tool_calls"], "tool_calls")
    answer = _answer(outputs, from_messages)
    reasoning = _reasoning(outputs)
    return Trajectory(
        tool_calls=calls,
        reasoning_steps=(from_messages.reasoning or from_steps.reasoning) if reasoning is None else reasoning,
        final_answer=None if answer is None else as_text(answer),
    )


def messages_of(fields: Mapping[str, Any], inputs: Mapping[str, Any] | None) -> list[Message]:
    """Return the conversation in `messages` or `output` without the inputs' messages; empty without a conversation."""
    given = fields.get("messages")
    if given is None:
        given = fields["output"] if is_conversation(fields.get("output")) else []
    return new_messages(read_messages(given, "messages"), inputs)


def answer_of(fields: Mapping[str, Any], inputs: Mapping[str, Any] | None = None) -> Any:
    """Return the final answer unchanged, or None: `final_answer`, else the assistant's last text without a call, else
    `output` or `answer`, else the only field."""
    return _answer(fields, assistant_parts(messages_of(fields, inputs)))


def expected_calls(
    reference_outputs: Mapping[str, Any] | None, key: str | None, inputs: Mapping[str, Any] | None = None
) -> tuple[Call, ...] | None:
    """Return the calls of a reference: of the field `key`, else of `tool_calls`, else of `messages`; None without any.

    Raise ValueError for a value that is not a list of calls or messages, and for arguments that are not a JSON object.
    """
    names = (key,) if key is not None else ("tool_calls", "messages")
    fields = reference_outputs if isinstance(reference_outputs, Mapping) else {}
    field = next((name for name in names if fields.get(name) is not None), None)
    if field is None:
        return None
    given, where = fields[field], f"reference: {field}"
    if field == "messages" or (is_conversation(given) and "role" in given[0]):
        calls = assistant_parts(new_messages(read_messages(given, where), inputs)).calls
    else:
        calls = read_calls(given, where)
    if broken := [call.name for call in calls if call.arguments is None]:
        raise ValueError(f"{where}: {broken[0]}: got arguments that are not a JSON object, wanted a JSON object")
    return calls


def _answer(fields: Mapping[str, Any], spoken: AssistantParts) -> Any:
    if fields.get("final_answer") is not None:
        return fields["final_answer"]
    if spoken.answer is not None:
        return spoken.answer
    others = {name: value for name, value in fields.items() if name not in _NO_ANSWERS and not is_conversation(value)}
    named = [others[name] for name in ("output", "answer") if others.get(name) is not None]
    if named:
        return named[0]
    return next(iter(others.values())) if len(others) == len(fields) == 1 else None


def _reasoning(outputs: Mapping[str, Any]) -> tuple[str, ...] | None:
    given = outputs.get("reasoning_steps")
    if given is None:
        return None
    if not isinstance(given, list | tuple):
        raise ValueError(f"reasoning_steps: got {short(given)}, wanted a list of texts")
    return tuple(as_text(step) for step in given)


def _tools(run: RunView | None) -> tuple[Call, ...]:
    steps = [step for step in _steps(run) if step.get("kind") == "tool"]
    return tuple(_call(str(step.get("name")), step.get("inputs")) for step in steps)


def _recorded(run: RunView | None) -> list[Message]:
    """Return the messages in recorded model responses: of a chat completion, or the items of a response."""
    messages: list[Message] = []
    for step in _steps(run):
        outputs = step.get("outputs")
        if step.get("kind") == "llm" and isinstance(outputs, Mapping):
            given = outputs.get("output")
            items: list[Any] = given if isinstance(given, list) else [outputs.get("message")]
            messages += [item for item in items if is_conversation([item])]
    return messages


def _steps(run: RunView | None) -> Sequence[Mapping[str, Any]]:
    return [step for step in (run.steps if run else None) or () if isinstance(step, Mapping)]
