"""Manifests: which files of the store this program wrote, by the hashes of their bytes, and what decisions rest on; and
sealed files, written under temporary names until they have one."""

# `manifests/<owner>.<12 hexadecimal digits>.json` is written whole before the files that it names get their own names,
# so a crash leaves at most a manifest of a file that is not there, which is ignored. A file is known if any manifest
# names its path with its hash: of two processes that replace one file, either may come last. Open parts have no
# manifests: a run merges them into sealed files. A decision's manifest also names, with their hashes, the manifests of
# its evidence.
#
# Readers do not look here: `evalflows doctor`, gates and `evalflows explain --again` do.

from __future__ import annotations  # types of libraries that are imported when first used

import getpass
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from evalflows.specs.errors import StorageError
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.store.arrow import pa
from evalflows.store.checksums import sha256_of
from evalflows.store.file_states import packed_states, state_of
from evalflows.store.file_systems import storage_errors
from evalflows.store.files import StagedFile, stage_file, stage_renamed, write_bytes
from evalflows.store.layout import MANIFESTS, Layout, StoredFile
from evalflows.store.records import now
from evalflows.store.schemas import TABLES, schema_of

FOLDER = MANIFESTS
NUMBER = 1
"""The format of a manifest."""
_NAME = re.compile(r"(.+)\.[0-9a-f]{12}\.json")

NEVER_OPEN = frozenset(
    (
        *("snapshots", "attachments", "examples", "dataset_versions", "verdicts", "decisions"),
        *("estimates", "ratings", "baselines", "checks", "erasures"),
    )
)
"""Tables whose rows are sealed at once: no run writes open parts of them."""

UNKNOWN = "no run wrote this file: no manifest names it"
ALTERED = "no run wrote these bytes: the file was altered or replaced"
ADVICE = "move it elsewhere, or restore the file of the run from a backup"

Contents: TypeAlias = "Iterable[tuple[str, Iterable[pa.Table] | str]]"
"""Tables, each with the rows of an owner, or the path of its one open part, which is renamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a decision rests on: owners, the manifests of their files, and files that are still open. It also names the
    decisions made before it, so that none of them can go unnoticed."""

    owners: Sequence[str]
    rests_on: Sequence[Mapping[str, str]]  # manifest and sha256
    parts: Sequence[Mapping[str, str]] = ()  # path and sha256
    follows: Sequence[Mapping[str, str]] = ()  # decision, manifest and sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a manifest says beside its files."""

    evidence: Evidence | None = None  # of a decision
    flow_run: str | None = None


WRITTEN = Written()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest as it was read. Paths are relative to the store's root."""

    name: str
    owner: str
    sha256: str  # of its own bytes
    written_at: str
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 by path
    evidence: Evidence | None = None  # of a decision


def owner_of(file: StoredFile) -> str:
    """Return the owner in the name of the manifests of a file; a packed file has its own."""
    return file.owner or f"packed-{file.table}-{Path(file.path).stem}"


def write_manifest(layout: Layout, fs: Any, staged: Iterable[StagedFile], written: Written = WRITTEN) -> None:
    """Write the manifest of files of one owner, before they are placed. Raise StorageError if that fails."""
    files = [*staged]
    if not files or (first := StoredFile.at(files[0].path)) is None:
        return
    entries = [
        {"path": _relative(layout, file.path), "sha256": file.content.sha256, "bytes": file.content.size}
        for file in files
    ]
    body = {
        "format": NUMBER,
        "owner": owner_of(first),
        "written_at": now().isoformat(),
        "written_by": _writer() | {"flow_run": written.flow_run or os.environ.get("PREFECT__FLOW_RUN_ID")},
        "files": entries,
    }
    text = json.dumps(body | (asdict(written.evidence) if written.evidence else {}), indent=1).encode()
    path = f"{layout.root}/{FOLDER}/{body['owner']}.{secrets.token_hex(6)}.json"
    write_bytes(layout, fs, path, text)


def name_file(layout: Layout, fs: Any, staged: StagedFile) -> None:
    """Write the manifest of one file before it is placed: a packed one, or one without its texts."""
    write_manifest(layout, fs, [staged])


def manifests(layout: Layout, fs: Any, owners: Collection[str] | None = None) -> dict[str, list[Manifest]]:
    """Return the manifests of owners (None: all) by owner, the oldest first. One that cannot be read names nothing."""
    read = (_read(layout, fs, *name) for name in _names(layout, fs) if owners is None or name[1] in owners)
    return grouped(
        (manifest.owner, manifest)
        for manifest in sorted(filter(None, read), key=lambda manifest: (manifest.written_at, manifest.name))
    )


