"""From an older judge to a newer one: the newer judges a sample of the older answers, and the rest is corrected by it.

A difference between scores of two judges would be that of the judges too. On the sampled examples the newer judge has
judged both sides, and the difference is known; everywhere, the candidate by the newer judge minus the baseline by the
older one is known, which predicts it. Prediction-powered inference makes one estimate of both.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specs.dataset import DatasetSpec
from specs.experiment import ExperimentSpec
from specs.gate import BridgeSpec, GateSpec
from specs.target import RecordedTarget
from stats import PairedDifference, PredictionPowered, prediction_powered_mean
from store.parquet import Store
from store.records import ExperimentRow, derived_id
from store.snapshots import load_snapshot
from store.values import MetricValues, Values
from tasks.baselines import baseline_row
from tasks.comparability import evaluators_of, of_versions, refused
from tasks.rules import Interval, Measured, turned
from tasks.sides import Clusters, Sides
from tasks.start import described_evaluators, experiment_id, run_group

BRIDGE = "bridge"
"""What the target is called that gives the older answers again."""

Chosen = npt.NDArray[np.bool_]


def bridges_of(store: Store, spec: ExperimentSpec) -> list[ExperimentSpec]:
    """What to run so that gates can compare with baselines that other evaluators judged, where they ask for it."""
    found = {}
    for gate in spec.gates:
        baseline = baseline_row(store, spec, gate, []) if spec.baseline_target(gate) is None else None
        if gate.bridge is not None and baseline is not None and metrics_to_bridge(spec, gate, baseline):
            one = bridge_spec(spec, gate.bridge, baseline)
            found[one.run_key] = one
    return list(found.values())


def metrics_to_bridge(spec: ExperimentSpec, gate: GateSpec, baseline: ExperimentRow) -> Mapping[str, str]:
    """The metrics that a gate compares and two versions of an evaluator gave, each with that said."""
    changed = refused(of_versions(described_evaluators(spec), evaluators_of(baseline), spec))
    return {metric: why for metric, why in changed.items() if metric in {*gate.guards, *gate.goals}}


def bridge_spec(spec: ExperimentSpec, bridge: BridgeSpec, baseline: ExperimentRow) -> ExperimentSpec:
    """The baseline's answers to a sample of its examples, given again, for the newer evaluators to judge."""
    evaluators = described_evaluators(spec)
    versions = sorted(one["version"] for one in evaluators.values())
    key = derived_id(BRIDGE, baseline.experiment_id, bridge.sample, bridge.seed, *versions)
    return spec.model_copy(
        update={
            "name": f"{spec.name}-{BRIDGE}",
            "description": f"Answers of {baseline.name}, judged anew to compare with them",
            "dataset": DatasetSpec(
                snapshot=baseline.snapshot_id, sample=min(bridge.sample, baseline.n_examples), seed=bridge.seed
            ),
            "targets": [RecordedTarget(kind="recorded", name=BRIDGE, experiment=baseline.experiment_id)],
            "baseline": None,
            "repetitions": 1,
            "gates": [],
            "compare": None,
            "summary_evaluators": [],
            "run_key": f"{BRIDGE}-{key}",
        }
    )


