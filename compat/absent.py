"""Names of another project's package that do not exist here, and what to use instead."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Absent:
    """What a project has and its counterpart here has not, each name with what to use instead."""

    names: Mapping[str, str]  # of modules
    methods: Mapping[str, str]
    page: str  # the page that lists what is supported

    def of_module(self, module: str) -> Callable[[str], Any]:
        """Return the `__getattr__` of a module: it raises ImportError for a name of the project that is absent here."""

        def absent(name: str) -> Any:
            if name in self.names:
                raise ImportError(f"{module}.{name}: not supported here: {self.names[name]}")
            raise AttributeError(f"module {module!r} has no attribute {name!r}; {self.page} lists what is supported")

        return absent

    def method(self, owner: str, name: str) -> AttributeError:
        """Return the error for a method that an object does not have."""
        remedy = self.methods.get(name, f"{self.page} lists what is supported")
        return AttributeError(f"{owner}.{name}: not supported here: {remedy}")
