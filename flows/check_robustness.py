"""Robustness of composites: would other weights make another system the winner?"""

from prefect import flow

from evalflows.specs.metrics import WEIGHT_CHANGE
from evalflows.tasks.score import composite_robustness


@flow(name="check_robustness", flow_run_name="robustness of {experiment}")
def check_robustness(
    experiment: str, composites: list[str] | None = None, change: float = WEIGHT_CHANGE, over: list[str] | None = None
) -> str:
    """Check whether other weights would change the winner by each composite. Return the run group.

    Args:
        experiment: A run group, or an experiment in it.
        composites: Names of the composites to check. Default: all.
        change: Relative change of each weight in turn: 0.2 tries each weight 20 % lower and 20 % higher.
        over: Metrics of the Pareto front. Default: the metrics of the composites and all declared metrics.
    """
    return composite_robustness(experiment, composites or [], change, over or [])
