"""Paths of the store's files, the SQL that reads them, and locks on files, which the operating system frees when their
process ends."""

import fcntl
import os
import re
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal

from evalflows.specs.errors import InputError
from evalflows.specs.file_locks import try_lock
from evalflows.specs.frozen import dataclass
from evalflows.store.schemas import TABLES, Table, columns_of

DEFAULT_ROOT = "data/store"

MANIFESTS = "manifests"
"""The folder of the manifests, which readers need not list."""

SUMMARIES = "summaries"
"""The folder of the summaries of packed files."""

INPUT_GROUPS = "input_groups"
"""The folder that notes which examples of snapshots have inputs that are alike."""

SEALED = "rows.parquet"
"""The name of a sealed file."""
_EMPTY = r"_\.parquet"
_PART = re.compile(r"[^.].*\.[0-9a-f]{12}\.parquet")
_PACK = re.compile(r"[0-9a-f]{12}\.parquet")

_OWNERS = {table.owner for table in TABLES.values()}

_HIVE, _PLAIN = "hive_partitioning = true, hive_types_autocast = false", "hive_partitioning = false"
"""How DuckDB reads files: with owners as their folders say, so that a query for one opens only its files, or without.
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths under one root: a folder, or an object store such as `s3://bucket/evals`."""

    root: str

    @classmethod
    def at(cls, root: str | os.PathLike[str] | None = None) -> "Layout":
        """Return the layout of `root`, else of EVALFLOWS_STORE, else of data/store in the current folder."""
        path = os.fspath(root) if root is not None else os.environ.get("EVALFLOWS_STORE") or DEFAULT_ROOT
        text = path.removeprefix("file://")
        if "://" not in text:
            text = str(Path(text).absolute())
        elif not text.endswith("://"):
            text = text.rstrip("/")
        refused = [part for part in text.split("/") if set(part) & set("*?[") or part.partition("=")[0] in _OWNERS]
        if refused:
            raise InputError(
                f"store {path!r}: got {refused[0]!r}, wanted a path without * ? [ and without column= of an owner"
            )
        return cls(text)

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    @property
    def marker(self) -> str:
        """The file that marks the root as a store."""
        return f"{self.root}/evalflows.json"

    def sealed(self, table: str, owner: str) -> str:
        return f"{self.root}/{table}/sealed/{_table(table).owner}={_safe(owner)}/{SEALED}"

    def open_folder(self, table: str, owner: str) -> str:
        return f"{self.root}/{table}/open/{_table(table).owner}={_safe(owner)}"

    def packed_folder(self, table: str) -> str:
        return f"{self.root}/{_table(table).name}/packed/all"

    def empty(self, table: str) -> str:
        """Return the path of an empty file with the schema: in DuckDB, a view over no files fails.

        The patterns of sealed, open and packed files all match it.
        """
        return f"{self.root}/{table}/empty/{_table(table).owner}=_/_.parquet"

    def lease(self, name: str) -> str:
        """Return the path of a lease."""
        folder, ending = self.lease_files
        return f"{folder}/{_safe(name)}{ending}"

    @property
    def lease_files(self) -> tuple[str, str]:
        """The folder of the leases, and how their names end: a lock in a folder, an object in an object store."""
        return f"{self.root}/leases", ".lock" if self.is_local else ".json"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file with rows, by its path. Only files of exactly these names are read: copies and others are ignored."""

    path: str
    table: str
    state: Literal["sealed", "open", "packed"]
    owner: str  # empty for a packed file, which has rows of several

    @property
    def is_sealed(self) -> bool:
        return self.state == "sealed"

    @property
    def is_packed(self) -> bool:
        return self.state == "packed"

    @classmethod
    def at(cls, path: str) -> "StoredFile | None":
        """Return the file at a path; None for a copy, a temporary, empty or foreign file."""
        *_, table, state, folder, name = ("", "", "", *path.split("/"))
        if table not in TABLES:
            return None
        if state == "packed":
            return cls(path, table, "packed", "") if folder == "all" and _PACK.fullmatch(name) else None
        column, _, owner = folder.partition("=")
        if column != TABLES[table].owner or not owner or owner == "_":
            return None
        if state == "sealed" and name == SEALED:
            return cls(path, table, "sealed", owner)
        return cls(path, table, "open", owner) if state == "open" and _PART.fullmatch(name) else None


def every_row(
    table: str, without: Collection[str] = (), without_files: Collection[str] = (), *, with_packed: bool = True
) -> str:
    """Return SQL for all rows of a table, each key once: sealed and packed files directly, open ones de-duplicated.

    De-duplication costs ten times a plain read, so only open files are de-duplicated. The owner is in the folder's
    name, so a query for one owner opens only its files, and the files of the owners in `without` are never opened, nor
    are the packed files of `without_files`. A packed row counts only if its owner has no other file; of a store without
    packed files, planning a query is a third faster without them.
    """
    owner = _table(table).owner
    left_out = _not_in(owner, without)
    columns = ", ".join(columns_of(table))  # in order: DuckDB puts the owner last
    is_part = f"regexp_full_match(parse_path(filename)[-1], {quoted(f'{_EMPTY}|{_PART.pattern}')})"
    still_open = (
        f"(select * from {_scan(table, f'/{table}/[oe]*/{owner}=*/*.parquet', owner)} "
        f"where parse_path(filename)[-2] not in ({_owners(_sealed_files(table))}) and {is_part}{left_out})"
    )
    own = (
        f"select {columns} from {_scan(table, f'/{table}/[se]*/{owner}=*/*.parquet', owner)} "
        f"where parse_path(filename)[-1] in ('{SEALED}', '_.parquet'){left_out} "
        f"union all ({newest(table, still_open)})"
    )
    return f"{own} union all ({_packed_rows(table, left_out, without_files)})" if with_packed else own


def rows_in(
    layout: Layout, table: str, files: Collection[StoredFile], prefix: str = "", *, with_folders: bool = True
) -> str:
    """Return SQL for all rows of a table that has just these files, whose paths get a prefix.

    As it searches no folders, a query is planned in a third of the time. `with_folders`, a query for one owner opens
    only its files, and one for all takes a little longer.
    """
    owner, columns = _table(table).owner, ", ".join(columns_of(table))
    sealed = {file.owner: file.path for file in files if file.is_sealed}
    still_open = [file for file in files if file.state == "open" and file.owner not in sealed]
    packs = [file.path for file in files if file.is_packed]

    def rows(paths: Collection[str], folders: str) -> str:
        return f"select {columns} from read_parquet([{', '.join(quoted(prefix + path) for path in paths)}], {folders})"

    of_owners = _HIVE if with_folders else _PLAIN
    parts = [rows(sealed.values(), of_owners)] if sealed else []
    if still_open:
        parts.append(f"({newest(table, f'({rows([file.path for file in still_open], of_owners)})')})")
    if packs or not parts:
        own = {*sealed, *(file.owner for file in still_open)}
        parts.append(rows(packs or [layout.empty(table)], _PLAIN) + _not_in(owner, own, "where"))
    return " union all ".join(parts)


def _packed_rows(table: str, left_out: str, without_files: Collection[str]) -> str:
    """Return SQL for the packed rows of owners that have no files of their own."""
    owner, columns = _table(table).owner, ", ".join(columns_of(table))
    is_pack = f"regexp_full_match(parse_path(filename)[-1], {quoted(f'{_EMPTY}|{_PACK.pattern}')})"
    names = {path.rpartition("/")[2] for path in without_files}
    is_part = f"regexp_full_match(parse_path(file)[-1], {quoted(_PART.pattern)})"
    open_files = f"/{table}/open/{owner}=*/*.parquet"
    unpacked = f"{_owners(_sealed_files(table))} union all {_owners(open_files)} where {is_part}"
    return (
        f"select {columns} from {_scan(table, f'/{table}/[pe]*/*/*.parquet')} "
        f"where {is_pack}{left_out}{_not_in('parse_path(filename)[-1]', names)} "
        f"and concat('{owner}=', {owner}) not in ({unpacked})"
    )


def _sealed_files(table: str) -> str:
    return f"/{table}/sealed/{_table(table).owner}=*/{SEALED}"


def newest(table: str, source: str) -> str:
    """Return SQL for the rows of a source, each key once: success beats failure, then the latest row wins."""
    columns = ", ".join(columns_of(table))
    return f"select {columns} from {source} qualify row_number() over ({latest_first(table)}) = 1"


def latest_first(table: str) -> str:
    """Return the SQL of a window over the rows of one key, the row that wins first."""
    statuses = ", ".join(map(quoted, TABLES[table].settled))
    settled = f"(status in ({statuses})) desc, " if statuses else ""
    # The owner does not change the result, but lets DuckDB push a filter on the owner below the window.
    key = ", ".join(dict.fromkeys((TABLES[table].owner, *TABLES[table].key)))
    return f"partition by {key} order by {settled}recorded_at desc"


def _scan(table: str, pattern: str, owner: str | None = None) -> str:
    """Return SQL that reads files below the root, with their names; their folders' names tell the `owner`, if given."""
    folders = _HIVE if owner else _PLAIN
    # the empty file comes first, since DuckDB takes the columns of the first one;
    # DuckDB before 1.3, which reads exported views too, has `filename` only if asked for it
    return f"read_parquet([{_path(Layout('').empty(table))}, {_path(pattern)}], {folders}, filename = true)"


