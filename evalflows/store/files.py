"""The store's files in a folder or an object store: Parquet written whole or not at all, verified by checksums
before their rows are used, and merged.

The checksum is computed while 64 zeros stand in its place, so it covers every other byte: pages, headers and footer.
Being part of the file, it is written and renamed together with it. Parquet's page checksums, which do not cover the
footer, are verified by what reads with pyarrow, long after the whole file was. DuckDB does not verify them.

The endpoint, the region and the keys of an object store come from the usual environment variables of AWS, and are
stored nowhere.
"""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import ctypes
import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

import duckdb
from fsspec.implementations.local import LocalFileSystem
from obstore.store import MemoryStore, from_url

from evalflows.specs import hints
from evalflows.specs.errors import StorageError, describe
from evalflows.store.arrow import np, pa, pq
from evalflows.store.layout import SEALED, Layout, StoredFile, files, latest_first, quoted
from evalflows.store.object_store import Mirror, ObjectFiles, one_line_errors
from evalflows.store.schemas import TABLES, as_schema, schema_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHECKSUM_KEY = b"evalflows.sha256"
"""The key of the checksum in a file's metadata."""
BLANK = b"0" * 64
_TAIL = 1 << 16  # the metadata are in the footer, which may be longer
MAX_FOOTER = 64 << 20
"""Bytes of a footer, which damage may make any number."""
_BLOCK = 1 << 20
_LENGTHS = 2  # bytes of the Thrift encoding between a key and its value


@dataclass(frozen=True, slots=True)
class Content:
    """What all bytes of a file say: their SHA-256, how many they are, and what is wrong with them, if anything."""

    sha256: str
    size: int
    damage: str | None = None


def put_checksum(file: IO[bytes]) -> Content:
    """Replace the blank checksum of a complete Parquet file by its own. The file must be readable and writable."""
    place = _place(file)
    if place is None:
        raise ValueError("got a file without a place for its checksum")
    before, after = _around(file, place)
    checksum = _checksum(before, after)
    file.seek(place)
    file.write(checksum)
    return Content(_sha256(before, checksum + after), file.seek(0, os.SEEK_END))


def content_of(file: IO[bytes]) -> Content:
    """Read a Parquet file once: verify its checksum, and hash its bytes."""
    size, place = file.seek(0, os.SEEK_END), _place(file)
    before, after = _around(file, size if place is None else place)
    if place is None:
        return Content(_sha256(before, b""), size, footer_damage(file) or "it has no checksum")
    file.seek(place)
    written = file.read(len(BLANK))
    damage = None if written == _checksum(before, after) else "its content does not match its checksum"
    return Content(_sha256(before, written + after), size, damage)


