"""Estimates and verdicts: the mean of each metric, and each candidate's difference from the baseline."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.differences.estimates import estimate_rows, verdicts_on
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.store.parquet import Store
from evalflows.store.queries.metric_values import has_many_runs
from evalflows.store.records import ExperimentRow
from evalflows.store.row_specs import experiment_spec
from evalflows.store.source import shared
from evalflows.tasks.progress import enter_stage


@task(cache_policy=NO_CACHE, persist_result=False)
def compute_differences(rows: list[ExperimentRow]) -> str:
    """Publish the estimates of each experiment and the verdicts on each candidate, and return the run group.

    All experiments share their examples. The results are recomputed from the stored rows on every call.
    """
    enter_stage("computing differences")
    store, group = Store(), rows[0].run_group
    reader, spec = MetricReader(store, keeps_values=len(rows) > 1), experiment_spec(rows[0])
    with shared.little_memory(is_needed=any(map(has_many_runs, rows))):
        for row in rows:
            store.publish("estimates", row.experiment_id, list(estimate_rows(reader, row, spec)))
        store.publish("verdicts", group, list(verdicts_on(reader, rows, spec)))
    return group
