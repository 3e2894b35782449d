"""What decisions rest on: verified when they are made, and again when somebody asks."""

from collections.abc import Collection
from dataclasses import dataclass

from evalflows.specs.errors import StorageError
from evalflows.store.manifests import (
    Evidence,
    Manifest,
    broken_links,
    check_hashes,
    check_packs,
    evidence_of,
    manifests,
    newest_evidence,
)
from evalflows.store.store import Store

TABLES_OF_EVIDENCE = (
    "snapshots",
    "examples",
    "experiments",
    "outputs",
    "judgements",
    "checks",
    "baselines",
    "watermarks",
)
"""The tables that gates read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The chain of a decision: its manifest, if it has one, and how many files were verified."""

    manifest: Manifest | None
    n_files: int

    @property
    def text(self) -> str:
        if self.manifest is None:
            return f"{self.n_files} files are as runs wrote them; the decision has no manifest that names its evidence"
        return f"the decision and the {self.n_files} files of its evidence are as runs wrote them"


def evidence_on(store: Store, owners: Collection[str]) -> Evidence:
    """Return the evidence on owners. Raise StorageError for a file of it that is damaged, or that no run wrote."""
    check_packs(store.layout, store.filesystem, TABLES_OF_EVIDENCE)
    return store.steady(
        lambda: evidence_of(store.layout, store.filesystem, owners, store.verify(owners, TABLES_OF_EVIDENCE))
    )


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
    for path, problem in broken_links(layout, fs, manifest):
        raise StorageError(f"{path}: {problem}; restore it from a backup, or decide the gate again")
    check_packs(layout, fs, TABLES_OF_EVIDENCE)
    hashes = store.verify(manifest.evidence.owners, TABLES_OF_EVIDENCE)
    check_hashes(layout, fs, hashes, parts={part["path"]: part["sha256"] for part in manifest.evidence.parts})
    return Verified(manifest=manifest, n_files=len(hashes))
