"""The combined parts of composites, and the means of metrics, in one run group."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metric import CompositeSpec, MetricSpec
from evalflows.stats.arrays import FloatArray
from evalflows.stats.weights.pareto import means_of_examples
from evalflows.stats.weights.run_parts import RunParts, run_parts
from evalflows.store.parquet import Store
from evalflows.store.queries.metric_values import MetricValues, clusters_of, metric_values
from evalflows.store.records import ExperimentRow, ScoreRow, from_json

ScoresByExample = dict[str, list[ScoreRow]]
"""The scores of an example's repetitions, by the example's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeRuns:
    """The parts of a composite in every system."""

    composite: CompositeSpec
    systems: tuple[str, ...]
    runs: RunParts | None  # None if there is a reason
    n_examples: int  # examples with the composite in every system
    n_left_out: int  # examples with it in only some systems
    n_unmet: tuple[int, ...]  # runs with an unmet requirement, by system
    reason: str | None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The parts, in the order of the columns."""
        return tuple(self.composite.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """The metrics that systems are compared by, each in its own unit."""

    metrics: tuple[str, ...]
    higher_is_better: tuple[bool, ...]
    means: FloatArray  # shape (systems, metrics)
    resampled: FloatArray | None  # of resampled examples, shape (resamples, systems, metrics)


def composite_runs(store: Store, rows: Sequence[ExperimentRow], composite: CompositeSpec) -> CompositeRuns:
    """The scaled parts of each run, over the examples whose composite every system has.

    They come from the composites' score rows: missing parts that count as the worst are 0, omitted parts are NaN, and
    all parts are 0 if a requirement is not met, whatever the weights.
    """
    by_system = [_scores_by_example(store.read("scores", row.experiment_id), composite.name) for row in rows]
    shared = sorted(set.intersection(*(set(by_example) for by_example in by_system)))
    reason = _why_no_weights(composite) or (None if shared else f"no example has {composite.name} in every system")
    return CompositeRuns(
        composite=composite,
        systems=tuple(row.target for row in rows),
        runs=None if reason else _run_parts(by_system, shared, composite),
        n_examples=len(shared),
        n_left_out=len(set.union(*(set(by_example) for by_example in by_system))) - len(shared),
        n_unmet=tuple(_n_unmet(by_example, shared) for by_example in by_system),
        reason=reason,
    )


def criteria(store: Store, rows: Sequence[ExperimentRow], spec: ExperimentSpec, names: Sequence[str]) -> Criteria:
    """The means of metrics over the examples that all systems have.

    `names` are the metrics; if empty, those of composites and those declared under `metrics`. Metrics without a common
    example are left out. Raises InputError for a name that is not a metric of these experiments.
    """
    of_system = [{values.metric: values for values in metric_values(store, row)} for row in rows]
    wanted = list(names) or [*dict.fromkeys([*(m for c in spec.composites for m in c.weights), *spec.metrics])]
    known = {name for name in of_system[0] if _is_common([metrics.get(name) for metrics in of_system])}
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"over: got {unknown[0]!r}, wanted some of {', '.join(sorted(known))}")
    chosen = [name for name in wanted if name in known]
    if not chosen:
        empty = np.zeros((len(rows), 0))
        return Criteria(metrics=(), higher_is_better=(), means=empty, resampled=None)
    means, resampled = means_of_examples(
        [[metrics[name].values for name in chosen] for metrics in of_system],
        weights=[of_system[0][name].weights for name in chosen],
        clusters=clusters_of(store, rows[0].snapshot_id),
    )
    higher = tuple(spec.metrics.get(name, MetricSpec()).is_higher_better(name) for name in chosen)
    return Criteria(metrics=tuple(chosen), higher_is_better=higher, means=means, resampled=resampled)


def _why_no_weights(composite: CompositeSpec) -> str | None:
    if composite.function is not None:
        return f"{composite.function} computes it, without weights"
    return None


def _scores_by_example(scores: Sequence[ScoreRow], name: str) -> ScoresByExample:
    by_example: defaultdict[str, list[ScoreRow]] = defaultdict(list)
    for score in scores:
        is_of_composite = score.metric == name and score.evaluator == name and score.turn is None
        if is_of_composite and score.status == "scored" and score.example_id is not None:
            by_example[score.example_id].append(score)
    return dict(by_example)


def _run_parts(by_system: Sequence[ScoresByExample], shared: Sequence[str], composite: CompositeSpec) -> RunParts:
    """Weight runs so that each example counts once, and by its inverse sampling probability."""
    runs = [
        (system, score, 1 / ((score.sampling_rate or 1.0) * len(by_example[example])))
        for system, by_example in enumerate(by_system)
        for example in shared
        for score in by_example[example]
    ]
    return run_parts(
        [_parts(score, tuple(composite.weights)) for _, score, _ in runs],
        [system for system, _, _ in runs],
        counts=[count for _, _, count in runs],
        aggregation=composite.aggregation,
    )


def _parts(score: ScoreRow, metrics: Sequence[str]) -> list[float]:
    if _has_unmet_requirement(score):
        return [0.0] * len(metrics)
    known = from_json(score.metadata)["parts"]
    return [np.nan if known.get(metric) is None else known[metric] for metric in metrics]


def _n_unmet(by_example: ScoresByExample, shared: Sequence[str]) -> int:
    return sum(_has_unmet_requirement(score) for example in shared for score in by_example[example])


def _has_unmet_requirement(score: ScoreRow) -> bool:
    return from_json(score.metadata)["unmet_requirement"] is not None


def _is_common(of_systems: Sequence[MetricValues | None]) -> bool:
    """Whether all systems have the metric on some common example."""
    is_missing = [np.isnan(metric.values) for metric in of_systems if metric is not None]
    return len(is_missing) == len(of_systems) and not np.logical_or.reduce(is_missing).all()
