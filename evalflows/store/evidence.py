"""What decisions rest on: verified when they are made, and again when somebody asks."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from evalflows.specs.errors import StorageError
from evalflows.specs.frozen import dataclass
from evalflows.store.file_states import states_of
from evalflows.store.layout import Layout, StoredFile
from evalflows.store.manifests import (
    Evidence,
    Manifest,
    broken_links,
    check_hashes,
    check_packs,
    evidence_of,
    manifest_owners,
    manifests,
    newest_evidence,
)
from evalflows.store.packs import files_of, owners_of
from evalflows.store.snapshots import check_content
from evalflows.store.store import Store

TABLES_OF_EVIDENCE = (
    *("snapshots", "examples", "experiments", "outputs", "judgements", "checks", "baselines", "watermarks"),
)
"""The tables that gates read."""


FOLLOWED = 20
"""How many decisions before it a decision names: those that several processes make at once, and some more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The chain of a decision: its manifest, if it has one, and how many files were verified."""

    manifest: Manifest | None
    n_files: int

    @property
    def text(self) -> str:
        if self.manifest is None:
            return f"{self.n_files} files are unchanged since runs wrote them; no manifest names its evidence"
        return f"the decision and the {self.n_files} files of its evidence are unchanged since runs wrote them"


def evidence_on(store: Store, owners: Collection[str]) -> Evidence:
    """Return the evidence on owners, and which decisions the store has.

    Raise StorageError for a file of it that is damaged, or that no run wrote, and for examples of another snapshot.
    """
    check_packs(store.layout, store.filesystem, TABLES_OF_EVIDENCE)
    check_none_deleted(store, owners)
    _check_examples(store, owners)
    evidence = store.steady(
        lambda: evidence_of(store.layout, store.filesystem, owners, store.verify(owners, TABLES_OF_EVIDENCE))
    )
    follows = [{"decision": m.owner, "manifest": m.name, "sha256": m.sha256} for m in _newest(store)]
    return replace(evidence, follows=follows)


def _newest(store: Store) -> list[Manifest]:
    """Return the manifests of the newest decisions in the store."""
    query = "select decision_id from source.decisions order by recorded_at desc limit ?"
    names = [name for (name,) in store.query(query, [FOLLOWED])]
    return [*newest_evidence(manifests(store.layout, store.filesystem, {*names})).values()] if names else []


def deleted_decisions(store: Store) -> list[str]:
    """Return the decisions that manifests name, and that the store no longer has."""
    named = {name for name in manifest_owners(store.layout, store.filesystem) if name.startswith("dec-")}
    named |= {link["decision"] for m in _newest(store) if m.evidence for link in m.evidence.follows}
    there = {name for (name,) in store.query("select decision_id from source.decisions")}
    return sorted(name for name in named - there if not store.is_sealed("decisions", name))  # damaged ones are left out


def _deleted_before(store: Store, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the decisions that were made before one, and that the store no longer has."""
    for link in manifest.evidence.follows if manifest.evidence else ():
        if not store.is_sealed("decisions", link["decision"]):
            path = store.layout.sealed("decisions", link["decision"])
            yield path, f"the decision was deleted, and {manifest.owner} was made after it"


def check_none_deleted(store: Store, owners: Collection[str]) -> None:
    """Raise StorageError for a file of these owners that a run wrote, if no file has the rows of its table now."""
    layout, fs = store.layout, store.filesystem
    states, written = states_of(layout, fs), {*written_files(layout, manifests(layout, fs, owners))}
    if lost := [file for file in written if file.path not in states]:
        found = files_of(fs, states, {file.owner for file in lost}, {file.table for file in lost})
        there = {
            (file.table, owner)
            for path in found
            if (file := StoredFile.at(path))
            for owner in (owners_of(fs, path, states[path]) if file.is_packed else [file.owner])
        }
        for file in lost:
            if (file.table, file.owner) not in there:
                advice = "restore it from a backup, or run the experiment again"
                raise StorageError(f"{file.path}: {DELETED}; {advice}")


DELETED = "a run wrote this file, and it was deleted, or the run was killed while writing it"


def written_files(layout: Layout, known: Mapping[str, Sequence[Manifest]]) -> Iterator[StoredFile]:
    """Yield the files of evidence that manifests name. Packing moves their rows; retention removes the manifests."""
    for path in (path for of_owner in known.values() for manifest in of_owner for path in manifest.files):
        if (file := StoredFile.at(f"{layout.root}/{path}")) and file.owner and file.table in TABLES_OF_EVIDENCE:
            yield file


def _check_examples(store: Store, owners: Collection[str]) -> None:
    """Whoever replaces a snapshot's file with its manifest cannot have its id name other examples."""
    for owner in owners:
        if store.is_sealed("snapshots", owner):
            check_content(store, owner)


def verify_decision(store: Store, decision_id: str) -> Verified:
    """Verify a decision's own files, its manifest, the manifests of its evidence, and their files, in this order.

    Raise StorageError for the first that is damaged, missing or altered, or that no run wrote.
    """
    layout, fs = store.layout, store.filesystem
    own = store.verify([decision_id], ("decisions", "verdicts"))
    check_hashes(layout, fs, own)
    manifest = newest_evidence(manifests(layout, fs, {decision_id})).get(decision_id)
    if manifest is None or manifest.evidence is None:
        return Verified(manifest=None, n_files=len(own))
    for path, problem in (*broken_links(layout, fs, manifest), *_deleted_before(store, manifest)):
        raise StorageError(f"{path}: {problem}; restore it from a backup, or decide the gate again")
    check_packs(layout, fs, TABLES_OF_EVIDENCE)
    check_none_deleted(store, manifest.evidence.owners)
    _check_examples(store, manifest.evidence.owners)
    hashes = store.verify(manifest.evidence.owners, TABLES_OF_EVIDENCE)
    check_hashes(layout, fs, hashes, parts={part["path"]: part["sha256"] for part in manifest.evidence.parts})
    return Verified(manifest=manifest, n_files=len(hashes))
