"""The common form of all targets: a function of an example's fields."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType
from typing import Any, NamedTuple

from evalflows.store.records import to_json

TRIAL = ("repetition", "seed")
"""What a target can ask for to tell one answer to an example from another; a field of the inputs goes first."""
OFFERED = ("inputs", "metadata", "example", "example_id", "attachments", *TRIAL)
"""What a target can ask for, besides the fields of the inputs by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The system under test.

    `call` takes a mapping with the names in OFFERED. It returns outputs, an Answer, or an awaitable of either.
    """

    call: Callable[[Mapping[str, Any]], Any | Awaitable[Any]]
    is_async: bool
    is_recorded: bool = False  # whether a call only looks up an answer


class Answer(NamedTuple):
    """Outputs together with what the target knows about them, such as a recorded latency or cost.

    A tuple, since a frozen dataclass takes four times as long to make.
    """

    outputs: Any
    attempts: int = 1
    latency_s: float | None = None  # None if unknown; the caller's own measurement is not used
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    calls: int | None = None  # model calls that the target made itself; None if unknown
    steps: str | None = None  # as JSON
    reused_from: str | None = None  # the run whose outputs these are
    application_version: str | None = None


def seed_of(example_id: str, repetition: int) -> int:
    """Return the seed of an answer, from 0 to 2^31 - 1: the first 31 bits of SHA-256 of `example_id/repetition`.

    It is the same for every target, run and machine, so that a target that draws at random answers alike each time.
    """
    digest = hashlib.sha256(f"{example_id}/{repetition}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def length_of(outputs: Mapping[str, Any]) -> int:
    """Return the number of characters: of the text if that is the only field, else of the outputs as JSON.

    Raise TypeError or ValueError for values that JSON cannot hold.
    """
    only = next(iter(outputs.values())) if len(outputs) == 1 else None
    return len(only if isinstance(only, str) else to_json(outputs, mend=True))


def as_outputs(returned: object) -> dict[str, Any]:
    """Return what a target returned as a mapping; anything but a mapping becomes `{"output": …}`."""
    fields = as_fields(returned)
    return fields if isinstance(fields, dict) else {"output": fields}


_PLAIN = (str, int, float, NoneType)


def as_fields(value: Any) -> Any:
    """Return a value whose dataclasses and pydantic models, also those inside, are mappings of their fields."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): as_fields(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_fields(item) for item in value]
    if isinstance(value, type):
        return value
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    return {one.name: as_fields(getattr(value, one.name)) for one in fields(value)} if is_dataclass(value) else value
