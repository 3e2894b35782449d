"""Lists in specs: one item stands for a list of it, and no two have the same name."""

from collections import Counter
from collections.abc import Iterable

from pydantic import BeforeValidator


def _as_list(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


ONE_OR_MORE = BeforeValidator(_as_list)


def check_unique(where: str, names: Iterable[str], two: str = "two") -> None:
    """Raise ValueError, beginning with `where`, if two names are the same; `two` says in words what has them."""
    duplicate = next((name for name, count in Counter(names).items() if count > 1), None)
    if duplicate is not None:
        raise ValueError(f"{where}: {two} are called {duplicate!r}, wanted unique names")
