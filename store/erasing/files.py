"""Erasing texts in one file of the store: the rows of a plan get other values in some columns, all others stay.

The file is written anew beside the old one and renamed, so readers see the one or the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evalflows.store.erasing.plan import Plan
from evalflows.store.erasing.texts import OF_PEOPLE, OF_SUBJECTS, READ_TOO, Eraser, Rule
from evalflows.store.file_states import state_of
from evalflows.store.layout import StoredFile
from evalflows.store.manifests import name_file
from evalflows.store.merge import row_groups_of
from evalflows.store.packs import OWNERS_KEY
from evalflows.store.parquet import Store
from evalflows.store.parquet_files import storage_errors, write_file
from evalflows.store.schemas import TABLES, columns_of, schema_of
from evalflows.store.verification import damaged, verify

ERASED_KEY = b"evalflows.erased"
"""The key, in a file's metadata, of the day on which texts in it were erased last."""


class FileEraser:
    """Erases the texts of a plan's rows, in one file after another."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self._store, self._plan = store, plan
        self._eraser = Eraser(day=plan.day, key=plan.key, kept=tuple(plan.kept))
        self._wanted = [
            (rules[table], table, _joined_keys(keys))
            for rules, by_table in ((OF_SUBJECTS, plan.keys), (OF_PEOPLE, plan.written))
            for table, keys in by_table.items()
            if keys
        ]

    @property
    def tables(self) -> frozenset[str]:
        """The tables that have rows of the plan."""
        return frozenset(table for _, table, _ in self._wanted)

    def count(self, file: StoredFile) -> int:
        """Return how many rows of a file have texts to erase.

        Raise StorageError if it is damaged, and FileNotFoundError if it has gone.
        """
        with self._opened(file) as parquet:
            if not self._may_have(parquet, file):
                return 0
            return sum(int(changed.sum()) for _, changed in self._groups(parquet, file))

    def erase(self, file: StoredFile) -> None:
        """Write a file without the texts, if it has any. Raise the same, and StorageError if it cannot be written."""
        if not self.count(file):
            return
        layout, fs = self._store.layout, self._store.filesystem
        with self._opened(file) as parquet:
            given = parquet.metadata.metadata or {}
            metadata = {ERASED_KEY: self._plan.day.encode()}
            metadata |= {OWNERS_KEY: given[OWNERS_KEY]} if file.is_packed else {}
            groups = (rows for rows, _ in self._groups(parquet, file))
            schema = schema_of(TABLES[file.table].record)
            with storage_errors(file.path):
                write_file(
                    layout,
                    fs,
                    file.path,
                    schema,
                    groups,
                    metadata,
                    regroup=file.table != "examples",  # their readers know where the row groups begin
                    replaces=True,
                    before=partial(name_file, layout, fs),
                )

    def _groups(self, parquet: pq.ParquetFile, file: StoredFile) -> Iterator[tuple[pa.Table, np.ndarray[Any, Any]]]:
        """Yield the row groups of a file without texts, and which of their rows this changes."""
        for rows in _row_groups(parquet, file):
            changed = np.zeros(rows.num_rows, bool)
            for rules, table, keys in self._wanted:
                if table == file.table:
                    numbers = np.flatnonzero(np.asarray(pc.is_in(_keys(table, rows), value_set=keys)))
                    rows, done = self._without(table, rows, numbers, rules)
                    changed[done] = True
            yield rows, changed

    def _without(
        self, table: str, rows: pa.Table, numbers: np.ndarray[Any, Any], rules: Mapping[str, Rule]
    ) -> tuple[pa.Table, list[int]]:
        """Return rows, and the numbers of those of `numbers` that changed."""
        if not len(numbers):
            return rows, []
        read = [*rules, *(name for name in READ_TOO.get(table, ()))]
        given = rows.select(read).take(numbers).to_pylist()
        new = [
            {name: None if row[name] is None else rule(self._eraser, row[name], row) for name, rule in rules.items()}
            for row in given
        ]
        for name in rules:
            if any(row[name] != one[name] for row, one in zip(given, new, strict=True)):
                rows = _replaced(rows, name, numbers, [one[name] for one in new])
        changed = [any(row[name] != one[name] for name in rules) for row, one in zip(given, new, strict=True)]
        return rows, [int(number) for number, is_changed in zip(numbers, changed, strict=True) if is_changed]

    def _may_have(self, parquet: pq.ParquetFile, file: StoredFile) -> bool:
        """Whether a file has any row of the plan, by its keys alone."""
        rows = parquet.read(columns=list(TABLES[file.table].key))
        found = _keys(file.table, rows)
        return any(
            pc.any(pc.is_in(found, value_set=keys)).as_py() for _, table, keys in self._wanted if table == file.table
        )

    @contextmanager
    def _opened(self, file: StoredFile) -> Iterator[pq.ParquetFile]:
        layout, fs = self._store.layout, self._store.filesystem
        verify(fs, file.path, state_of(layout, fs, file.path))
        with fs.open(file.path, "rb") as opened:
            yield pq.ParquetFile(opened)


def _row_groups(parquet: pq.ParquetFile, file: StoredFile) -> Iterator[pa.Table]:
    try:
        yield from row_groups_of(parquet, file.table, columns_of(file.table))
    except (pa.ArrowException, ValueError) as error:  # a file without a checksum
        raise damaged(file.path, " ".join(str(error).split())[:120]) from error


def _replaced(rows: pa.Table, name: str, numbers: np.ndarray[Any, Any], values: Sequence[object]) -> pa.Table:
    """Return rows with other values of a column in some of them."""
    place = rows.schema.get_field_index(name)
    field, mask = rows.schema.field(place), np.zeros(rows.num_rows, bool)
    mask[numbers] = True
    column = pc.replace_with_mask(rows.column(place).combine_chunks(), pa.array(mask), pa.array(values, field.type))
    return rows.set_column(place, field, column)


def _keys(table: str, rows: pa.Table) -> pa.Array:
    """Return the keys of rows, each as one text."""
    columns = [rows.column(name).combine_chunks() for name in TABLES[table].key]
    return pc.binary_join_element_wise(*columns, _BETWEEN)


def _joined_keys(keys: Sequence[Sequence[str]]) -> pa.Array:
    return pa.array([_BETWEEN.join(key) for key in keys], pa.string())


_BETWEEN = "\x1f"
