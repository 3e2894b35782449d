"""Results of a comparison: win rates against the baseline, judge biases, and ratings."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.pairwise.judge_biases import agreements, as_check
from evalflows.analysis.pairwise.preferences import preferences_in, slices
from evalflows.analysis.pairwise.win_rates import estimate_win_rates
from evalflows.execution.running_comparison import experiments_of
from evalflows.store.parquet import Store
from evalflows.store.queries.shared_examples import shared_examples
from evalflows.store.records import ComparisonSetRow
from evalflows.store.row_specs import comparison_spec
from evalflows.tasks.progress import enter_stage


@task(cache_policy=NO_CACHE, persist_result=False)
def compute_win_rates(row: ComparisonSetRow) -> str:
    """Publish the verdicts, ratings and judge biases of a comparison, and return its id.

    The results are recomputed from the stored rows on every call.
    """
    enter_stage("computing win rates")
    store, spec = Store(), comparison_spec(row)
    experiments = experiments_of(store, spec.experiments)
    shared = shared_examples(store, experiments)
    parts = list(slices(shared.examples, spec.slice_by))
    metrics = preferences_in(store, row, shared.examples)
    names = [experiment.name for experiment in experiments]
    results = [estimate_win_rates(row.comparison_id, metric, spec, parts, names) for metric in metrics]
    agreement = [as_check(row.comparison_id, *pair) for pair in agreements(metrics, spec.confidence_level)]
    store.publish("checks", row.comparison_id, [*agreement, *(check for result in results for check in result.checks)])
    store.publish("verdicts", row.comparison_id, [verdict for result in results for verdict in result.verdicts])
    store.publish("ratings", row.comparison_id, [rating for result in results for rating in result.ratings])
    return row.comparison_id