def footer_damage(file: IO[bytes]) -> str | None:
    """Return what is wrong with a Parquet file by its footer alone, or None."""
    size = file.seek(0, os.SEEK_END)
    if size < 12:
        return f"got {size} bytes, too few for a Parquet file"
    try:
        file.seek(0)
        pq.read_metadata(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"its footer cannot be read: {' '.join(str(error).split())[:120]}"
    return None


def _place(file: IO[bytes]) -> int | None:
    """Return the position of the checksum, or None if there is none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    footer = int.from_bytes(file.read(4), "little") + 8
    start = max(0, size - max(_TAIL, footer if footer <= MAX_FOOTER else 0))
    file.seek(start)
    found = file.read().rfind(CHECKSUM_KEY)  # the last one, as texts of the rows may contain the key too
    place = start + found + len(CHECKSUM_KEY) + _LENGTHS
    return None if found < 0 or place + len(BLANK) > size else place


def _around(file: IO[bytes], place: int) -> tuple[hashlib._Hash, bytes]:
    """Return a digest of the bytes before the checksum, and the bytes after it, which are the rest of the footer."""
    digest = hashlib.sha256()
    file.seek(0)
    left = place
    while left and (block := file.read(min(left, _BLOCK))):
        digest.update(block)
        left -= len(block)
    file.seek(place + len(BLANK))
    return digest, file.read()


def _checksum(before: hashlib._Hash, after: bytes) -> bytes:
    """Return the SHA-256 of a file with zeros in the place of its checksum."""
    return _sha256(before, BLANK + after).encode()


def _sha256(before: hashlib._Hash, rest: bytes) -> str:
    digest = before.copy()
    digest.update(rest)
    return digest.hexdigest()


TRIES, TRIES_S = 10, 10.0
"""Tries of a query, and seconds since the first one began, until it is given up."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 1.0
"""Seconds between the first two tries, doubled each time, and the most between two."""


def states_of(
    layout: Layout, fs: Any, tables: Collection[str] | None = None, *, follow: bool = False
) -> dict[str, object]:
    """Return the store's Parquet files, each with its state: size and modification time, or an object's version.

    `tables`: only those of these tables. With `follow`, an object store's mirror is brought to this state.
    """
    if layout.is_local:
        return _local_states(layout.root, tables)
    return dict(fs.follow() if follow else fs.states(tables))


def owner_states(layout: Layout, fs: Any, table: str) -> dict[str, object]:
    """Return the owners that have files of their own in a table, each with a value that changes with these.

    Sealed ones are quick to list: their file's name is known.
    """
    if layout.is_local:
        return _local_owners(layout.root, table)
    owners: dict[str, list[object]] = {}
    for path, state in sorted(states_of(layout, fs, (table,)).items()):
        if (file := StoredFile.at(path)) and not file.is_packed:
            owners.setdefault(file.owner, []).append((path, state))
    return {owner: tuple(files) for owner, files in owners.items()}


def packed_states(layout: Layout, fs: Any, table: str) -> dict[str, object]:
    """Return a table's packed files, each with its state."""
    folder = layout.packed_folder(table)
    if not layout.is_local:
        states = states_of(layout, fs, (f"{table}/packed",))
        return {path: state for path, state in states.items() if StoredFile.at(path)}
    while Path(folder).is_dir():
        with suppress(FileNotFoundError):  # a file was removed meanwhile: list again
            return {entry.path: _local_state(entry.stat()) for entry in _entries(folder) if StoredFile.at(entry.path)}
    return {}


def unchanged(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Return whether two states are the same, but for the parts of days to which observations are added.

    A part of a day is removed only long after the part that replaces it was written.
    """
    return before == after or _lasting(before) == _lasting(after)


def has_grown(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Return whether a later state has all files of an earlier one as they were, but for the parts of such days."""
    return _lasting(before).items() <= after.items()


def _lasting(states: Mapping[str, object]) -> dict[str, object]:
    """Return the files without the parts of days."""
    return {path: state for path, state in states.items() if "/observations/open/" not in path}


def state_of(layout: Layout, fs: Any, path: str) -> object:
    """Return the state of one file, None if it is unknown or the file has gone."""
    with suppress(FileNotFoundError):
        return _local_state(Path(path).stat()) if layout.is_local else fs.state(path)
    return None


class Tries:
    """The tries of a query that is repeated while files change: pauses between them that grow, and an end."""

    def __init__(self, root: str) -> None:
        self._root, self.count, self._began = root, 0, time.monotonic()

    def pause(self, before: Mapping[str, object], states: Callable[[], Mapping[str, object]]) -> None:
        """Wait for the next try, after one that began with the files `before`.

        Raise StorageError, which names a file that has changed, after TRIES and TRIES_S.
        """
        self.count += 1
        if self.count >= TRIES and time.monotonic() - self._began >= TRIES_S:
            was, now = _lasting(before), _lasting(states())
            changed = sorted(path for path in {*was, *now} if was.get(path) != now.get(path))
            path = changed[0] if changed else self._root
            raise StorageError(
                f"{path}: changed during each of {self.count} tries to read the store, "
                "wanted no change for as long as a query takes; try again later"
            )
        time.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self.count - 1)))


class Copies:
    """The mirror's copies of an object store's files; none for a local store.

    Other processes may remove a copy at any time, as for lack of room, and fetch it again.
    """

    def __init__(self, layout: Layout, fs: Any, states: Mapping[str, object]) -> None:
        self._fs, self._paths = fs, [] if layout.is_local else [*_lasting(states)]
        self._states = self._now()

    @property
    def are_kept(self) -> bool:
        """Whether all have been there since."""
        return None not in self._states.values() and self._now() == self._states

    def _now(self) -> dict[str, object]:
        return dict(self._fs.copies(self._paths)) if self._paths else {}


