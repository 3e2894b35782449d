"""Names to choose from, for messages about one that does not exist."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST = 10
"""Names in a message."""


def names_to_choose(name: str, known: Iterable[str], others: Iterable[str] = (), *, most: int = MOST) -> str:
    """Return the names that are close to the given one, `a or b`; if none is, the first ones, `one of: a, b, …`.

    Args:
        name: What was given.
        known: All names.
        others: More names, which are named only if they are close.
        most: The most names, if none is close.
    """
    names = list(dict.fromkeys(known))
    if close := get_close_matches(name, dict.fromkeys([*names, *others]), n=3):
        return " or ".join(close)
    return f"one of: {', '.join(names[:most]) or 'none yet'}{', …' if len(names) > most else ''}"
