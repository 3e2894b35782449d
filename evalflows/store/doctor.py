"""Examining a store: every file is read, and everything that is damaged, missing, repeated or foreign is named."""

from __future__ import annotations  # types of libraries that are imported when first used

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from evalflows.specs import hints
from evalflows.specs.frozen import dataclass
from evalflows.store.arrow import pa, pc, pq
from evalflows.store.checksums import content_of
from evalflows.store.database import catalog_path, catalog_problem, keep_catalog
from evalflows.store.erasing import ERASED_KEY
from evalflows.store.erasing import FOLDER as PLANS
from evalflows.store.evidence import DELETED, deleted_decisions, written_files
from evalflows.store.file_states import states_of
from evalflows.store.file_systems import storage_errors
from evalflows.store.files import FORMAT, FORMAT_KEY
from evalflows.store.layout import INPUT_GROUPS, SUMMARIES, StoredFile
from evalflows.store.manifests import ADVICE, broken_links, manifests, newest_evidence, not_written
from evalflows.store.manifests import FOLDER as MANIFESTS
from evalflows.store.marker import GITIGNORE, restore_empties
from evalflows.store.object_store import ObjectFiles
from evalflows.store.packs import OWNERS_KEY
from evalflows.store.queries.continuing import continued_by
from evalflows.store.schemas import TABLES, is_erased, schema_of, to_rows
from evalflows.store.signatures import FOLDER as SIGNATURES
from evalflows.store.snapshots import snapshot_id
from evalflows.store.spool import BATCHES, RECEIVED, spool_folder
from evalflows.store.store import Store

_OF_EARLIER = ("catalog-unpacked.duckdb", "known_files/")
"""What earlier versions kept in a store."""

