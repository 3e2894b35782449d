"""What was erased cannot be answered or judged again: no model shall get a marker in place of a text."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from evalflows.specs.errors import InputError, StorageError
from evalflows.store.erased import is_erased
from evalflows.store.erasing.files import ERASED_KEY
from evalflows.store.erasing.plan import plans
from evalflows.store.parquet import Store
from evalflows.store.parquet_files import storage_errors


def refuse_erased(store: Store, snapshot: str) -> None:
    """Raise InputError if texts of a snapshot's examples were erased, or are at this moment.

    Of a snapshot without erased examples, only the end of its file is read.
    """
    for plan in plans(store):
        if snapshot in plan.snapshots:
            raise InputError(
                f"snapshot {snapshot}: examples of it are being erased; `evalflows forget --finish` finishes it"
            )
    if names := erased_examples(store, snapshot):
        raise without_texts(f"snapshot {snapshot}", names)


def without_texts(where: str, names: Sequence[str]) -> InputError:
    """Return the error for examples that were erased."""
    listed = f"{', '.join(names[:3])}{', …' if len(names) > 3 else ''}"
    what = "an erased example" if len(names) == 1 else f"{len(names)} erased examples"
    return InputError(f"{where}: got {what} ({listed}), wanted texts to answer or judge; leave them out of the dataset")


def erased_examples(store: Store, snapshot: str) -> list[str]:
    """Return the ids of a snapshot's erased examples. Raise StorageError if its file cannot be read."""
    path = store.layout.sealed("examples", snapshot)
    with storage_errors(path), store.filesystem.open(path, "rb") as file:
        try:
            parquet = pq.ParquetFile(file)
            if ERASED_KEY not in (parquet.metadata.metadata or {}):
                return []
            rows = parquet.read(columns=["example_id", "inputs"])
        except (pa.ArrowException, ValueError) as error:
            raise StorageError(f"{path}: {' '.join(str(error).split())[:120]}") from error
    ids, inputs = (rows.column(name).to_pylist() for name in ("example_id", "inputs"))
    return [name for name, text in zip(ids, inputs, strict=True) if is_erased(text)]
