"""Repeated trials of an example as metrics of their own: pass@k and pass^k."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from specs.metric import MetricSpec
from stats import pass_at_k, pass_hat_k
from store.parquet import Store
from store.records import ExperimentRow
from store.values import MetricValues, Trials, trials

KINDS = {"pass@": pass_at_k, "pass^": pass_hat_k}


def trial_values(
    store: Store, row: ExperimentRow, metric: MetricValues, declared: MetricSpec
) -> Iterator[MetricValues]:
    """For each k that is declared of a metric: `metric pass@k`, one of k repetitions passes, and `metric pass^k`, all
    of k do; one value an example, 0 to 1, NaN for one of fewer than k scored repetitions."""
    if not declared.pass_k:
        return
    higher = declared.is_higher_better(metric.metric)
    found = trials(store, row, metric, passes_from=declared.passes_from, higher_is_better=higher)
    for k in sorted({*declared.pass_k}):
        for kind in KINDS:
            yield _values(metric, found, kind, k)


def _values(metric: MetricValues, found: Trials, kind: str, k: int) -> MetricValues:
    enough = found.scored >= k
    values = np.full(len(found.scored), np.nan)
    values[enough] = KINDS[kind](found.passed[enough], found.scored[enough], k)
    return replace(
        metric,
        metric=f"{metric.metric} {kind}{k}",
        values=values,
        is_yes_no=True,
        is_binary=False,
        scored=int(enough.sum()),
        lost=int(metric.missing.sum()),
    )
