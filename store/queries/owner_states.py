"""Whether the rows of some owners are still the same."""

from collections.abc import Collection

from evalflows.store.file_states import states_of
from evalflows.store.parquet import Store


def owner_states(store: Store, owners: Collection[str], tables: Collection[str] = ()) -> frozenset[tuple[str, object]]:
    """Return the files of these owners, and all files of these tables, each with its state.

    As long as this is the same, so are the rows. Of a file system that tells no times, that holds for sealed files.
    """
    names, whole = set(owners), set(tables)
    found = set()
    for path, state in states_of(store.layout, store.filesystem).items():
        *_, table, _, owner, _ = path.split("/")
        if owner.partition("=")[2] in names or table in whole:
            found.add((path, state))
    return frozenset(found)
