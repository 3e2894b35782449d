"""The specs that rows hold as JSON, parsed once and cached; specs are frozen, so sharing them is safe.

Each raises StorageError for one that cannot be read: another version stored it, or something else changed the row.
"""

from functools import lru_cache
from typing import TypeVar, cast

from pydantic import BaseModel, ValidationError

from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import StorageError, first_problem
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GatePolicy
from evalflows.store.records import ComparisonSetRow, DecisionRow, ExperimentRow

CACHE_SIZE = 64
"""Enough specs for a few run groups, and for the pairs of a backtest."""


Spec = TypeVar("Spec", bound=BaseModel)


def experiment_spec(row: ExperimentRow) -> ExperimentSpec:
    return _stored(ExperimentSpec, row.spec, row.experiment_id)


def comparison_spec(row: ComparisonSetRow) -> ComparisonSpec:
    return _stored(ComparisonSpec, row.spec, row.comparison_id)


def gate_spec(row: DecisionRow) -> GatePolicy:
    return _stored(GatePolicy, row.policy, row.decision_id)


def _stored(kind: type[Spec], text: str, owner: str) -> Spec:
    try:
        return cast("Spec", _parsed(kind, text))
    except ValidationError as error:
        raise StorageError(first_problem(error, f"{owner}: the stored spec cannot be read", kind)) from error


@lru_cache(CACHE_SIZE)
def _parsed(kind: type[BaseModel], text: str) -> BaseModel:
    return kind.model_validate_json(text)