def manifest_owners(layout: Layout, fs: Any) -> set[str]:
    """Return the owners that manifests are of, without reading any."""
    return {owner for _, owner in _names(layout, fs)}


def remove_manifests(layout: Layout, fs: Any, owners: Collection[str]) -> None:
    """Remove the manifests of owners whose files have been removed."""
    for name, owner in [*_names(layout, fs)]:
        if owner in owners:
            path = f"{layout.root}/{FOLDER}/{name}"
            with storage_errors(path), suppress(FileNotFoundError):
                fs.rm_file(path)


def _names(layout: Layout, fs: Any) -> Iterator[tuple[str, str]]:
    """Yield the names of all manifests, each with its owner."""
    folder = f"{layout.root}/{FOLDER}"
    with storage_errors(folder):
        paths = os.listdir(folder) if layout.is_local and os.path.isdir(folder) else []  # noqa: PTH112, PTH208  # of thousands
        for path in paths if layout.is_local else fs.find(folder):
            if found := _NAME.fullmatch(path.rpartition("/")[2]):
                yield found[0], found[1]


def not_written(
    layout: Layout,
    hashes: Mapping[str, str],
    by_owner: Mapping[str, Sequence[Manifest]],
    parts: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[StoredFile, str]]:
    """Yield the files, of these with their hashes, that no run wrote, each with what is wrong.

    Of open parts only those are looked at whose hash is known, in `parts`.
    """
    for path in sorted(hashes):
        file, relative = StoredFile.at(path), _relative(layout, path)
        if file is not None and (relative in parts or not may_be_open(file)):
            named = [m.files[relative] for m in by_owner.get(owner_of(file), ()) if relative in m.files]
            named += [parts[relative]] if relative in parts else []
            if hashes[path] not in named:
                yield file, ALTERED if named else UNKNOWN


def check_hashes(
    layout: Layout, fs: Any, hashes: Mapping[str, str], parts: Mapping[str, str] = MappingProxyType({})
) -> Mapping[str, Sequence[Manifest]]:
    """Return the manifests of files, by the owner in their names. Raise StorageError for a file that no run wrote."""
    owners = {owner_of(file) for path in hashes if (file := StoredFile.at(path))}
    known = manifests(layout, fs, owners) if owners else {}
    for file, problem in not_written(layout, hashes, known, parts):
        raise StorageError(f"{file.path}: {problem}; {ADVICE}")
    return known


def check_written(layout: Layout, fs: Any, paths: Iterable[str]) -> None:
    """Raise StorageError for a file that is damaged, or that no run wrote."""
    hashes = {path: sha256_of(fs, path, state_of(layout, fs, path)) for path in paths}
    check_hashes(layout, fs, {path: digest for path, digest in hashes.items() if digest is not None})


def check_packs(layout: Layout, fs: Any, tables: Iterable[str]) -> None:
    """Raise StorageError for a packed file of tables without a manifest, whatever owners it lists: views read all."""
    named = manifest_owners(layout, fs)
    for path in (path for table in tables for path in packed_states(layout, fs, table)):
        if (file := StoredFile.at(path)) and owner_of(file) not in named:
            raise StorageError(f"{path}: {UNKNOWN}; {ADVICE}")


def evidence_of(layout: Layout, fs: Any, owners: Collection[str], hashes: Mapping[str, str]) -> Evidence:
    """Return what a decision on owners rests on, by the hashes of their files.

    Raise StorageError for a file that no run wrote.
    """
    known = check_hashes(layout, fs, hashes)
    rests_on, parts = dict[str, str](), []
    for path in sorted(hashes):
        file, relative = StoredFile.at(path), _relative(layout, path)
        if file is not None and may_be_open(file):
            parts.append({"path": relative, "sha256": hashes[path]})
        elif file is not None:
            *_, newest = (m for m in known[owner_of(file)] if m.files.get(relative) == hashes[path])
            rests_on[newest.name] = newest.sha256
    links = [{"manifest": name, "sha256": digest} for name, digest in sorted(rests_on.items())]
    return Evidence(owners=sorted(owners), rests_on=links, parts=parts)


def may_be_open(file: StoredFile) -> bool:
    """Return whether a file is an open part, which has no manifest."""
    return file.state == "open" and file.table not in NEVER_OPEN


