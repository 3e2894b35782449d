"""Review the weights of a composite by what people, or users, said of the answers, such as each quarter."""

from prefect import flow

from evalflows.tasks.weights import weights_by_labels


@flow(name="review_weights", flow_run_name="weights of {experiment}")
def review_weights(experiment: str, labels: str, composite: str | None = None) -> str:
    """Compare a composite's declared weights with those that order answers as labels do. Return what was found.

    Args:
        experiment: An experiment, or a trace evaluation.
        labels: The metric of the labels, such as users' thumbs.
        composite: Name of the composite. Default: the only one.
    """
    return weights_by_labels(experiment, labels, composite)
