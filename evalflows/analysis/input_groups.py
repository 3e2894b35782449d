"""Groups of examples whose inputs are alike in meaning, for the search of slices."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from evalflows.llm import local
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import print_note
from evalflows.store.layout import INPUT_GROUPS
from evalflows.store.records import ExampleRow, from_json, to_json
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store

MOST_EMBEDDED = 5000
"""Most examples whose inputs are grouped: some milliseconds each."""
TOLD = 500
"""Examples from which a note says that this takes a while."""


def keep_groups(store: Store, snapshot_id: str) -> None:
    """Group the examples of a snapshot by their inputs with the local embedding model, and keep that in the store.

    Nothing is done if that was done, if the model is not installed, and for more than MOST_EMBEDDED examples. Nothing
    is lost if it cannot be kept: the slices of groups are then not searched.
    """
    with suppress(InputError, OSError):
        local.require_installed()
        examples = [*load_snapshot(store, snapshot_id)]
        if kept_groups(store, snapshot_id) is None and len(examples) <= MOST_EMBEDDED:
            if len(examples) >= TOLD:
                print_note(f"comparing the inputs of {len(examples)} examples (only once)")
            store.filesystem.makedirs(_path(store, "").rstrip("/"), exist_ok=True)
            store.filesystem.pipe_file(_path(store, snapshot_id), to_json(_groups(examples)).encode())


def kept_groups(store: Store, snapshot_id: str) -> list[int] | None:
    """Return the group of each example of a snapshot, by position, -1 for one like no other; None if none are kept."""
    with suppress(OSError, ValueError):
        found = from_json(store.filesystem.cat_file(_path(store, snapshot_id)).decode())
        return [int(group) for group in found]
    return None


def named_groups(examples: Sequence[ExampleRow], groups: Sequence[int], fewest: int, most: int) -> list[str | None]:
    """Return the name of each example's group, by the terms that tell its inputs from the others; None if it is in none
    of the `most` largest with at least `fewest` examples."""
    from evalflows.analysis.modes import Terms, unique  # late: modes load judges, and few snapshots have groups

    terms, taken, names = Terms([example.inputs for example in examples]), set[str](), dict[int, str]()
    sizes = Counter(group for group in groups if group >= 0)
    for group, size in sizes.most_common(most):
        if size >= fewest:
            name = terms.name(index for index, of in enumerate(groups) if of == group)
            names[group] = unique(name, taken)
            taken.add(names[group])
    return [names.get(group) for group in groups]


def _groups(examples: Sequence[ExampleRow]) -> list[int]:
    import numpy as np  # late, as these are slow to import

    from evalflows.analysis.modes import SIMILARITY
    from evalflows.evaluators.modes import task_text
    from evalflows.stats.groups import groups

    texts = [
        task_text(value if isinstance(value := from_json(example.inputs), dict) else {"text": value})
        for example in examples
    ]
    distinct = sorted({*texts})
    vectors = dict(zip(distinct, local.embed(distinct), strict=True))
    return [int(group) for group in groups(np.array([vectors[text] for text in texts]), SIMILARITY)]


def _path(store: Store, snapshot_id: str) -> str:
    return f"{store.layout.root}/{INPUT_GROUPS}/{snapshot_id}"
