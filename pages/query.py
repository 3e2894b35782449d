"""The parameters of a page's address."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from evalflows.specs.errors import InputError

Choice = TypeVar("Choice", bound=str)

MOST_PAGES = 1_000_000


@dataclass(frozen=True, slots=True)
class Query:
    """Names and values; a name may have several values."""

    values: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]] = (), path: Mapping[str, Any] | None = None) -> "Query":
        values: dict[str, list[str]] = {}
        for name, value in [*pairs, *(path or {}).items()]:
            values.setdefault(name, []).append(str(value))
        return cls(values)

    def all(self, name: str) -> list[str]:
        """Return every value of a name that is not empty."""
        return [value for value in self.values.get(name, ()) if value]

    def text(self, name: str) -> str | None:
        """Return the last value of a name; None if there is none, or if it is empty."""
        return next(reversed(self.all(name)), None)

    def wanted(self, name: str) -> str:
        """Return the value of a name that must be there. Raise InputError if it is not."""
        if (value := self.text(name)) is None:
            raise InputError(f"{name}: got none, wanted a value")
        return value

    def choice(self, name: str, choices: Sequence[Choice], default: Choice) -> Choice:
        """Return one of the choices. Raise InputError for another value."""
        value = self.text(name)
        if value is None:
            return default
        for choice in choices:
            if choice == value:
                return choice
        raise InputError(f"{name}: got {value!r}, wanted one of {', '.join(choices)}")

    def number(self, name: str, default: int = 1, most: int = MOST_PAGES) -> int:
        """Return a whole number from 1 to `most`. Raise InputError for another value."""
        value = self.text(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or not 1 <= int(value[:9]) <= most:
            raise InputError(f"{name}: got {value!r}, wanted a whole number from 1 to {most}")
        return int(value)
