"""Repeated trials of an example as metrics of their own: pass@k and pass^k."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from evalflows.specs.metric import MetricSpec
from evalflows.specs.metric_names import PassKind, pass_k_name
from evalflows.stats import pass_at_k, pass_hat_k
from evalflows.stats.arrays import FloatArray
from evalflows.store.parquet import Store
from evalflows.store.queries.metric_values import MetricValues, Trials, trials
from evalflows.store.records import ExperimentRow

KINDS: dict[PassKind, Callable[..., FloatArray]] = {"pass@": pass_at_k, "pass^": pass_hat_k}


def trial_values(
    store: Store, row: ExperimentRow, metric: MetricValues, declared: MetricSpec
) -> Iterator[MetricValues]:
    """Yield `metric pass@k` (at least one of k repetitions passes) and `metric pass^k` (all k pass) for each k.

    One value per example, 0 to 1; NaN for fewer than k scored repetitions.
    """
    if not declared.pass_k:
        return
    higher = declared.is_higher_better(metric.metric)
    repeated = trials(store, row, metric, pass_threshold=declared.pass_threshold, higher_is_better=higher)
    for k in sorted({*declared.pass_k}):
        for kind in KINDS:
            yield _values(metric, repeated, kind, k)


def _values(metric: MetricValues, repeated: Trials, kind: PassKind, k: int) -> MetricValues:
    enough = repeated.scored >= k
    values = np.full(len(repeated.scored), np.nan)
    values[enough] = KINDS[kind](repeated.passed[enough], repeated.scored[enough], k)
    return replace(
        metric,
        metric=pass_k_name(metric.metric, kind, k),
        values=values,
        is_yes_no=True,
        is_binary=False,
        scored=int(enough.sum()),
        n_missing=int(metric.missing.sum()),
    )