def _local_states(root: str, tables: Collection[str] | None) -> dict[str, object]:
    """Return the files of a local folder with their states, ten times faster than with fsspec."""
    while Path(root).is_dir():
        with suppress(FileNotFoundError):  # a file or a folder was removed meanwhile: list again
            names = [entry for entry in _entries(root) if entry.name in (TABLES if tables is None else tables)]
            owners = (owner for table in names for state in _entries(table) for owner in _entries(state))
            return {
                file.path: _local_state(file.stat())
                for owner in owners
                for file in _entries(owner)
                if file.name.endswith(".parquet")
            }
    return {}


def _local_owners(root: str, table: str) -> dict[str, object]:
    """Return the owners of a table of a local folder. A sealed file counts alone, since open ones are then ignored."""
    prefix, owners = f"{TABLES[table].owner}=", dict[str, object]()
    unsealed, sealed = Path(root, table, "open"), Path(root, table, "sealed")  # made with their first file
    for entry in _entries(str(unsealed)) if unsealed.is_dir() else ():
        with suppress(FileNotFoundError):  # sealed meanwhile
            parts = tuple(sorted((part.name, _local_state(part.stat())) for part in _entries(entry)))
            owners[entry.name.removeprefix(prefix)] = parts
    for entry in _entries(str(sealed)) if sealed.is_dir() else ():
        with suppress(FileNotFoundError, NotADirectoryError):
            owners[entry.name.removeprefix(prefix)] = _local_state(os.stat(f"{entry.path}/{SEALED}"))  # noqa: PTH116  # of thousands
    return owners


def _entries(folder: str | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    """Return what is in a folder; nothing in a file, and in a folder that may not be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (NotADirectoryError, PermissionError):
        return []


def _local_state(stat: os.stat_result) -> object:
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


Written = TypeVar("Written")

# Only glibc has it, and keeps much of what many threads have freed. Below 16 MB, statistics would take several times as
# long: each array of draws would be memory that the kernel clears anew.
with suppress(OSError, AttributeError, TypeError):
    for _option, _value in ((-1, 16 << 20), (-3, 16 << 20), (-8, 2)):  # trim and mmap threshold, number of arenas
        ctypes.CDLL(None).mallopt(_option, _value)

ROWS_PER_GROUP, BYTES_PER_GROUP = 50_000, 8 << 20
"""The size of a row group, in rows and in bytes before compression: what a reader has in memory at a time."""
FORMAT = 15
"""Format of the stored files. A change of columns increases it."""
PACKED_FORMAT = 16
"""Format that the marker of a store with packed files states: versions that know only FORMAT would miss their rows."""
FORMAT_KEY = b"evalflows.format"
"""The key of the format in a file's metadata."""


@contextmanager
def storage_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise an OSError of the block as a StorageError that names the path."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{os.fspath(path)}: {error.strerror or describe(error)}") from error


