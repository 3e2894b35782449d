"""What an assistant did in chat messages: its calls, what it said with them, and what it answered in the end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.agents.calls import Call, read_calls
from specs.errors import short

Message = Mapping[str, Any]

_ASSISTANT = ("assistant", "ai")
_SYSTEM = ("system", "developer")
_TEXT_PARTS = ("text", "output_text", "input_text", "summary_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The assistant's part in some messages."""

    calls: tuple[Call, ...] = ()
    reasoning: tuple[str, ...] = ()
    answer: str | None = None


def is_conversation(value: Any) -> bool:
    """Whether it is a list of chat messages, or of the items that OpenAI's Responses give."""
    return isinstance(value, list | tuple) and bool(value) and all(_kind(one) for one in value)


def read_messages(given: Any, where: str) -> list[Message]:
    """Chat messages as they are. Raises ValueError for what is no list of them; a list may be empty."""
    if not isinstance(given, list | tuple):
        raise ValueError(f"{where}: got {short(given)}, wanted a list of messages")
    for place, one in enumerate(given):
        if not _kind(one):
            raise ValueError(f"{where}[{place}]: got {short(one)}, wanted a message: role and content")
    return list(given)


def own_messages(messages: Iterable[Message], inputs: Mapping[str, Any] | None) -> list[Message]:
    """The messages that came after the inputs' conversation, where they begin with it; system messages left out."""
    rest = [one for one in messages if _kind(one) not in _SYSTEM]
    begun = next((value for value in (inputs or {}).values() if is_conversation(value)), ())
    before = [_mark(one) for one in begun if _kind(one) not in _SYSTEM]
    return rest[len(before) :] if [_mark(one) for one in rest[: len(before)]] == before else rest


def said(messages: Iterable[Message]) -> Said:
    """The assistant's calls in order; its texts that come with calls; its last text that comes without."""
    calls: list[Call] = []
    reasoning: list[str] = []
    answer: str | None = None
    for one in messages:
        made, text = calls_of(one), text_of(one)
        calls += made
        if text and (made or _kind(one) == "reasoning"):
            reasoning.append(text)
        elif text and is_assistant(one):
            answer = text
    return Said(calls=tuple(calls), reasoning=tuple(reasoning), answer=answer)


def is_assistant(message: Message) -> bool:
    return _kind(message) in (*_ASSISTANT, "message")


def calls_of(message: Message) -> tuple[Call, ...]:
    """The calls of an assistant's message (OpenAI's, LangChain's, Anthropic's), or of one item of a response."""
    if _kind(message) == "function_call":
        return read_calls([message], "function_call")
    if not is_assistant(message):
        return ()
    content = message.get("content")
    used = [part for part in _parts(content) if isinstance(part, Mapping) and part.get("type") == "tool_use"]
    return read_calls([*(message.get("tool_calls") or ()), *used], "tool_calls")


def text_of(message: Message) -> str:
    """Its text, of all parts that are text."""
    content = message.get("summary") if _kind(message) == "reasoning" else message.get("content")
    texts = [part if isinstance(part, str) else _text_of_part(part) for part in _parts(content)]
    return "\n".join(text for text in texts if text.strip())


def _text_of_part(part: Any) -> str:
    is_text = isinstance(part, Mapping) and part.get("type") in _TEXT_PARTS
    return str(part.get("text") or "") if is_text else ""


def _parts(content: Any) -> Sequence[Any]:
    return content if isinstance(content, list | tuple) else [] if content is None else [content]


def _kind(message: Any) -> str:
    """Its role, in LangChain and for an item of a response its type."""
    kind = (message.get("role") or message.get("type")) if isinstance(message, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _mark(message: Message) -> tuple[str, str]:
    """By what a message is known again: the two spellings of a role are one."""
    kind = _kind(message)
    return {"ai": "assistant", "human": "user"}.get(kind, kind), text_of(message)
