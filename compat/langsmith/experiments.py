"""Existing experiments as arguments: of `evaluate`, `evaluate_existing` and `evaluate_comparative`."""

from collections.abc import Mapping
from typing import Any

from evalflows.compat.langsmith.schemas import Identity
from evalflows.specs.errors import InputError, short
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.records import ExperimentRow

_TARGET_ONLY = {
    "data": None,
    "summary_evaluators": None,
    "num_repetitions": 1,
    "experiment_prefix": None,
    "description": None,
}
"""Arguments of `evaluate` that some kinds of existing experiments do not support as its target, with their defaults."""


def experiment_of(store: Store, experiment: Any, where: str = "evaluate_comparative: experiments") -> ExperimentRow:
    """Find an experiment by name, id, or an object with an id. Raises InputError if it does not exist."""
    reference = getattr(experiment, "experiment_id", None) or getattr(experiment, "id", None) or experiment
    if not isinstance(reference, Identity):
        wanted = "an experiment's name or id, or a result of evaluate"
        raise InputError(f"{where}: got {type(experiment).__name__}, wanted {wanted}")
    (identity,) = find_experiments(store, str(reference), just_one=True)
    row: ExperimentRow = store.read("experiments", identity)[0]
    return row


def refuse_target_only(arguments: Mapping[str, Any]) -> None:
    """Raise InputError for an argument of `evaluate` that has no meaning for existing experiments."""
    for name, value in arguments.items():
        wanted = _TARGET_ONLY[name]
        if value and value != wanted:
            raise InputError(f"evaluate: {name}: got {short(value)}, wanted {wanted}: an experiment has its own")
