"""Attribute values of OTLP as JSON values, from protobuf's messages and from those of opentelemetry-proto-json."""

import base64
import math
from collections.abc import Iterable
from typing import Any

Attributes = dict[str, Any]


def attributes_of(pairs: Iterable[Any]) -> Attributes:
    """Return key-value pairs as a dictionary; of two pairs with the same key, the last counts."""
    return {pair.key: value_of(pair.value) for pair in pairs}


def value_of(value: Any) -> Any:
    """Return a value as JSON: bytes as base64 text, numbers that JSON lacks as text (NaN), no value as None."""
    if value is None:
        return None
    kind = value.WhichOneof("value") if hasattr(value, "WhichOneof") else _kind(value)
    if kind == "string_value":
        return value.string_value
    if kind in ("int_value", "bool_value"):
        return getattr(value, kind)
    return _converted(value, kind)


def _kind(value: Any) -> str | None:
    """Return the field of a message of opentelemetry-proto-json that is set."""
    fields = ("string_value", "int_value", "bool_value", *_CONVERTED)
    return next((name for name in fields if getattr(value, name) is not None), None)


def _converted(value: Any, kind: str | None) -> Any:
    match kind:
        case "double_value":
            return value.double_value if math.isfinite(value.double_value) else str(value.double_value)
        case "array_value":
            return [value_of(item) for item in value.array_value.values]
        case "kvlist_value":
            return attributes_of(value.kvlist_value.values)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
    return None


_CONVERTED = ("double_value", "array_value", "kvlist_value", "bytes_value")
