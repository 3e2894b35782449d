"""Compute the win rates and ratings of a comparison, and whether it may stop early."""

from collections.abc import Sequence
from typing import NamedTuple

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.interim_win_rates import Look, look_at
from evalflows.analysis.judge_biases import agreements, as_check
from evalflows.analysis.judge_exclusions import of_comparison
from evalflows.analysis.preferences import Preferences, preferences_in, slices
from evalflows.analysis.win_rates import Slices, WinRateEstimates, estimate_win_rates
from evalflows.engine.pair_trials import pairs_of
from evalflows.engine.pairs import Context, compared_examples, experiments_of
from evalflows.engine.votes import voted_examples
from evalflows.store.queries.progress import judged_examples
from evalflows.store.records import EXCLUDED, ComparisonSetRow, ExampleRow
from evalflows.store.row_specs import comparison_spec
from evalflows.store.store import Store
from evalflows.tasks.progress import enter_stage


@task(cache_policy=NO_CACHE, persist_result=False)
def compute_win_rates(run: Context, row: ComparisonSetRow) -> str:
    """Publish the verdicts, ratings and judge biases of a comparison, and return its id.

    The results are recomputed from the stored rows on every call.
    """
    enter_stage(run, "computing win rates")
    store = run.store
    spec, systems = comparison_spec(row), _systems(store, row)
    results, metrics = _estimated(store, row, systems, list(slices(systems.examples, spec.slice_by)))
    agreement = [as_check(row.comparison_id, *pair) for pair in agreements(metrics, spec.confidence_level)]
    store.publish("checks", row.comparison_id, [*agreement, *results.checks])
    store.publish("verdicts", row.comparison_id, results.verdicts)
    store.publish("ratings", row.comparison_id, results.ratings)
    return row.comparison_id


@task(cache_policy=NO_CACHE, persist_result=False)
def why_comparison_stops(run: Context, row: ComparisonSetRow) -> str | None:
    """Return why a comparison in batches can stop early, once every win rate is decided; otherwise None."""
    systems = _systems(run.store, row)
    if (look := systems.look) is None or look.is_last:
        return None
    overall = [
        verdict for verdict in _estimated(run.store, row, systems, ())[0].verdicts if not verdict.length_controlled
    ]
    decided = [verdict.conclusion in ("better", "worse") for verdict in overall if verdict.reason_code not in EXCLUDED]
    if not decided or not all(decided):
        return None
    return f"stopped after {look.n_seen} of {row.n_shared} examples: every win rate was decided"


class _Systems(NamedTuple):
    """What a comparison compares."""

    names: Sequence[str]
    examples: Sequence[ExampleRow]  # shared by all, in the order of judging
    look: Look | None = None  # what can be looked at so far, if it is judged in batches


def _estimated(
    store: Store, row: ComparisonSetRow, systems: _Systems, by_slice: Slices
) -> tuple[WinRateEstimates, Sequence[Preferences]]:
    """Return the results of a comparison so far and its metrics; of one in batches on what can be looked at."""
    examples, look = systems.examples, systems.look
    if look is None:
        metrics = preferences_in(store, row, examples)
    else:
        seen = frozenset(look.places)
        metrics = [metric.of_examples(seen) for metric in preferences_in(store, row, examples[: look.n_seen])]
    excluded = of_comparison(store, row, {metric.metric: metric.evaluator for metric in metrics})
    spec = comparison_spec(row)
    return estimate_win_rates(row.comparison_id, metrics, spec, by_slice, systems.names, excluded, look), metrics


def _systems(store: Store, row: ComparisonSetRow) -> _Systems:
    spec = comparison_spec(row)
    if row.n_votes is not None:
        votes = store.read("judgements", row.comparison_id) if spec.slice_by else []  # only slices need the prompts
        return _Systems(spec.experiments, voted_examples(votes))
    experiments = experiments_of(store, spec.experiments)
    names, examples = [experiment.name for experiment in experiments], compared_examples(store, spec, experiments)
    if spec.batch is None:
        return _Systems(names, examples)
    n_pairs = len(pairs_of(spec)) * row.repetitions * len(spec.evaluators)
    return _Systems(names, examples, look_at(row, examples, judged_examples(store, row.comparison_id, n_pairs)))