def bridge_row(store: Store, spec: ExperimentSpec, gate: GateSpec, baseline: ExperimentRow) -> ExperimentRow | None:
    """The experiment in which a baseline's answers were judged anew, if that was done."""
    if gate.bridge is None:
        return None
    rows = store.read("experiments", experiment_id(run_group(bridge_spec(spec, gate.bridge, baseline)), BRIDGE))
    return rows[0] if rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridged:
    """The sides of a metric, and what the newer judge says of some of the baseline's answers."""

    sides: Sides  # the baseline by the older judge
    anew: Values  # the baseline by the newer one, by the sides' places; NaN where it was not asked, or is missing
    asked: Chosen

    def measured(self) -> Measured:
        """How much better the candidate is by the newer judge."""
        found, higher = self._found(self.sides.level, None), self.sides.scale.higher_is_better

        def interval_at(level: float) -> Interval | None:
            one = self._found(level, None)
            return turned(one.low, one.high, higher_is_better=higher)

        def sure_at(level: float) -> Interval | None:
            if not self._lost:
                return interval_at(level)
            if not self.sides.scale.is_bounded:
                return None
            smallest, largest = (self._found(level, how) for how in ("smallest", "largest"))
            return turned(smallest.low, largest.high, higher_is_better=higher)

        ends = sure_at(self.sides.level)
        return Measured(
            value=None if found.mean is None else found.mean if higher else -found.mean,
            interval_at=interval_at,
            sure_at=sure_at,
            sure_value=ends,
            n=found.n_labels if self.sides.clusters is None else self._clusters_asked(),
            noun="pairs judged by the newer judge" if self.sides.clusters is None else "clusters judged by it",
            lost=self._lost,
            higher_is_better=higher,
            reason=found.reason,
        )

    def difference(self) -> PairedDifference:
        """The same as a verdict has it; without a p-value, as an interval is all that there is."""
        found = self._found(self.sides.level, None)
        return PairedDifference(
            candidate_mean=None,
            baseline_mean=None,
            difference=found.mean,
            low=found.low,
            high=found.high,
            p_value=None,
            level=found.level,
            method=f"bridged: {found.method}",
            n_pairs=found.n_labels,
            n_clusters=found.n_clusters,
            seed=None,
            reason=found.reason or "bridged from another judge: an interval, and no test",
        )

    def _clusters_asked(self) -> int:
        clusters = self.sides.clusters or []
        return len({clusters[place] or f"alone {place}" for place in np.flatnonzero(self.asked).tolist()})

    @property
    def _lost(self) -> int:
        """Examples of which something is missing: of the candidate, or of what the newer judge was asked."""
        return int((self.sides.candidate.missing | (self.asked & np.isnan(self.anew))).sum())

    def _found(self, level: float, how: str | None) -> PredictionPowered:
        """With what is missing left out, or had it made the difference the smallest, or the largest, that it can be."""
        low, high = self.sides.scale.bounds
        ours, anew = self.sides.candidate.values, self.anew
        if how is not None:
            best, worst = (low, high) if how == "smallest" else (high, low)
            ours = np.where(self.sides.candidate.missing, best, ours)
            anew = np.where(self.asked & np.isnan(anew), worst, anew)
        there, known = ~np.isnan(ours), ~np.isnan(ours) & self.asked & ~np.isnan(anew)
        older = self.sides.baseline.values
        predicted = ours - np.where(np.isnan(older), np.nanmean(older) if (~np.isnan(older)).any() else 0.0, older)
        rest = there & ~known
        return prediction_powered_mean(
            (ours - anew)[known],
            predicted[known],
            predicted[rest],
            _in_order(self.sides.clusters, known, rest),
            bounds=(low - high, high - low) if self.sides.scale.is_bounded else None,
            level=level,
        )


def bridged(store: Store, sides: Sides, names: list[str], anew: MetricValues, row: ExperimentRow) -> Bridged:
    """`names` are the examples of the sides, by their places; `anew` and `row` what the newer judge said, and where."""
    places = {example.example_id: place for place, example in enumerate(load_snapshot(store, row.snapshot_id))}
    values = np.array([anew.values[places[name]] if name in places else np.nan for name in names], dtype=np.float64)
    lost = np.array([name in places and bool(anew.missing[places[name]]) for name in names], dtype=bool)
    asked = lost | ~np.isnan(values)  # what it does not apply to was not asked
    return Bridged(sides=sides, anew=values, asked=asked)


def _in_order(clusters: Clusters, known: Chosen, rest: Chosen) -> list[str | None] | None:
    if clusters is None:
        return None
    return [clusters[place] for place in (*np.flatnonzero(known), *np.flatnonzero(rest))]
