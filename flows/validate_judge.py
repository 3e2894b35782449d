"""Validate judges against human labels."""

from prefect import flow

from evalflows.tasks.score import validate_judge


@flow(name="compare_with_people", flow_run_name="{metric} against people", validate_parameters=False)
def compare_with_people(
    experiment: str, metric: str, people_metric: str | None = None, confidence_level: float = 0.95
) -> str:
    """Validate every judge of a metric against human labels: agreement, bias, and a bias-corrected mean.

    Return the id of the stored batch of checks.

    Args:
        experiment: Id or name of an experiment, a comparison or a trace evaluation.
        metric: The judge's metric.
        people_metric: Name of the human-label metric, if different.
        confidence_level: Confidence level of the intervals, between 0 and 1.
    """
    return validate_judge(experiment, metric, people_metric, confidence_level)
