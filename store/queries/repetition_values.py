"""The values of an experiment's metrics per run, for splitting its repetitions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.metric_values import Values
from evalflows.store.records import ExperimentRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionValues:
    """One metric of one experiment. Arrays have shape (examples, repetitions), in the snapshot's order."""

    metric: str
    evaluator: str
    evaluator_version: str
    is_yes_no: bool
    values: Values  # NaN if there is none
    missing: npt.NDArray[np.bool_]  # failed, not attempted, or without a row
    weights: Values  # inverse sampling rates, shape (examples,)


def repetition_values(store: Store, experiment: ExperimentRow, metrics: Sequence[str]) -> list[RepetitionValues]:
    """Return metrics of an experiment, one entry per evaluator version; categorical metrics are omitted."""
    order, rows = ask(store, (_ORDER, [experiment.snapshot_id]), (_RUNS, [experiment.experiment_id, [*metrics]]))
    places = {example: place for place, (example,) in enumerate(order)}
    by_version: dict[tuple[str, str, str], list[tuple[Any, ...]]] = {}
    for metric, evaluator, version, *run in rows:
        by_version.setdefault((metric, evaluator, version), []).append(tuple(run))
    metrics_values = [_values(experiment, names, runs, places) for names, runs in by_version.items()]
    return [metric for metric in metrics_values if not np.isnan(metric.values).all()]


def _values(
    experiment: ExperimentRow, names: tuple[str, str, str], runs: list[tuple[Any, ...]], places: dict[str, int]
) -> RepetitionValues:
    shape = (len(places), experiment.repetitions)
    values, missing, weights = np.full(shape, np.nan), np.ones(shape, dtype=bool), np.ones(len(places))
    yes_no = True
    for example, repetition, value, status, data_type, rate in runs:
        at = (places[example], repetition)
        missing[at] = status in ("failed", "not_attempted")
        if status == "scored" and value is not None:
            values[at] = value
        weights[at[0]] = 1 / rate if rate is not None else 1.0
        yes_no = yes_no and data_type in (None, "BOOLEAN")
    return RepetitionValues(
        metric=names[0],
        evaluator=names[1],
        evaluator_version=names[2],
        is_yes_no=yes_no,
        values=values,
        missing=missing,
        weights=weights,
    )


_ORDER = "select example_id from examples where snapshot_id = ? order by position"

_RUNS = """
select metric, evaluator, evaluator_version, example_id, repetition, value, status, data_type, sampling_rate
from run_values where experiment_id = $1 and list_contains($2, metric)
"""
