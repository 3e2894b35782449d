"""Judge validation against human labels: one check per judge, with all its figures."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.human_labels.checks import label_check, people_batch
from evalflows.store.parquet import Store
from evalflows.store.queries.human_labels import judged_and_labelled


@task(cache_policy=NO_CACHE, persist_result=False)
def validate_judge(experiment: str, metric: str, people_metric: str, confidence_level: float) -> str:
    """Publish a check for each judge of a metric, of an experiment or comparison, and return the batch of the checks.

    The checks are recomputed from the stored labels. Raise InputError for an unknown experiment or metric, and if there
    are no labels.
    """
    store = Store()
    labelled = judged_and_labelled(store, experiment, metric, people_metric)
    batch = people_batch(labelled.subject_id, metric, people_metric)
    versions = labelled.judgements.evaluator_version.unique()
    store.publish(
        "checks", batch, [label_check(batch, labelled, str(version), confidence_level) for version in versions]
    )
    return batch
