"""Whether the rows of some owners are still the same."""

from collections.abc import Collection

from evalflows.store.file_states import states_of
from evalflows.store.packs import files_of
from evalflows.store.parquet import Store
from evalflows.store.schemas import TABLES


def owner_states(store: Store, owners: Collection[str], tables: Collection[str] = ()) -> frozenset[tuple[str, object]]:
    """Return the files of these owners, and all files of these tables, each with its state.

    As long as this is the same, so are the rows. Of a file system that tells no times, that holds for sealed files.
    """
    states = states_of(store.layout, store.filesystem)
    found = {*files_of(store.filesystem, states, owners, TABLES.keys())}
    found |= {path for path in states if path.split("/")[-4] in tables}
    return frozenset((path, states[path]) for path in found)
