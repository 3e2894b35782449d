"""What to check: a snapshot, and the expectations of its spec."""

import json
from dataclasses import dataclass

from evalflows.specs.dataset import DatasetSpec, Expectation
from evalflows.store.ingest.suite import load_expectations
from evalflows.store.parquet import Store
from evalflows.store.records import derived_id, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """What to check, and in which store."""

    root: str
    snapshot: str
    own: list[Expectation]

    @classmethod
    def of(cls, store: Store, dataset: DatasetSpec) -> "CheckRequest":
        """Return the request for a frozen dataset. Raise InputError for a suite that cannot be read."""
        own = load_expectations(dataset.expectations)
        return cls(root=store.layout.root, snapshot=dataset.snapshot or "", own=own)

    @classmethod
    def from_json(cls, text: str) -> "CheckRequest":
        fields = json.loads(text)
        return cls(**fields | {"own": [Expectation.model_validate(expectation) for expectation in fields["own"]]})

    def to_json(self) -> str:
        return json.dumps({"root": self.root, "snapshot": self.snapshot, "own": self._suite})  # keeps the keys' order

    @property
    def batch(self) -> str:
        """The batch of the checks: the same for the same snapshot and expectations."""
        return derived_id("checks", self.snapshot, to_json(self._suite))

    @property
    def _suite(self) -> list[dict[str, object]]:
        return [expectation.model_dump() for expectation in self.own]
