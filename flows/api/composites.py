"""Check how robust the ranking of a composite is to its weights."""

from collections.abc import Sequence

from evalflows.flows.api.flow_settings import flow_settings
from evalflows.flows.check_robustness import check_robustness
from evalflows.reports.robustness import RobustnessReport, robustness_report
from evalflows.store.parquet import Store
from evalflows.tasks.robustness import CHANGE


def robustness(
    experiment: str, *, composites: Sequence[str] = (), change: float = CHANGE, over: Sequence[str] = ()
) -> RobustnessReport:
    """Check whether other weights would change the winner by each composite, and store the result in `checks`.

    Args:
        experiment: A run group, or an experiment in it; all systems of the run group are compared.
        composites: Names of the composites to check. Default: all.
        change: Relative change of each weight in turn, down and up.
        over: Metrics of the Pareto front. Default: the metrics of the composites and all declared metrics.

    Raise InputError if the experiment, a composite or a metric does not exist.
    """
    with flow_settings():
        group = check_robustness(experiment, list(composites), change, list(over))
    return robustness_report(Store(), group)