_RESUMED = {
    "outputs": "calls already paid come from the ledger",
    "judgements": "calls already paid come from the ledger",
    "calls": "calls that it needs again are paid again",
    "sentinels": "their calls come from the ledger",
    "resamples": "they are computed again",
    "classified": "they are computed again",
    "limits": "nothing else is lost",
    "estimates": "they are computed again",
    "verdicts": "they are computed again",
    "ratings": "they are computed again",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found in a store. `damaged`: rows are lost or wrong. `repaired`: nothing needs to be done.
    `note`: rows are as they were written."""

    severity: Literal["damaged", "repaired", "note"]
    path: str
    problem: str
    advice: str


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found in a store."""

    findings: list[Finding]
    n_files: int

    @property
    def is_sound(self) -> bool:
        return all(finding.severity != "damaged" for finding in self.findings)


class _Examiner:
    """Reads the files of a store, each once."""

    def __init__(self, store: Store, fs: Any) -> None:
        self._store, self._fs = store, fs
        self._rows: dict[tuple[str, str], int] = {}  # sealed rows, by table and owner
        self._unreadable: set[tuple[str, str]] = set()
        self._unpacked: set[tuple[str, str]] = set()  # owners that have files of their own, by table
        self._completed: list[tuple[str, dict[str, Any]]] = []  # with the experiment's id
        self._lost: set[StoredFile] = set()  # files that completed experiments must have
        self._hashes: dict[str, str] = {}  # SHA-256 of readable files, by path
        self.n_files = 0

    def findings(self) -> Iterator[Finding]:
        """Yield everything that is found."""
        with storage_errors(self._store.layout.root):
            restored = restore_empties(self._store.layout, self._fs)
        for path in restored:
            yield Finding("repaired", path, "the empty file of the table was missing or damaged", "written again")
        files = [file for path in sorted(states_of(self._store.layout, self._fs)) if (file := StoredFile.at(path))]
        sealed = {(file.table, file.owner) for file in files if file.is_sealed}
        self._unpacked = {(file.table, file.owner) for file in files if not file.is_packed}
        for file in files:
            if not file.is_sealed and (file.table, file.owner) in sealed:
                problem = "an open part of a sealed owner, left by an interrupted seal"
                yield Finding("note", file.path, problem, "it is not read; delete it")
            else:
                yield from self._of_file(file)
        yield from self._missing_rows()
        yield from self._not_written()
        yield from self._catalog()
        yield from self._foreign({file.path for file in files})
        yield from self._spooled()

    def _of_file(self, file: StoredFile) -> Iterator[Finding]:
        self.n_files += 1
        problem, digest = None, ""
        try:
            if isinstance(self._fs, ObjectFiles):
                self._fs.renew(file.path)  # the object itself, not the mirror's copy
            with self._fs.open(file.path, "rb") as opened:
                content = content_of(opened)
                problem, digest = content.damage, content.sha256
                if problem is None:
                    opened.seek(0)
                    rows = pq.ParquetFile(opened, page_checksum_verification=True).read()
        except FileNotFoundError:
            return  # sealed or removed meanwhile
        except (pa.ArrowException, OSError, ValueError) as error:
            problem = " ".join(str(error).split())[:120]
        if problem is not None:
            self._unreadable.add((file.table, file.owner))
            yield Finding("damaged", file.path, problem, advice(file))
            return
        self._hashes[file.path] = digest
        for problem in _problems(file, rows):
            yield Finding("damaged", file.path, problem, advice(file))
        yield from _erased(file, rows)
        self._note(file, rows)

    def _note(self, file: StoredFile, rows: pa.Table) -> None:
        """Note which sealed rows there are. Those of a packed file do not count for owners with files of their own."""
        column = TABLES[file.table].owner
        if file.is_packed:
            counts = rows.group_by(column).aggregate([([], "count_all")]).to_pylist()
            found = {row[column]: row["count_all"] for row in counts if (file.table, row[column]) not in self._unpacked}
        else:
            found = {file.owner: rows.num_rows} if file.is_sealed else {}
        self._rows |= {(file.table, owner): count for owner, count in found.items()}
        if file.table == "experiments":
            of_them = [row for row in rows.to_pylist() if row[column] in found and row["state"] == "completed"]
            self._completed += [(row[column], row) for row in of_them]

    def _missing_rows(self) -> Iterator[Finding]:
        """Find files that were deleted: a completed experiment has an output per example and repetition."""
        for identity, row in self._completed:
            planned = row["n_examples"] * row["repetitions"]
            wanted = {("outputs", identity): planned, ("examples", row["snapshot_id"]): row["n_examples"]}
            if json.loads(row["evaluators"]):
                wanted["judgements", identity] = 1  # at least
            for (table, owner), count in wanted.items():
                there = self._rows.get((table, owner), 0)
                if there < count and not {(table, owner), (table, "")} & self._unreadable:
                    problem = f"{identity} is completed, but has {there} rows here, wanted {count}"
                    lost = StoredFile(self._store.layout.sealed(table, owner), table, "sealed", owner)
                    self._lost.add(lost)
                    yield Finding("damaged", lost.path, problem, advice(lost, is_there=False))

    def _not_written(self) -> Iterator[Finding]:
        """Find files that no run wrote, and decisions whose chain of manifests is broken.

        Manifests are listed after the files were read: that of a file is there before the file is.
        """
        layout, fs = self._store.layout, self._fs
        known, resting = manifests(layout, fs), defaultdict[str, list[str]](list)
        decisions = [m for name, m in newest_evidence(known).items() if ("decisions", name) in self._rows]
        for decision in decisions:
            for owner in decision.evidence.owners if decision.evidence else ():
                resting[owner].append(decision.owner)
        there = {*self._rows, *((file.table, file.owner) for path in self._hashes if (file := StoredFile.at(path)))}
        for file in sorted({*written_files(layout, known)} - self._lost, key=lambda file: file.path):
            if not {(file.table, file.owner), (file.table, "")} & (there | self._unreadable):
                yield Finding("damaged", file.path, DELETED, advice(file, is_there=False))
        for file, problem in not_written(layout, self._hashes, known):
            of = [f"the decision {name} rests on it" for name in resting.get(file.owner, ())[:1]]
            yield Finding("damaged", file.path, "; ".join([problem, *of]), ADVICE)
        for decision in decisions:
            for path, problem in broken_links(layout, fs, decision):
                yield Finding("damaged", path, problem, "restore it from a backup, or decide the gate again")
        for name in deleted_decisions(self._store):
            problem = "the decision was deleted, or its gate was killed while writing it"
            yield Finding("damaged", layout.sealed("decisions", name), problem, "restore it, or decide the gate again")

    def _catalog(self) -> Iterator[Finding]:
        """Compare the catalog for other programs with the one that this program writes."""
        layout = self._store.layout
        path = catalog_path(layout)
        if not layout.is_local or (problem := catalog_problem(layout)) is None:
            return
        if problem.is_outdated:
            keep_catalog(layout)
            yield Finding("repaired", str(path), problem.text, "written again for this version and folder")
        else:
            what = f"{problem.text}, so other programs that open it may have read anything"
            yield Finding("damaged", str(path), what, "delete it, and the next run writes it again")

    def _foreign(self, own: set[str]) -> Iterator[Finding]:
        """Find files that this program did not write, and those that an interrupted write has left."""
        layout = self._store.layout
        root = layout.root
        known = {layout.empty(name) for name in TABLES}
        known |= {layout.marker, *own, str(catalog_path(layout)), f"{root}/{GITIGNORE}"}
        folders = tuple(f"{root}/{folder}/" for folder in ("spool", MANIFESTS, SIGNATURES, INPUT_GROUPS, SUMMARIES))
        for path in sorted(self._fs.find(root)):
            if path in known or path.startswith(folders):
                continue
            if path.startswith(f"{root}/{PLANS}/") and path.endswith(".json"):
                problem = "the plan of an erasure that has not ended: texts may be left"
                yield Finding("note", path, problem, f"{hints.finish_erasure().code}, unless it is still running")
            elif path.startswith(tuple(f"{root}/{name}" for name in _OF_EARLIER)):
                yield Finding("note", path, "left by an earlier version", "it is not read; delete it")
            elif path.endswith(".tmp"):
                yield Finding("note", path, "left by an interrupted write", "it is not read; delete it")
            else:
                yield Finding("note", path, "not a file of the store", "it is not read; move it elsewhere")

    def _continued(self, owner: str) -> str:
        """Say what takes up the spool of an owner: a resumption, or the next start of a trace evaluation."""
        if self._store.read("experiments", owner) or self._store.read("comparison_sets", owner):
            return continued_by(self._store, owner)
        return "the next start of the trace evaluation reads them; those of a trial can be deleted"

    def _spooled(self) -> Iterator[Finding]:
        for path in sorted(spool_folder(self._store).glob("*/*")):
            owner = path.parent.name
            if path.suffix == ".jsonl":
                problem = "rows of a running or interrupted run"
                remedy = f"{self._continued(owner)}, unless it is still running"
            elif path.suffix == ".journal":
                problem = "spans that a running or killed receiver has accepted"
                remedy = f"{hints.receive().code} stores them, unless it is still running"
            elif path.suffix == ".damaged" and owner == RECEIVED:
                problem = "requests of the receiver's journal that could not be stored"
                remedy = "their spans are missing; delete the file if you can do without them"
            elif path.suffix == ".damaged":
                problem = "lines of the spool that cannot be read"
                remedy = f"{self._continued(owner)}, which repeats them; then delete the file"
            elif owner == BATCHES:
                problem, remedy = "calls that wait for batches", f"{hints.resume(path.name).code} continues to wait"
            else:
                continue
            yield Finding("note", str(path), problem, remedy)


def examine(store: Store) -> Examination:
    """Read every file of a store. Only missing or damaged empty files are written again, which loses nothing.

    Raise StorageError if they cannot be written.
    """
    examiner = _Examiner(store, store.filesystem)
    return Examination([*examiner.findings()], examiner.n_files)


def _erased(file: StoredFile, rows: pa.Table) -> Iterator[Finding]:
    """Note the erased examples of a snapshot, whose id is a hash of what was frozen."""
    if file.table == "examples" and ERASED_KEY in (rows.schema.metadata or {}):
        count = sum(map(is_erased, rows.column("inputs").to_pylist()))
        day = rows.schema.metadata[ERASED_KEY].decode(errors="replace")
        problem = f"{count} of {rows.num_rows} examples erased, last on {day}"
        yield Finding("note", file.path, problem, "nothing needs to be done; its id is that of the earlier content")


def _problems(file: StoredFile, rows: pa.Table) -> Iterable[str]:
    """Return what is wrong with the rows of a readable file."""
    table = TABLES[file.table]
    written = (rows.schema.metadata or {}).get(FORMAT_KEY, b"none").decode(errors="replace")
    if written != str(FORMAT):
        yield f"got format {written}, wanted {FORMAT}"
    schema = schema_of(table.record)
    for field in schema:
        if field.name not in rows.column_names:
            if not field.nullable:
                yield f"has no column {field.name}"
        elif rows.schema.field(field.name).type != field.type:
            yield f"column {field.name}: got {rows.schema.field(field.name).type}, wanted {field.type}"
    if not {table.owner, *table.key} <= set(rows.column_names):
        return
    listed = json.loads((rows.schema.metadata or {}).get(OWNERS_KEY, b"[]")) if file.is_packed else [file.owner]
    others = set(rows.column(table.owner).unique().to_pylist()) - {*listed}
    if others:
        wanted = "those that its metadata list" if file.is_packed else file.owner
        yield f"has rows of {table.owner} {sorted(map(str, others))[0]}, wanted only {wanted}"
    is_whole = file.table == "examples" and file.is_sealed and ERASED_KEY not in (rows.schema.metadata or {})
    if is_whole and snapshot_id(to_rows("examples", rows)) != file.owner:
        yield f"the hash of its examples is not {file.owner}"
    if file.is_sealed or file.is_packed:
        keys = rows.select(list(table.key)).group_by(list(table.key)).aggregate([([], "count_all")])
        repeated = rows.num_rows - keys.num_rows
        if repeated:
            first = keys.filter(pc.greater(keys.column("count_all"), 1)).slice(0, 1).to_pylist()[0]
            yield f"{repeated} rows repeat a key, such as {first[table.key[-1]]}"


def advice(file: StoredFile, *, is_there: bool = True) -> str:
    """Return what to do about a damaged or lost file."""
    start = f"restore {file.path.rpartition('/')[2]} from a backup, or "
    if file.is_packed:
        again = "resuming an experiment makes its own again" if file.table in _RESUMED else "they are lost"
        return f"{start}delete it: without it, the rows of its {file.table} are missing; {again}"
    delete = "delete it and " if is_there else ""
    if file.table in _RESUMED:
        return f"{start}{delete}{hints.resume(file.owner).code}: {_RESUMED[file.table]}"
    if file.table in ("snapshots", "examples"):
        return f"{start}delete {file.owner} in snapshots/ and examples/, and add the same rows: the id stays the same"
    if file.table == "attachments":
        return f"{start}delete it: without it, examples that have this picture, sound or PDF cannot be run or judged"
    if file.table in ("experiments", "comparison_sets"):
        return f"{start}delete it: without it, {file.owner} cannot be shown or resumed"
    return f"{start}{'delete it' if is_there else 'do it again'}: its rows are lost"
