"""What every kind of target becomes: one function of what an example offers."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from store.records import to_json

OFFERED = ("inputs", "metadata", "example", "example_id", "attachments")
"""What a target is handed, besides each field of the inputs under its own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The system under test. `call` takes what OFFERED names, and the repetition's number; it returns outputs, or an
    Answer, or something to await."""

    call: Callable[[Mapping[str, Any]], Any | Awaitable[Any]]
    is_async: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Outputs of which more is known than how long it took to get them just now."""

    outputs: Any
    attempts: int = 1
    latency_s: float | None = None  # None: not known, rather than what was measured here
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    steps: str | None = None  # as JSON
    reused_from: str | None = None  # the run whose outputs these are


def length_of(outputs: Mapping[str, Any]) -> int:
    """Characters of the only field, where that is a text; else of the whole as JSON.

    Raises TypeError or ValueError for what JSON cannot hold.
    """
    only = next(iter(outputs.values())) if len(outputs) == 1 else None
    return len(only if isinstance(only, str) else to_json(outputs, mend=True))


def as_outputs(returned: object) -> dict[str, Any]:
    """What a target returned as a mapping: anything but a mapping becomes `{"output": …}`."""
    if isinstance(returned, Mapping):
        return {str(key): value for key, value in returned.items()}
    dump = getattr(returned, "model_dump", None)
    plain = dump(mode="json") if callable(dump) else returned
    return plain if isinstance(plain, dict) else {"output": plain}
