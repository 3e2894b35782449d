"""A judge against people: what it says beside their labels."""

from prefect import flow

from tasks.judge_people import weigh_against_people


@flow(name="compare_with_people", flow_run_name="{metric} against people", validate_parameters=False)
def compare_with_people(experiment: str, metric: str, people_metric: str | None = None, level: float = 0.95) -> str:
    """Hold every judge that gave a metric against people's labels: agreement, bias, and the mean once both are known.

    Returns the batch of the checks that it keeps.

    Args:
        experiment: The experiment, or the comparison, by id or name.
        metric: The judge's metric.
        people_metric: What people's labels are called, where that is another name.
        level: How often the intervals are to cover the truth, 0 to 1.
    """
    return weigh_against_people(experiment, metric, people_metric or metric, level)
