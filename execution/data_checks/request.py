"""What the process of the checks is asked: to check a snapshot, or an experiment's results; or to write pages."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from evalflows.execution.data_checks.result_expectations import of_outputs, of_runs, of_scores, of_summaries
from evalflows.specs.dataset import DatasetSpec, Expectation
from evalflows.store.ingest.suite import load_expectations
from evalflows.store.parquet import Store
from evalflows.store.records import ExperimentRow, derived_id, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """A snapshot to check, with the expectations of its spec, and in which store."""

    root: str
    snapshot: str
    own: list[Expectation]

    @classmethod
    def of(cls, store: Store, dataset: DatasetSpec) -> "CheckRequest":
        """Return the request for a frozen dataset. Raise InputError for a suite that cannot be read."""
        own = load_expectations(dataset.expectations)
        return cls(root=store.layout.root, snapshot=dataset.snapshot or "", own=own)

    def to_json(self) -> str:
        return json.dumps({"root": self.root, "snapshot": self.snapshot, "own": _plain(self.own)})  # keeps the order

    @property
    def batch(self) -> str:
        """The batch of the checks: the same for the same snapshot and expectations."""
        return derived_id("checks", self.snapshot, to_json(_plain(self.own)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRequest:
    """Finished experiments whose results to check, each with the batch of its checks, and in which store."""

    root: str
    batches: dict[str, str]

    def to_json(self) -> str:
        return json.dumps({"root": self.root, "batches": self.batches})


def batch_of_results(row: ExperimentRow) -> str:
    """Return the batch of the checks of an experiment's results: another once it was resumed, or if more is checked."""
    suite = to_json(_plain([*of_runs(row), *of_summaries(row), *of_outputs(row), *of_scores(row)]))
    return derived_id("results", row.experiment_id, str(row.ended_at), suite)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Batches of checks of which to make pages, each with its title, and in which store."""

    root: str
    titles: dict[str, str]

    def to_json(self) -> str:
        return json.dumps({"root": self.root, "titles": self.titles})


def from_json(text: str) -> CheckRequest | ResultRequest | PageRequest:
    """Return the request that one of them wrote."""
    fields = json.loads(text)
    if "titles" in fields:
        return PageRequest(**fields)
    if "batches" in fields:
        return ResultRequest(**fields)
    return CheckRequest(**fields | {"own": [Expectation.model_validate(expectation) for expectation in fields["own"]]})


def _plain(expectations: Sequence[Expectation]) -> list[dict[str, object]]:
    return [expectation.model_dump() for expectation in expectations]
