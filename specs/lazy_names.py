"""Packages that import their names on first use, so that a program loads only what it uses."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package: `modules` lists the names that come from each of its modules.

    The package also lists the names in `__all__`, and imports them under TYPE_CHECKING.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    def names() -> list[str]:
        return sorted({*vars(import_module(package)), *homes})

    return find, names
