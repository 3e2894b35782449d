"""Names of a package that are imported when they are first used."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from evalflows.specs.process_memory import with_one_stack, without_collection


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package: `modules` lists the names that come from each of its modules.

    The package also lists the names in `__all__`, and imports them under TYPE_CHECKING.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    @with_one_stack
    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] not in sys.modules:
            with without_collection():
                import_module(homes[name])
        return getattr(sys.modules[homes[name]], name)

    def names() -> list[str]:
        return sorted({*vars(import_module(package)), *homes})

    return find, names
