"""The values of an experiment's metrics, run by run: what its repetitions can be split by."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from store.catalog import ask
from store.parquet import Store
from store.records import ExperimentRow
from store.values import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionValues:
    """One metric of one experiment. The arrays have one row an example, in the snapshot's order, and one column a
    repetition."""

    metric: str
    evaluator: str
    evaluator_version: str
    is_yes_no: bool
    values: Values  # NaN where there is none
    lost: npt.NDArray[np.bool_]  # failed, not attempted, or without a row
    weights: Values  # one an example: one over the share of such examples that was judged


def repetition_values(store: Store, experiment: ExperimentRow, metrics: Sequence[str]) -> list[RepetitionValues]:
    """Some metrics of an experiment, each by every version that gave it; none of a metric that is labels."""
    found = ask(store, (_ORDER, [experiment.snapshot_id]), (_RUNS, [experiment.experiment_id, [*metrics]]))
    places = {example: place for place, (example,) in enumerate(found[0])}
    by_version: dict[tuple[str, str, str], list[tuple[Any, ...]]] = {}
    for metric, evaluator, version, *run in found[1]:
        by_version.setdefault((metric, evaluator, version), []).append(tuple(run))
    made = [_values(experiment, names, runs, places) for names, runs in by_version.items()]
    return [one for one in made if not np.isnan(one.values).all()]


def _values(
    experiment: ExperimentRow, names: tuple[str, str, str], runs: list[tuple[Any, ...]], places: dict[str, int]
) -> RepetitionValues:
    shape = (len(places), experiment.repetitions)
    values, lost, weights = np.full(shape, np.nan), np.ones(shape, dtype=bool), np.ones(len(places))
    yes_no = True
    for example, repetition, value, status, data_type, rate in runs:
        at = (places[example], repetition)
        lost[at] = status in ("failed", "not_attempted")
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
        lost=lost,
        weights=weights,
    )


_ORDER = "select example_id from examples where snapshot_id = ? order by position"

_RUNS = """
select metric, evaluator, evaluator_version, example_id, repetition, value, status, data_type, sampling_rate
from scores where subject_kind = 'run' and turn is null and experiment_id = $1 and list_contains($2, metric)
union all
select metric, 'measured', 'measured', example_id, repetition, value, status, 'NUMERIC', null
from measures where experiment_id = $1 and list_contains($2, metric)
"""
