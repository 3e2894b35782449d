"""What every kind of target becomes: one function of what an example offers."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

OFFERED = ("inputs", "metadata", "example", "example_id", "attachments")
"""What a target is handed, besides each field of the inputs under its own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The system under test. `call` takes what OFFERED names and returns outputs, or something to await."""

    call: Callable[[Mapping[str, Any]], Any | Awaitable[Any]]
    is_async: bool


def as_outputs(returned: object) -> dict[str, Any]:
    """What a target returned as a mapping: anything but a mapping becomes `{"output": …}`."""
    if isinstance(returned, Mapping):
        return {str(key): value for key, value in returned.items()}
    dump = getattr(returned, "model_dump", None)
    plain = dump(mode="json") if callable(dump) else returned
    return plain if isinstance(plain, dict) else {"output": plain}
