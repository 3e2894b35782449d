"""Read chat messages: the assistant's calls, its texts alongside calls, and its final answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalflows.evaluators.agents.calls import Call, read_calls
from evalflows.specs.errors import short

Message = Mapping[str, Any]

_ASSISTANT = ("assistant", "ai")
_SYSTEM = ("system", "developer")
_TEXT_PARTS = ("text", "output_text", "input_text", "summary_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantParts:
    """The assistant's calls, reasoning and final answer in a list of messages."""

    calls: tuple[Call, ...] = ()
    reasoning: tuple[str, ...] = ()
    answer: str | None = None


def is_conversation(value: Any) -> bool:
    """Return whether the value is a non-empty list of chat messages or of items of OpenAI's Responses API."""
    return isinstance(value, list | tuple) and bool(value) and all(_kind(item) for item in value)


def read_messages(given: Any, where: str) -> list[Message]:
    """Return chat messages unchanged. Raise ValueError for a value that is not a list of them; it can be empty."""
    if not isinstance(given, list | tuple):
        raise ValueError(f"{where}: got {short(given)}, wanted a list of messages")
    for index, item in enumerate(given):
        if not _kind(item):
            raise ValueError(f"{where}[{index}]: got {short(item)}, wanted a message: role and content")
    return list(given)


def new_messages(messages: Iterable[Message], inputs: Mapping[str, Any] | None) -> list[Message]:
    """Return the messages without system messages, and without the inputs' conversation if they begin with it."""
    rest = [message for message in messages if _kind(message) not in _SYSTEM]
    earlier = next((value for value in (inputs or {}).values() if is_conversation(value)), ())
    known = [_identity(message) for message in earlier if _kind(message) not in _SYSTEM]
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
        if text and (new_calls or _kind(message) == "reasoning"):
            reasoning.append(text)
        elif text and is_assistant(message):
            answer = text
    return AssistantParts(calls=tuple(calls), reasoning=tuple(reasoning), answer=answer)


def is_assistant(message: Message) -> bool:
    return _kind(message) in (*_ASSISTANT, "message")


def calls_of(message: Message) -> tuple[Call, ...]:
    """Return the calls of an assistant's message (OpenAI, LangChain, Anthropic), or of one item of a response."""
    if _kind(message) == "function_call":
        return read_calls([message], "function_call")
    if not is_assistant(message):
        return ()
    content = message.get("content")
    used = [part for part in _parts(content) if isinstance(part, Mapping) and part.get("type") == "tool_use"]
    return read_calls([*(message.get("tool_calls") or ()), *used], "tool_calls")


def text_of(message: Message) -> str:
    """Return the text of a message, from all its text parts."""
    content = message.get("summary") if _kind(message) == "reasoning" else message.get("content")
    texts = [part if isinstance(part, str) else _text_of_part(part) for part in _parts(content)]
    return "\n".join(text for text in texts if text.strip())


def _text_of_part(part: Any) -> str:
    is_text = isinstance(part, Mapping) and part.get("type") in _TEXT_PARTS
    return str(part.get("text") or "") if is_text else ""


def _parts(content: Any) -> Sequence[Any]:
    return content if isinstance(content, list | tuple) else [] if content is None else [content]


def _kind(message: Any) -> str:
    """Return the role of a message, or the type in LangChain and for an item of a response; "" for anything else."""
    kind = (message.get("role") or message.get("type")) if isinstance(message, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _identity(message: Message) -> tuple[str, str]:
    """Return what identifies a message: its role, in one spelling, and its text."""
    kind = _kind(message)
    return {"ai": "assistant", "human": "user"}.get(kind, kind), text_of(message)
