"""Conversations as examples: each of the assistant's turns as one, or each conversation as one."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from specs.conversation import Turn, checked_messages, turns_of
from specs.errors import InputError
from specs.protocols import Message
from store.records import derived_id, to_json
from store.snapshots import INPUTS, REFERENCES

Row = dict[str, Any]


def conversation_rows(row: Mapping[str, Any], turns: Literal["whole", "next"]) -> Iterator[Row]:
    """The rows that a row with a conversation under `inputs.messages` becomes.

    `next`: one for each turn of the assistant's that answers the user. Its inputs are the messages before, its
    reference is the turn, its id is that of the row with `#` and the turn's number, its cluster that of the row, or
    else the conversation. Where the conversation ends with the user, one more asks for the turn that is not there,
    with the row's own reference. `whole`: one, whose inputs are the messages before the assistant's first turn, and
    whose reference is all that follows. A turn as reference is `{"output": text}`, or `{"messages": […]}` where it is
    more than a text. Raises InputError, in one line, for a row that holds no such conversation.
    """
    fields, messages = _conversation(row)
    found, reference = turns_of(messages), _first(row, REFERENCES)
    rest = {name: value for name, value in row.items() if name not in (*INPUTS, *REFERENCES)}
    if turns == "whole":
        yield rest | _whole(fields, messages, found, reference)
    else:
        rest["cluster"] = _cluster(row, messages)
        for number, one in _next(fields, messages, found, reference):
            yield rest | one | ({} if row.get("id") is None else {"id": f"{row['id']}#{number}"})


def _conversation(row: Mapping[str, Any]) -> tuple[Row, list[Message]]:
    """The inputs, and the messages among them, or that they are."""
    inputs = _first(row, INPUTS)
    fields = dict(inputs) if isinstance(inputs, Mapping) else {"messages": inputs}
    if fields.get("messages") is None:
        got = ", ".join(map(str, fields if isinstance(inputs, Mapping) else row)) or "an empty row"
        raise InputError(f"turns: got {got}, wanted 'messages' in the inputs")
    try:
        return fields, checked_messages(fields["messages"])
    except ValueError as error:
        raise InputError(f"turns: {error}") from error


def _whole(fields: Row, messages: list[Message], found: list[Turn], reference: Any) -> Row:
    if reference is not None:
        raise InputError("turns: got a reference beside a conversation, wanted none: what was said is the reference")
    if not found:
        raise InputError("turns: messages: no turn is the assistant's")
    first = found[0].begins
    return {
        "inputs": fields | {"messages": messages[:first]},
        "reference_outputs": {"messages": messages[first:]},
    }


def _next(fields: Row, messages: list[Message], found: list[Turn], reference: Any) -> Iterator[tuple[int, Row]]:
    """Each turn's number, inputs and reference."""
    end = found[-1].ends if found else 0
    is_open = _asks(messages[end:])
    if reference is not None and not is_open:
        raise InputError("turns: got a reference beside a conversation that does not end with the user, wanted none")
    answering = [turn for turn in found if _asks(messages[: turn.begins])]
    if not answering and not is_open:
        raise InputError("turns: messages: nothing is said by the user, or nothing after it")
    for turn in answering:
        before, said = messages[: turn.begins], messages[turn.begins : turn.ends]
        yield turn.number, {"inputs": fields | {"messages": before}, "reference_outputs": _said(said)}
    if is_open:
        yield len(found) + 1, {"inputs": fields | {"messages": messages}, "reference_outputs": reference}


def _asks(messages: list[Message]) -> bool:
    return any(message["role"] == "user" for message in messages)


def _said(turn: list[Message]) -> Row:
    only = turn[0]
    is_text = len(turn) == 1 and isinstance(only.get("content"), str) and not only.get("tool_calls")
    return {"output": only["content"]} if is_text else {"messages": turn}


def _cluster(row: Mapping[str, Any], messages: list[Message]) -> Any:
    """The row's own; else its id; else what the conversation says, so that its examples stay together."""
    if row.get("cluster") is not None:
        return row["cluster"]
    try:
        return row["id"] if row.get("id") is not None else derived_id(to_json(messages))[:20]
    except (TypeError, ValueError) as error:
        raise InputError(f"turns: messages: not JSON: {error}") from error


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """What is given under one of the names. Raises InputError where two are."""
    given = [name for name in names if row.get(name) is not None]
    if len(given) > 1:
        raise InputError(f"got both {given[0]!r} and {given[1]!r}, wanted one of them")
    return row[given[0]] if given else None