def newest_evidence(known: Mapping[str, Sequence[Manifest]]) -> dict[str, Manifest]:
    """Return the newest manifest of each decision that names its evidence."""
    return {owner: manifest for owner, of in known.items() for manifest in of if manifest.evidence is not None}


def broken_links(layout: Layout, fs: Any, decision: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the manifests of a decision's evidence, and of the decisions before it, that are missing or altered: the
    path, and what is wrong."""
    if decision.evidence is None:
        return
    after = [(link, "rests on it") for link in decision.evidence.rests_on]
    after += [(link, f"was made after {link['decision']}") for link in decision.evidence.follows]
    for link, why in after:
        path = f"{layout.root}/{FOLDER}/{link['manifest']}"
        body = _body(fs, path) if _NAME.fullmatch(link["manifest"]) else None
        if body is None:
            yield path, f"the manifest is missing, and the decision {decision.owner} {why}"
        elif hashlib.sha256(body).hexdigest() != link["sha256"]:
            yield path, f"the manifest was altered, and the decision {decision.owner} {why}"


def _relative(layout: Layout, path: str) -> str:
    return path.removeprefix(f"{layout.root}/")


def _body(fs: Any, path: str) -> bytes | None:
    with storage_errors(path):
        try:
            return bytes(fs.cat_file(path))
        except FileNotFoundError:
            return None


def _read(layout: Layout, fs: Any, name: str, owner: str) -> Manifest | None:
    """Return a manifest; None if it has gone, or cannot be read."""
    try:
        if (body := _body(fs, f"{layout.root}/{FOLDER}/{name}")) is None:
            return None
        given = json.loads(body)
        evidence = None
        if "rests_on" in given:
            links = [{"manifest": str(link["manifest"]), "sha256": str(link["sha256"])} for link in given["rests_on"]]
            parts = [{"path": str(part["path"]), "sha256": str(part["sha256"])} for part in given["parts"]]
            names = ("decision", "manifest", "sha256")
            follows = [{name: str(link[name]) for name in names} for link in given.get("follows", ())]
            evidence = Evidence(owners=[*map(str, given["owners"])], rests_on=links, parts=parts, follows=follows)
        return Manifest(
            name=name,
            owner=owner,
            sha256=hashlib.sha256(body).hexdigest(),
            written_at=str(given["written_at"]),
            files={str(file["path"]): str(file["sha256"]) for file in given["files"]},
            evidence=evidence,
        )
    except (ValueError, KeyError, TypeError):
        return None


@cache
def user_name() -> str | None:
    """Return the name of this process's user; None if it has none."""
    with suppress(OSError, KeyError):  # a user without an entry
        return getpass.getuser()
    return None


@cache
def _version() -> str:
    from importlib.metadata import version  # late: only what writes needs it

    return version("evalflows")


def _writer() -> dict[str, object]:
    return {"user": user_name(), "host": os.uname().nodename, "process": os.getpid(), "evalflows_version": _version()}


def write_sealed(
    layout: Layout,
    fs: Any,
    owner: str,
    contents: Contents,
    check: Callable[[], None],
    written: Written = WRITTEN,
    *,
    at_once: bool = False,
) -> None:
    """Write the sealed files of an owner, and give them their names in the order of the tables.

    `check` is called before anything is written. If `at_once`, the tables are written on threads.

    Raise StorageError if that fails; files that have their names by then stay.
    """
    with ExitStack() as stack:
        waiting = (_staged(layout, fs, table, owner, rows, check) for table, rows in contents)
        staged = _at_once(stack, [*waiting]) if at_once else [stack.enter_context(file) for file in waiting]
        write_manifest(layout, fs, staged, written)
        for file in staged:
            with storage_errors(file.path):
                file.place()


def _at_once(stack: ExitStack, waiting: list[AbstractContextManager[StagedFile]]) -> list[StagedFile]:
    """Write files on a thread each: Arrow and DuckDB use another core."""
    with ThreadPoolExecutor(max(len(waiting), 1)) as threads:
        return [*threads.map(stack.enter_context, waiting)]


@contextmanager
def _staged(
    layout: Layout, fs: Any, table: str, owner: str, rows: Iterable[pa.Table] | str, check: Callable[[], None]
) -> Iterator[StagedFile]:
    path = layout.sealed(table, owner)
    with storage_errors(path):
        check()
        if isinstance(rows, str):
            staging = stage_renamed(layout, fs, rows, path)
        else:
            staging = stage_file(layout, fs, path, schema_of(TABLES[table].record), rows)
        with staging as staged:
            yield staged
