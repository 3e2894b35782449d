"""The specs that rows hold as JSON, parsed once and cached; specs are frozen, so sharing them is safe."""

from functools import lru_cache

from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.store.records import ComparisonSetRow, DecisionRow, ExperimentRow

CACHE_SIZE = 64
"""Enough specs for a few run groups, and for the pairs of a backtest."""


def experiment_spec(row: ExperimentRow) -> ExperimentSpec:
    return _experiment_spec(row.spec)


def comparison_spec(row: ComparisonSetRow) -> ComparisonSpec:
    return _comparison_spec(row.spec)


def gate_spec(row: DecisionRow) -> GateSpec:
    return _gate_spec(row.policy)


_experiment_spec = lru_cache(CACHE_SIZE)(ExperimentSpec.model_validate_json)
_comparison_spec = lru_cache(CACHE_SIZE)(ComparisonSpec.model_validate_json)
_gate_spec = lru_cache(CACHE_SIZE)(GateSpec.model_validate_json)
