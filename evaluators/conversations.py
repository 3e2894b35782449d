"""The conversation of a run: its messages, the assistant's turns, and which turns are the target's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalflows.evaluators.text import answer_text, as_text
from evalflows.specs.conversation import SYSTEM, Turn, checked_messages, turns_of
from evalflows.specs.protocols import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation. The first `n_given` messages come from the example, the others from the target."""

    messages: list[Message]
    turns: list[Turn]
    n_given: int = 0

    def judged(self, given: bool) -> list[Turn]:
        """Return the target's turns, with `given` also the example's. Raise ValueError if there are none."""
        turns = [turn for turn in self.turns if given or turn.ends > self.n_given]
        if not turns:
            raise ValueError("messages: got no turn of the assistant in the outputs, wanted at least one to judge")
        return turns

    def user_messages_before(self, turn: Turn) -> range:
        """Return the indices of the user's messages directly before a turn."""
        begins = turn.begins
        while begins and self.messages[begins - 1]["role"] == "user":
            begins -= 1
        return range(begins, turn.begins)

    def user_speaks_before(self, turn: Turn) -> bool:
        """Return whether the user says something between a turn and the one before it."""
        begins = self.turns[turn.number - 2].ends if turn.number > 1 else 0
        return any(message["role"] == "user" for message in self.messages[begins : turn.begins])

    def turn_at(self, index: int) -> int | None:
        """Return the number of the turn that the message at an index belongs to or precedes; None after the last."""
        return next((turn.number for turn in self.turns if index < turn.ends), None)


def conversation(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Conversation | None:
    """Return the conversation of a run; None if neither inputs nor outputs have messages.

    `outputs["messages"]` is the whole conversation if it begins with the inputs' messages (system messages aside), and
    otherwise their continuation. Without it, the answer is one more message of the assistant after the inputs'
    messages: their `messages`, or their only field if that is a list of messages. Raise ValueError for invalid
    messages.
    """
    before = _given(inputs)
    if outputs.get("messages") is None:
        return None if before is None else _conversation([*before, _answer(outputs)], len(before))
    return _joined(before or [], checked_messages(outputs["messages"]))


def message_text(message: Mapping[str, Any]) -> str:
    """Return a message as text: its text and its calls, and a placeholder for each image or file."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [] if content is None else [content]
    texts = [_part(part) for part in parts]
    if isinstance(message.get("refusal"), str):
        texts.append(message["refusal"])
    calls = [*(message.get("tool_calls") or []), *([message["function_call"]] if message.get("function_call") else [])]
    return "\n".join([*texts, *(f"[calls {as_text(call.get('function', call))}]" for call in calls)])


def _given(inputs: Mapping[str, Any]) -> list[Message] | None:
    if inputs.get("messages") is not None:
        return checked_messages(inputs["messages"])
    only = next(iter(inputs.values())) if len(inputs) == 1 else None
    has_roles = isinstance(only, list) and only and all(isinstance(item, Mapping) and "role" in item for item in only)
    return checked_messages(only) if has_roles else None


def _answer(outputs: Mapping[str, Any]) -> Message:
    """Return the answer as a message, with the tool calls of a chat target."""
    calls, rest = outputs.get("tool_calls"), {name: outputs[name] for name in outputs if name != "tool_calls"}
    message = {"role": "assistant", "content": answer_text(rest, None) if rest else None}
    return checked_messages([message | ({"tool_calls": calls} if calls else {})])[0]


def _joined(before: list[Message], added: list[Message]) -> Conversation:
    known = [_identity(message) for message in before if message["role"] not in SYSTEM]
    spoken = [index for index, message in enumerate(added) if message["role"] not in SYSTEM]
    if [_identity(added[index]) for index in spoken[: len(known)]] != known:
        return _conversation([*before, *added], len(before))
    present = [_identity(message) for message in added]
    head = [message for message in before if message["role"] in SYSTEM and _identity(message) not in present]
    n_known = spoken[len(known) - 1] + 1 if known else 0
    return _conversation([*head, *added], len(head) + n_known)


def _conversation(messages: list[Message], n_given: int) -> Conversation:
    return Conversation(messages=messages, turns=turns_of(messages), n_given=n_given)


def _identity(message: Message) -> tuple[str, str]:
    """Return what identifies a message, ignoring ids and empty fields."""
    return message["role"], message_text(message)


def _part(part: Mapping[str, Any] | str) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text") or part.get("refusal")
    return text if isinstance(text, str) else f"[{part.get('type', 'a part')}, not shown]"
