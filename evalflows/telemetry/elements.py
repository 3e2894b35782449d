"""How many elements a request of OpenTelemetry has, counted before it is parsed: an empty span takes two bytes of a
request, almost none after compression, and some hundred bytes of memory once it is an object."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from evalflows.specs.errors import InputError

MOST_ELEMENTS = 500_000
"""Elements of all lists of a request: resources, scopes, spans, log records, events, links, attributes and values. As
objects they take some 200 MB."""
MOST_FIELDS = 8 * MOST_ELEMENTS
"""Fields of a request in protobuf, or texts of one in JSON, which take a second to count."""
SMALLEST = 2
"""Bytes of an element."""

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)

_TAGS = bytes(byte for byte in range(256) if byte & 7 == 2)
"""What the tag of a field with a length, which each element is, begins with. Texts have such bytes, too."""


class TooManyElementsError(Exception):
    """A request with more elements than MOST_ELEMENTS."""


def check_elements_of_json(body: bytes) -> None:
    """Raise TooManyElementsError for more objects than allowed. Lists and other values count as a quarter of one."""
    if len(body) <= SMALLEST * MOST_ELEMENTS or _elements_of_json(body) <= MOST_ELEMENTS:
        return
    if body.count(b'"') > 2 * MOST_FIELDS or _elements_of_json(_STRINGS.sub(b"", body)) > MOST_ELEMENTS:
        raise TooManyElementsError


def _elements_of_json(body: bytes) -> int:
    return body.count(b"{") + (body.count(b"[") + body.count(b",")) // 4


def check_elements_of_protobuf(body: bytes, kind: Any) -> None:
    """Raise TooManyElementsError for a message with more elements than allowed, and InputError for a malformed one.

    Args:
        body: The message.
        kind: The descriptor of its type.
    """
    if len(body) > SMALLEST * MOST_ELEMENTS and len(body) - len(body.translate(None, _TAGS)) > MOST_ELEMENTS:
        try:
            _count(body, kind)
        except IndexError:
            raise InputError("body: not OTLP in protobuf: it ends too early") from None


def _count(body: bytes, kind: Any) -> None:
    """Count the elements as `check_elements_of_protobuf`. Raise IndexError for a message that ends too early."""
    n_elements = n_fields = 0
    todo = [(0, len(body), kind)]
    while todo:
        at, end, kind = todo.pop()
        messages, groups = _messages_in(kind), 0  # a group is skipped: it is no field of OTLP
        while at < end:
            n_fields += 1
            tag, at = body[at], at + 1
            if tag > 127:
                tag, at = _varint(body, at - 1)
            match tag & 7:
                case 2:
                    length, at = body[at], at + 1
                    if length > 127:
                        length, at = _varint(body, at - 1)
                    if (message := messages.get(tag >> 3)) is not None and not groups:
                        within, is_listed = message
                        n_elements += is_listed
                        todo.append((at, at + length, within))
                    at += length
                case 0:
                    at = _varint(body, at)[1] if body[at] > 127 else at + 1
                case 1:
                    at += 8
                case 3:
                    groups += 1
                case 4:
                    groups -= 1
                case 5:
                    at += 4
                case _:
                    raise InputError("body: not OTLP in protobuf: it has an unknown type of field")
            if n_elements > MOST_ELEMENTS or n_fields > MOST_FIELDS:
                raise TooManyElementsError
        if at > end:
            raise IndexError


@cache
def _messages_in(kind: Any) -> Mapping[int, tuple[Any, bool]]:
    """Return the messages that are fields of a message, by number, and whether each is a list of them."""
    return {field.number: (field.message_type, field.is_repeated) for field in kind.fields if field.message_type}


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Return an integer of the wire format, and where it ends."""
    byte = body[at]
    value, shift, at = byte & 127, 7, at + 1
    while byte > 127:
        byte = body[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if shift > 70:
            raise InputError("body: not OTLP in protobuf: it has a number of more than 64 bits")
    return value, at
