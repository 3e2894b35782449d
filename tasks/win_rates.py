"""Results of a comparison: win rates against the baseline, judge biases, and ratings."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.pairwise.judge_biases import agreements, as_check
from evalflows.analysis.pairwise.preferences import preferences_in, slices
from evalflows.analysis.pairwise.win_rates import estimate_win_rates
from evalflows.execution.running_comparison import experiments_of
from evalflows.execution.votes import voted_examples
from evalflows.specs.comparison import ComparisonSpec
from evalflows.store.parquet import Store
from evalflows.store.queries.shared_examples import shared_examples
from evalflows.store.records import ComparisonSetRow, ExampleRow
from evalflows.store.row_specs import comparison_spec
from evalflows.tasks.progress import enter_stage


@task(cache_policy=NO_CACHE, persist_result=False)
def compute_win_rates(row: ComparisonSetRow) -> str:
    """Publish the verdicts, ratings and judge biases of a comparison, and return its id.

    The results are recomputed from the stored rows on every call.
    """
    enter_stage("computing win rates")
    store, spec = Store(), comparison_spec(row)
    names, examples = _systems(store, row, spec)
    parts = list(slices(examples, spec.slice_by))
    metrics = preferences_in(store, row, examples)
    results = estimate_win_rates(row.comparison_id, metrics, spec, parts, names)
    agreement = [as_check(row.comparison_id, *pair) for pair in agreements(metrics, spec.confidence_level)]
    store.publish("checks", row.comparison_id, [*agreement, *results.checks])
    store.publish("verdicts", row.comparison_id, results.verdicts)
    store.publish("ratings", row.comparison_id, results.ratings)
    return row.comparison_id


def _systems(store: Store, row: ComparisonSetRow, spec: ComparisonSpec) -> tuple[list[str], Sequence[ExampleRow]]:
    """The names of the compared systems, and the examples that they share."""
    if row.n_votes is not None:
        votes = store.read("comparisons", row.comparison_id) if spec.slice_by else []  # only slices need the prompts
        return spec.experiments, voted_examples(votes)
    experiments = experiments_of(store, spec.experiments)
    return [experiment.name for experiment in experiments], shared_examples(store, experiments).examples