def format_of(marker: bytes) -> int:
    """Return the format of the files of a store, by its marker: FORMAT. Raise ValueError for any other."""
    try:
        written = int(json.loads(marker)["format"])
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"got {marker[:40]!r} in evalflows.json, wanted the format of a store") from None
    if written > PACKED_FORMAT:
        raise ValueError(f"got format {written}, wanted {FORMAT}: a newer evalflows wrote it, so update evalflows")
    if written < FORMAT:
        raise ValueError(f"got format {written}, wanted {FORMAT}: a version before the first release wrote it")
    return FORMAT


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that is written whole under a temporary name. `place` gives it its own, atomically."""

    path: str
    content: Content
    place: Callable[[], None]


def write_file(
    layout: Layout,
    fs: Any,
    path: str,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    metadata: Mapping[bytes, bytes] = MappingProxyType({}),
    *,
    regroup: bool = True,
    replaces: bool = False,
    before: Callable[[StagedFile], object] = lambda _: None,
) -> None:
    """Write one Parquet file from tables atomically, as `staged_file`; `before` is called before it is there."""
    with staged_file(layout, fs, path, schema, tables, metadata, regroup=regroup, replaces=replaces) as staged:
        before(staged)
        staged.place()


@contextmanager
def staged_file(
    layout: Layout,
    fs: Any,
    path: str,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    metadata: Mapping[bytes, bytes] = MappingProxyType({}),
    *,
    regroup: bool = True,
    replaces: bool = False,
) -> Iterator[StagedFile]:
    """Write one Parquet file from tables, on a local disk durably; it is removed at the end unless it was placed.

    `metadata` are added to its own. Unless `regroup`, each table is a row group. In an object store, a part may have
    the name of one that it `replaces`.
    """
    write = partial(
        _write_with_checksum,
        partial(_write_parquet, schema, _row_groups(tables) if regroup else tables, metadata=metadata),
    )
    if layout.is_local:
        staging = staged_durably(Path(path), write, file_mode(Path(layout.root)))
    else:
        staging = fs.staged(path, write, replaces=replaces)
    with staging as (content, place):
        yield StagedFile(path, content, place)


@contextmanager
def renamed_file(layout: Layout, fs: Any, part: str, path: str) -> Iterator[StagedFile]:
    """Take a file in a folder for a staged one, as it is: `place` gives it its name. Raise StorageError if damaged."""
    digest = sha256_of(fs, part, state_of(layout, fs, part))
    if digest is None:
        raise StorageError(f"{part}: the file has gone, wanted the rows of its owner")
    with storage_errors(part):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        yield StagedFile(path, Content(digest, fs.size(part)), partial(_rename, Path(part), Path(path)))


def _write_parquet(
    schema: pa.Schema, groups: Iterable[pa.Table], sink: IO[bytes], *, metadata: Mapping[bytes, bytes]
) -> None:
    """Write a Parquet file of row groups with the format and the place of the checksum in its metadata."""
    own = {FORMAT_KEY: str(FORMAT).encode(), CHECKSUM_KEY: BLANK}
    whole = schema.with_metadata({**(schema.metadata or {}), **own})
    with pq.ParquetWriter(sink, whole, compression="zstd", write_page_checksum=True) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=group.num_rows)
        if metadata:
            writer.add_key_value_metadata(dict(metadata))  # those of the schema are written twice


def _write_with_checksum(write: Callable[[IO[bytes]], None], file: IO[bytes]) -> Content:
    write(file)
    content = put_checksum(file)
    file.flush()
    return content


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of the tables as row groups."""
    pending: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        for piece in _pieces(table):
            pending.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
            if rows >= ROWS_PER_GROUP or size >= BYTES_PER_GROUP:
                yield pa.concat_tables(pending)
                pending, rows, size = [], 0, 0
    if pending:
        yield pa.concat_tables(pending)


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Yield slices of a table that are no larger than a row group."""
    fitting = table.num_rows * BYTES_PER_GROUP // max(table.nbytes, 1)
    step = max(1, min(ROWS_PER_GROUP, fitting))
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)


def file_mode(root: Path) -> int:
    """Return the permissions of a store's files: the owner's alone, and those that its folder gives to others.

    A new store's folder is private, since the files hold texts; `chmod g+rx` on it shares what is written from then on.
    """
    return 0o600 | (root.stat().st_mode & 0o066)


def write_bytes(layout: Layout, fs: Any, path: str, content: bytes) -> None:
    """Write a small file whole; in a folder, it is on disk when this returns. Raise StorageError if that fails."""
    with storage_errors(path):
        if not layout.is_local:
            fs.pipe_file(path, content)
            return
        with staged_durably(Path(path), lambda file: file.write(content), file_mode(Path(layout.root))) as (_, place):
            place()


@contextmanager
def staged_durably(
    target: Path, write: Callable[[IO[bytes]], Written], mode: int
) -> Iterator[tuple[Written, Callable[[], None]]]:
    """Write to a temporary file and sync it to disk. Yield what `write` returns, and what renames the file.

    No reader ever sees a partial file. A file that is not renamed is removed at the end.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode), "w+b") as file:
            written = write(file)
            file.flush()
            os.fsync(file.fileno())
        yield written, partial(_rename, temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _rename(temporary: Path, target: Path) -> None:
    temporary.replace(target)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


MEMORY = "memory"
SCHEMES = ("s3", MEMORY)

RETRY_S = 20.0
"""Seconds for which a request is repeated if the server does not answer, or fails."""
TIMEOUT_S, CONNECT_S = 60.0, 5.0
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def files_at(layout: Layout) -> Any:
    """Return the file system of a store, in fsspec's terms. Raise ValueError for a root of an unknown kind."""
    key = (layout.root, *(os.environ.get(name) for name in (*_ENDPOINTS, "AWS_ACCESS_KEY_ID")))
    with _opening:
        if key not in _opened:
            _opened[key] = LocalFiles() if layout.is_local else _object_files(layout.root)
        return _opened[key]


class LocalFiles(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The local file system, for the files of one store."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.locked = WeakSet[IO[bytes]]()
        """The files of the leases that this process has."""


def known(fs: Any, what: str) -> dict[str, tuple[object, Any]]:
    """Return what this process knows of a store's files, by path, each with the state in which the file was."""
    found: dict[str, tuple[object, Any]] = vars(fs).setdefault(f"known_{what}", {})
    return found


def readable(layout: Layout, fs: Any) -> Layout:
    """Return the layout of the folder in which DuckDB reads a store's files: an object store's mirror."""
    return fs.mirror.layout if isinstance(fs, ObjectFiles) else layout


def readable_paths(fs: Any, paths: Iterable[str]) -> list[str]:
    """Return the paths at which DuckDB reads files. Raise StorageError for an object that has gone."""
    return [_copy(fs, path) if isinstance(fs, ObjectFiles) else path for path in paths]


def _copy(fs: ObjectFiles, path: str) -> str:
    with storage_errors(path):
        return str(fs.local(path))


def follow(fs: Any) -> None:
    """Bring an object store's mirror to its present state."""
    if isinstance(fs, ObjectFiles):
        fs.follow()


@contextmanager
def noting_downloads(fs: Any, note: Callable[[], object]) -> Iterator[None]:
    """Call `note` at the end of a block in which files of the mirror were downloaded."""
    before = fs.n_downloads if isinstance(fs, ObjectFiles) else 0
    yield
    if isinstance(fs, ObjectFiles) and fs.n_downloads != before:
        note()


_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_opened: dict[tuple[object, ...], LocalFiles | ObjectFiles] = {}
"""The files of each store that this process has opened, with what it knows of them."""
_opening = threading.Lock()


def _leave() -> None:
    """In a forked process, open stores anew, and close the files of leases: they would keep a lease after the process
    that has it was killed."""
    for fs in _opened.values():
        for file in [*fs.locked] if isinstance(fs, LocalFiles) else ():
            file.close()
    _opened.clear()


os.register_at_fork(after_in_child=_leave)


def _object_files(root: str) -> ObjectFiles:
    scheme, _, rest = root.partition("://")
    if scheme not in SCHEMES or not rest:
        raise ValueError(f"got {root!r}, wanted a folder or s3://bucket/prefix")
    if scheme == MEMORY:
        return ObjectFiles(root, MemoryStore(), Mirror.temporary_of(root))
    endpoint = next((url for name in _ENDPOINTS if (url := os.environ.get(name))), "")
    is_local = urlsplit(endpoint).hostname in _THIS_MACHINE
    if endpoint.startswith("http://") and not is_local and not os.environ.get("AWS_ALLOW_HTTP"):
        raise ValueError(f"AWS_ENDPOINT_URL: got {endpoint}, wanted https://, or AWS_ALLOW_HTTP=true beside it")
    client: Any = {"timeout": timedelta(seconds=TIMEOUT_S), "connect_timeout": timedelta(seconds=CONNECT_S)}
    # the time is what limits: ten retries, the default, may be over within two seconds
    retries: Any = {"retry_timeout": timedelta(seconds=RETRY_S), "max_retries": 1000}
    with one_line_errors(root):
        objects = from_url(
            root, client_options=client | ({"allow_http": True} if is_local else {}), retry_config=retries
        )
    return ObjectFiles(root, objects, Mirror.of(root, endpoint))


def file_damage(fs: Any, path: str, state: object = None, *, thoroughly: bool = True) -> str | None:
    """Return what is wrong with a file, or None; a sound one is read once per process and state (None: unknown).

    A file that has gone meanwhile is not damaged: whoever reads the store lists its files again.
    """
    if state is not None and known(fs, "hashes").get(path, (None, ""))[0] == state:
        return None
    damage, digest = _read(fs, path, thoroughly)
    if damage is not None and isinstance(fs, ObjectFiles):  # it may be the mirror's copy only
        fs.renew(path)
        damage, digest = _read(fs, path, thoroughly)
    if damage is None and digest is not None and state is not None:
        known(fs, "hashes")[path] = state, digest
    return damage


def _read(fs: Any, path: str, thoroughly: bool) -> tuple[str | None, str | None]:
    """Return what is wrong with a file, and the SHA-256 of its bytes if it was read whole."""
    try:
        with fs.open(path, "rb") as file:
            if not thoroughly:
                return footer_damage(file), None
            content = content_of(file)
            return content.damage, content.sha256
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return error.strerror or str(error), None


def sha256_of(fs: Any, path: str, state: object) -> str | None:
    """Return the SHA-256 of a file's bytes, verified as by `verify`; None for a file that has gone meanwhile."""
    verify(fs, path, state)
    known_state, digest = known(fs, "hashes").get(path, (None, ""))
    return digest if known_state is not None and known_state == state else None


def verify(fs: Any, path: str, state: object) -> None:
    """Verify a file, once per process and state. Raise StorageError if it is damaged or unreadable."""
    if damage := file_damage(fs, path, state):
        raise damaged(path, damage)


def forget_hashes(fs: Any, paths: Iterable[str]) -> None:
    """Forget that files were sound, so that they are read again."""
    hashes = known(fs, "hashes")
    for path in paths:
        hashes.pop(path, None)


def unreadable(error: OSError) -> StorageError:
    """Return the error for a file that the system could not open or read; `filename` names it."""
    return StorageError(f"{error.filename}: cannot be read: {error.strerror}; {hints.doctor().code} says what to do")


def damaged(path: str, damage: str) -> StorageError:
    """Return the error for a damaged file."""
    return StorageError(f"{path}: damaged: {damage}; {hints.doctor().code} says what to do")


def texts_in(parameters: Iterable[object]) -> set[str]:
    """Return the texts among a query's parameters, some of which may be owners."""
    values = [value if isinstance(value, list | tuple) else [value] for value in parameters]
    return {text for texts in values for text in texts if isinstance(text, str)}


DIGITS = 32
"""Digits of a key that is a hash: see `derived_id`."""
_MIXER = 0x9E3779B97F4A7C15


def merged(
    connect: Callable[[], duckdb.DuckDBPyConnection],
    layout: Layout,
    fs: Any,
    table: str,
    paths: Sequence[str],
    columns: Sequence[str],
) -> Iterator[pa.Table]:
    """Yield the rows of the parts, in their order, without those that a later row of the same key replaces.

    Raise StorageError if a part is damaged, gone, or cannot be read.
    """
    for path in paths:
        verify(fs, path, state_of(layout, fs, path))
    try:
        if _have_distinct_keys(fs, table, paths):
            for path in paths:
                yield from row_groups(fs, path, table, columns)
        else:
            with connect() as connection:
                for path, numbers in _kept(connection, fs, table, paths):
                    yield from row_groups(fs, path, table, columns, numbers)
    except (duckdb.Error, pa.ArrowException) as error:  # removed meanwhile
        raise StorageError(f"{paths[0].rpartition('/')[0]}: {' '.join(str(error).split())}") from error


def can_stay(layout: Layout, fs: Any, table: str, part: str) -> bool:
    """Whether one open part can be the sealed file of its owner as it is: each key once, in today's columns.

    Its row groups are as long as those of any file. Raise StorageError if it is damaged.
    """
    if not layout.is_local:
        return False
    verify(fs, part, state_of(layout, fs, part))
    with storage_errors(part):
        is_same = pq.read_schema(part).equals(schema_of(TABLES[table].record))
    return is_same and _have_distinct_keys(fs, table, [part])


@contextmanager
def open_parquet(fs: Any, path: str) -> Iterator[pq.ParquetFile]:
    """Open a file whose pages are verified as they are read. Raise StorageError for one that cannot be read."""
    with storage_errors(path), fs.open(path, "rb") as file:
        try:
            yield pq.ParquetFile(file, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # of the system
                raise
            raise damaged(path, " ".join(str(error).split())[:120]) from error


def row_groups(
    fs: Any, path: str, table: str, columns: Sequence[str], numbers: NDArray[np.int64] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a file, or only those with these numbers, one row group at a time."""
    with open_parquet(fs, path) as parquet:
        yield from row_groups_of(parquet, table, columns, numbers)


def row_groups_of(
    parquet: pq.ParquetFile, table: str, columns: Sequence[str], numbers: NDArray[np.int64] | None = None
) -> Iterator[pa.Table]:
    """Yield the same rows of an open file."""
    schema = pa.schema([schema_of(TABLES[table].record).field(name) for name in columns])
    start = 0
    for group in range(parquet.num_row_groups):
        stop = start + parquet.metadata.row_group(group).num_rows
        within = None if numbers is None else numbers[(numbers >= start) & (numbers < stop)] - start
        if within is None or len(within):
            rows = parquet.read_row_group(group, columns=list(columns))
            kept = rows if within is None or len(within) == stop - start else rows.take(within)
            yield as_schema(kept.select(columns), schema)
        start = stop


def _have_distinct_keys(fs: Any, table: str, paths: Sequence[str]) -> bool:
    """Whether no key occurs twice, as if no part was retried; False also if the keys are not hashes of one column.

    Half of the digits of each are compared, so that a million keys take 8 MB.
    """
    if len(paths) <= 1 and count_rows(fs, paths) <= 1:  # the row of an owner: no DuckDB has to be made for it
        return True
    hashes: list[NDArray[np.uint64]] = []
    for path in paths if len(TABLES[table].key) == 1 else ():
        for rows in row_groups(fs, path, table, TABLES[table].key):
            for keys in filter(len, rows.column(0).chunks):
                _, ends, texts = keys.buffers()
                starts = np.frombuffer(ends, np.int32)[keys.offset : keys.offset + len(keys) + 1]
                if (np.diff(starts) != DIGITS).any():
                    return False
                words = np.frombuffer(texts, np.uint64, len(keys) * DIGITS // 8, starts[0]).reshape(len(keys), -1)
                hashes.append(words[:, 0] * np.uint64(_MIXER) + words[:, 1])
    every = np.sort(np.concatenate(hashes)) if hashes else np.zeros(2, np.uint64)
    return bool((every[1:] != every[:-1]).all())


def count_rows(fs: Any, paths: Iterable[str]) -> int:
    """Return the number of rows in files, as their footers say. Raise StorageError for one that cannot be read."""
    count = 0
    for path in paths:
        with storage_errors(path), fs.open(path, "rb") as file:
            count += pq.read_metadata(file).num_rows
    return count


def last_recorded(connection: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> datetime | None:
    """Return the newest time of recording in these parts."""
    newest = connection.execute(f"select max(recorded_at) from {files(list(paths))}").fetchone()
    return newest[0] if newest else None


def _kept(
    connection: duckdb.DuckDBPyConnection, fs: Any, table: str, paths: Sequence[str]
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield each part with the numbers of its rows that no later row replaces, in order.

    Only the keys are read, since a query that compares whole rows would hold all of them in memory.
    """
    if not paths:
        return
    read = readable_paths(fs, paths)
    listed = ", ".join(map(quoted, read))
    found = connection.sql(
        f"""select filename, file_row_number from (
                select * from read_parquet([{listed}], filename = true, file_row_number = true,
                                           hive_partitioning = false))
            qualify row_number() over ({latest_first(table)}, filename desc, file_row_number desc) = 1"""
    ).fetchnumpy()
    names, numbers = np.asarray(found["filename"], dtype=object), np.asarray(found["file_row_number"])
    for path, name in zip(paths, read, strict=True):
        of_path = np.sort(numbers[names == name])
        if len(of_path):
            yield path, of_path
