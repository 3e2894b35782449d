"""Outputs as one value or one text, for rules."""

import json
from typing import Any


def pick(value: Any, key: str | None) -> Any:
    """The named field of a mapping; without a name, the only field of one that has one, else the value as it is.

    Raises KeyError for a name that the mapping lacks.
    """
    if key is not None:
        if not isinstance(value, dict) or key not in value:
            got = ", ".join(value) if isinstance(value, dict) else type(value).__name__
            raise KeyError(f"no field {key!r}, got {got or 'nothing'}")
        return value[key]
    return next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON with sorted keys."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
