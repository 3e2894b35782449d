"""Robustness: would other weights make another system the winner? And which weights people's order asks for."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prefect import flow
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from pydantic import ValidationError

from specs.errors import InputError, first_problem
from specs.experiment import ExperimentSpec
from specs.metric import MetricSpec
from store.lookup import find_experiments
from store.parquet import Store
from store.robustness_report import RobustnessReport, robustness_report
from store.rows import read_rows
from tasks.calibrate import CalibratedWeights, calibrate
from tasks.robustness import CHANGE, composite_robustness

__all__ = ["CalibratedWeights", "RobustnessReport", "calibrate_weights", "check_robustness", "robustness"]


@flow(name="check_robustness", flow_run_name="robustness of {experiment}")
def check_robustness(
    experiment: str, composites: list[str] | None = None, change: float = CHANGE, over: list[str] | None = None
) -> str:
    """Look into how far the winner by each composite rests on its weights. Returns the run group.

    Args:
        experiment: A run group, or an experiment of it.
        composites: Which composites; all where left out.
        change: By how much each weight is changed in turn: 0.2 is 20 % lower and higher.
        over: The metrics of the Pareto front; those of the composites and those declared where left out.
    """
    return composite_robustness(experiment, composites or [], change, over or [])


def robustness(
    experiment: str, *, composites: Sequence[str] = (), change: float = CHANGE, over: Sequence[str] = ()
) -> RobustnessReport:
    """Look into how far the winner by each composite of a start rests on its weights, and say it in words.

    `experiment` is a run group, or an experiment of it: all systems of the start are put side by side. What is found is
    kept in `checks`. Raises InputError for what is not there.
    """
    with temporary_settings(set_defaults={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        group = check_robustness(experiment, list(composites), change, list(over))
    return robustness_report(Store(), group)


def calibrate_weights(
    cases: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    metrics: Sequence[str] = (),
    *,
    declared: Mapping[str, MetricSpec | Mapping[str, Any]] | None = None,
    experiment: str | None = None,
) -> CalibratedWeights:
    """The weights under which a composite orders 10 to 20 cases as people did.

    Args:
        cases: A file (.csv, .jsonl, .json, .parquet) or rows: a number for each metric, and `rank` (1 is the best) or
            `score` (higher is better) as people gave it.
        metrics: The parts; all columns of numbers where left out.
        declared: Range and direction of a metric, by its name; without, higher is better, from 0 to 1.
        experiment: One whose `metrics` declare them.

    Raises InputError, in one line, for what cannot be used.
    """
    try:
        known = {name: MetricSpec.model_validate(one) for name, one in (declared or {}).items()}
    except ValidationError as error:
        raise InputError(first_problem(error, "declared")) from error
    known = {**(_declared(experiment) if experiment else {}), **known}
    if isinstance(cases, str | os.PathLike):
        return calibrate(read_rows(cases), metrics, known, str(cases))
    return calibrate(enumerate(cases, start=1), metrics, known)


def _declared(experiment: str) -> Mapping[str, MetricSpec]:
    store = Store()
    (row, *_) = store.read("experiments", find_experiments(store, experiment)[0])
    return ExperimentSpec.model_validate_json(row.spec).metrics
