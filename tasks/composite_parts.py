"""The parts of composites as they were combined, and the means of metrics, of the experiments of one start."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluators.composite import Part, combined
from specs.errors import InputError
from specs.experiment import ExperimentSpec
from specs.metric import CompositeSpec, MetricSpec
from stats.arrays import FloatArray
from stats.pareto import means_of_examples
from stats.run_parts import RunParts, run_parts
from store.parquet import Store
from store.records import ExperimentRow, ScoreRow, from_json
from store.values import MetricValues, clusters_of, metric_values

OfExample = dict[str, list[ScoreRow]]
"""The scores of an example's repetitions, by the example's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeRuns:
    """What a composite was made of in every system."""

    composite: CompositeSpec
    systems: tuple[str, ...]
    runs: RunParts | None  # None with a reason
    n_examples: int  # those that have the composite in every system
    n_left_out: int  # those that have it in some only
    n_closed: tuple[int, ...]  # of each system, runs whose gate is closed
    reason: str | None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The parts, in the order of the columns."""
        return tuple(self.composite.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """Metrics by which systems are put side by side, each in its own unit."""

    metrics: tuple[str, ...]
    higher_is_better: tuple[bool, ...]
    means: FloatArray  # shape (systems, metrics)
    resampled: FloatArray | None  # the same of examples drawn anew, with the resamples first


def composite_runs(store: Store, rows: Sequence[ExperimentRow], composite: CompositeSpec) -> CompositeRuns:
    """The parts of each run, scaled as they were combined, of the examples whose composite every system has.

    They are read off the composites' own rows: a part that is missing and counts as the worst is 0 there, one that is
    left out is none, and where a comment says which gate is closed, the run is 0 whatever the weights.
    """
    found = [_of_examples(store.read("scores", row.experiment_id), composite.name) for row in rows]
    shared = sorted(set.intersection(*(set(one) for one in found)))
    reason = _no_weights(composite) or (None if shared else f"no example has {composite.name} in every system")
    return CompositeRuns(
        composite=composite,
        systems=tuple(row.target for row in rows),
        runs=None if reason else _run_parts(found, shared, _clusters(store, rows[0].snapshot_id), composite),
        n_examples=len(shared),
        n_left_out=len(set.union(*(set(one) for one in found))) - len(shared),
        n_closed=tuple(sum(_is_closed(score) for example in shared for score in one[example]) for one in found),
        reason=reason,
    )


def criteria(store: Store, rows: Sequence[ExperimentRow], spec: ExperimentSpec, names: Sequence[str]) -> Criteria:
    """The means of metrics, of examples that are known of all systems; those that some system lacks are left out.

    `names` are the metrics; where there are none, those that composites weigh, and those that `metrics` declares.
    Raises InputError for a name that is no metric of these experiments.
    """
    of_system = [{one.metric: one for one in metric_values(store, row)} for row in rows]
    wanted = list(names) or [*dict.fromkeys([*(m for c in spec.composites for m in c.weights), *spec.metrics])]
    known = {name for name in of_system[0] if _is_known([of_one.get(name) for of_one in of_system])}
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"over: got {unknown[0]!r}, wanted some of {', '.join(sorted(known))}")
    chosen = [name for name in wanted if name in known]
    if not chosen:
        empty = np.zeros((len(rows), 0))
        return Criteria(metrics=(), higher_is_better=(), means=empty, resampled=None)
    means, resampled = means_of_examples(
        [[of_one[name].values for name in chosen] for of_one in of_system],
        weights=[of_system[0][name].weights for name in chosen],
        clusters=clusters_of(store, rows[0].snapshot_id),
    )
    higher = tuple(spec.metrics.get(name, MetricSpec()).is_higher_better(name) for name in chosen)
    return Criteria(metrics=tuple(chosen), higher_is_better=higher, means=means, resampled=resampled)


def scaled_parts(values: dict[str, float], declared: dict[str, MetricSpec], where: str) -> list[float]:
    """Values of metrics as parts from 0 to 1, as a composite has them. Raises InputError for one outside its range."""
    spec = CompositeSpec(name="parts", weights=dict.fromkeys(values, 1.0))
    parts = {metric: Part(value=value, status="scored") for metric, value in values.items()}
    found = combined(spec, parts, {metric: declared.get(metric, MetricSpec()) for metric in values})
    if found.status != "scored":
        raise InputError(f"{where}: {found.error}")
    return [float(part or 0.0) for part in (found.parts[metric] for metric in values)]


def _no_weights(composite: CompositeSpec) -> str | None:
    if composite.function is not None:
        return f"{composite.function} makes it, which has no weights to change"
    return None


def _of_examples(scores: Sequence[ScoreRow], name: str) -> OfExample:
    found: defaultdict[str, list[ScoreRow]] = defaultdict(list)
    for score in scores:
        mine = score.metric == name and score.evaluator == name and score.turn is None
        if mine and score.status == "scored" and score.example_id is not None:
            found[score.example_id].append(score)
    return dict(found)


def _clusters(store: Store, snapshot_id: str) -> dict[str, str]:
    """What each example was sampled with; an example by itself is a cluster of its own."""
    found = store.query("select example_id, cluster from source.examples where snapshot_id = ?", [snapshot_id])
    return {example: f"cluster {cluster}" if cluster else f"example {example}" for example, cluster in found}


def _run_parts(
    found: Sequence[OfExample], shared: Sequence[str], clusters: dict[str, str], composite: CompositeSpec
) -> RunParts:
    """An example counts alike whatever the number of its repetitions, and more where few like it were drawn."""
    runs = [
        (system, score, 1 / ((score.sampling_rate or 1.0) * len(of_one[example])), clusters.get(example, example))
        for system, of_one in enumerate(found)
        for example in shared
        for score in of_one[example]
    ]
    return run_parts(
        [_parts(score, tuple(composite.weights)) for _, score, _, _ in runs],
        [system for system, _, _, _ in runs],
        counts=[count for _, _, count, _ in runs],
        clusters=[cluster for _, _, _, cluster in runs],
        how=composite.how,
    )


def _parts(score: ScoreRow, metrics: Sequence[str]) -> list[float]:
    if _is_closed(score):
        return [0.0] * len(metrics)
    known = from_json(score.metadata)["parts"]
    return [np.nan if known.get(metric) is None else known[metric] for metric in metrics]


def _is_closed(score: ScoreRow) -> bool:
    """Whether a gate is closed: the comment of a composite says which, and nothing else."""
    return (score.comment or "").startswith("gate: ")


def _is_known(of_systems: Sequence[MetricValues | None]) -> bool:
    """Whether some example is known of all systems."""
    values = [np.isnan(one.values) for one in of_systems if one is not None]
    return len(values) == len(of_systems) and not np.logical_or.reduce(values).all()