def _owners(pattern: str) -> str:
    """Return SQL for the folders of owners that have such files."""
    return f"select parse_path(file)[-2] from glob({_path(pattern)})"


def _path(below: str) -> str:
    return f"source.root() || {quoted(below)}"


def _not_in(column: str, values: Collection[str], after: str = "and") -> str:
    return f" {after} {column} not in ({', '.join(map(quoted, sorted(values)))})" if values else ""


def files(urls: list[str]) -> str:
    """Return SQL for the rows of Parquet files."""
    return f"read_parquet([{', '.join(map(quoted, urls))}], {_PLAIN})"


def quoted(text: str) -> str:
    """Return a SQL literal of a text."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return a SQL name, quoted."""
    return '"' + name.replace('"', '""') + '"'


def _table(name: str) -> Table:
    if name not in TABLES:
        raise KeyError(f"table {name!r}: wanted one of {', '.join(TABLES)}")
    return TABLES[name]


def _safe(owner: str) -> str:
    if not owner or owner.startswith(("_", ".")) or any(c in owner for c in "/\\*?[]=%"):
        raise InputError(f"got {owner!r}, wanted an id that is valid in a file name")
    return owner


def create_locked(path: Path) -> IO[bytes]:
    """Create and lock a file, to be appended to without a buffer. Raise OSError if that fails."""
    while True:
        with suppress(FileNotFoundError, FileExistsError):  # another process removed the folder: create it again
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab", buffering=0)
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists():  # else `open_left_behind` took the empty file before it was locked
                return file
            file.close()


def open_left_behind(path: Path, deadline: float = 0.0) -> IO[bytes] | None:
    """Open and lock a file that its process has left behind; None if it is in use until the deadline, or gone."""
    with suppress(FileNotFoundError):
        file = path.open("rb")
        while not try_lock(file):
            if time.monotonic() >= deadline:
                file.close()
                return None
            time.sleep(0.05)
        if path.exists():  # else its process has just written its rows
            return file
        file.close()
    return None
