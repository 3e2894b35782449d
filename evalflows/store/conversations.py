"""Turn conversations into examples: one per assistant turn, or one per conversation."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from evalflows.specs.columns import Turn, checked_messages, turns_of
from evalflows.specs.errors import InputError
from evalflows.specs.protocols import Message
from evalflows.store.records import derived_id, to_json
from evalflows.store.snapshots import INPUTS, REFERENCES

Row = dict[str, Any]

HISTORY = {"history": list, "next_user_input": str}
"""The columns of rows that ask for one more turn."""


def conversation_rows(row: Mapping[str, Any], turns: Literal["whole", "next"]) -> Iterator[Row]:
    """Yield the example rows of a row with a conversation under `inputs.messages`.

    `next`: one row per assistant turn that answers the user. Its inputs are the messages before the turn, its
    reference is the turn, its id is the row's id with `#` and the turn's number, and its cluster is the row's cluster
    or id, or else the conversation. If the conversation ends with the user, one more row asks for the missing turn,
    with the row's own reference. `whole`: one row, whose inputs are the messages before the first assistant turn and
    whose reference is everything after. A turn as reference is `{"output": text}`, or `{"messages": […]}` if it is not
    a single text. A row `{history, next_user_input, expected_output}` gives the one example that asks for the answer to
    the next input. Raise InputError, in one line, if the row has no such conversation.
    """
    if turns == "next" and HISTORY.keys() <= _named(row).keys():
        yield _after_history(row)
        return
    fields, messages = _conversation(row)
    assistant_turns, reference = turns_of(messages), _only_value(row, REFERENCES)
    rest = {name: value for name, value in row.items() if name not in (*INPUTS, *REFERENCES)}
    if turns == "whole":
        yield rest | _whole(fields, messages, assistant_turns, reference)
    else:
        rest["cluster"] = _cluster(row, messages)
        for number, example in _next(fields, messages, assistant_turns, reference):
            yield rest | example | ({} if row.get("id") is None else {"id": f"{row['id']}#{number}"})


def _named(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the mapping that has the inputs' fields: the inputs, or a row of bare columns."""
    inputs = _only_value(row, INPUTS)
    return inputs if isinstance(inputs, Mapping) else row if inputs is None else {}


def _after_history(row: Mapping[str, Any]) -> Row:
    named = _named(row)
    for column, kind in HISTORY.items():
        if not isinstance(named[column], kind):
            wanted = "a list of messages" if kind is list else "a text"
            raise InputError(f"turns: {column}: got {type(named[column]).__name__}, wanted {wanted}")
    try:
        messages = checked_messages([*named["history"], {"role": "user", "content": named["next_user_input"]}])
    except ValueError as error:
        raise InputError(f"turns: history: {error}") from error
    others = {name: value for name, value in named.items() if name not in HISTORY}
    if named is row:
        return others | {"inputs": {"messages": messages}}
    rest = {name: value for name, value in row.items() if name not in INPUTS}
    return rest | {"inputs": others | {"messages": messages}}


def _conversation(row: Mapping[str, Any]) -> tuple[Row, list[Message]]:
    """Return the inputs and the messages in them; inputs that are not a mapping are the messages themselves."""
    inputs = _only_value(row, INPUTS)
    fields = dict(inputs) if isinstance(inputs, Mapping) else {"messages": inputs}
    if fields.get("messages") is None:
        got = ", ".join(map(str, fields if isinstance(inputs, Mapping) else row)) or "an empty row"
        raise InputError(f"turns: got {got}, wanted 'messages' in the inputs")
    try:
        return fields, checked_messages(fields["messages"])
    except ValueError as error:
        raise InputError(f"turns: {error}") from error


def _whole(fields: Row, messages: list[Message], turns: list[Turn], reference: Any) -> Row:
    if reference is not None:
        raise InputError("turns: got a reference and a conversation, wanted none: the conversation is the reference")
    if not turns:
        raise InputError("turns: messages: got no turn of the assistant, wanted at least one")
    first = turns[0].begins
    return {"inputs": fields | {"messages": messages[:first]}, "reference_outputs": {"messages": messages[first:]}}


def _next(fields: Row, messages: list[Message], turns: list[Turn], reference: Any) -> Iterator[tuple[int, Row]]:
    """Yield each turn's number and its row with inputs and reference."""
    end = turns[-1].ends if turns else 0
    ends_with_user = _has_user(messages[end:])
    if reference is not None and not ends_with_user:
        raise InputError("turns: got a reference and a conversation that does not end with the user, wanted none")
    answers = [turn for turn in turns if _has_user(messages[: turn.begins])]
    if not answers and not ends_with_user:
        raise InputError("turns: messages: got no message of the user before the assistant's, wanted at least one")
    for turn in answers:
        before, turn_messages = messages[: turn.begins], messages[turn.begins : turn.ends]
        yield turn.number, {"inputs": fields | {"messages": before}, "reference_outputs": _as_outputs(turn_messages)}
    if ends_with_user:
        yield len(turns) + 1, {"inputs": fields | {"messages": messages}, "reference_outputs": reference}


def _has_user(messages: list[Message]) -> bool:
    return any(message["role"] == "user" for message in messages)


def _as_outputs(turn: list[Message]) -> Row:
    only = turn[0]
    is_text = len(turn) == 1 and isinstance(only.get("content"), str) and not only.get("tool_calls")
    return {"output": only["content"]} if is_text else {"messages": turn}


def _cluster(row: Mapping[str, Any], messages: list[Message]) -> Any:
    """Return the row's cluster, else its id, else a hash of the conversation, so that its examples stay together."""
    if row.get("cluster") is not None:
        return row["cluster"]
    try:
        return row["id"] if row.get("id") is not None else derived_id(to_json(messages))[:20]
    except (TypeError, ValueError) as error:
        raise InputError(f"turns: messages: not JSON: {error}") from error


def _only_value(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the value under one of the names. Raise InputError if more than one has a value."""
    present = [name for name in names if row.get(name) is not None]
    if len(present) > 1:
        raise InputError(f"got both {present[0]!r} and {present[1]!r}, wanted one of them")
    return row[present[0]] if present else None
