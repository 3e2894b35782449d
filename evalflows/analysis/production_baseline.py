"""A window of production as the baseline of a gate.

The items differ, so the difference is that of two independent means, and includes the difference in traffic.
"""

from collections.abc import Mapping
from datetime import UTC, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from evalflows.analysis.comparability import SHORT, Difference, JudgeModels
from evalflows.analysis.differences import timed_metrics
from evalflows.analysis.pairing import MetricSample
from evalflows.analysis.rule_estimates import interval
from evalflows.analysis.rules import Estimate, Facts, Interval
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import GateSpec, ProductionBaseline
from evalflows.stats.paired import UnpairedDifference, unpaired_difference
from evalflows.store.queries import windows
from evalflows.store.queries.values import MetricValues
from evalflows.store.records import Reason, now
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id

if TYPE_CHECKING:  # what decides evaluates nothing
    from evalflows.engine.prepare import PreparedExperiment


def with_fixed_window(gate: GateSpec) -> GateSpec:
    """Return a gate whose window of production, if any, has ends, so that a gate decided again reads the same."""
    if gate.production is None:
        return gate
    return gate.model_copy(update={"baseline": gate.production.fixed(now()).text})


def with_fixed_windows(spec: ExperimentSpec) -> ExperimentSpec:
    """Return a spec in whose gates windows of production have ends."""
    fixed = [with_fixed_window(gate) for gate in spec.gates]
    return spec if fixed == spec.gates else spec.model_copy(update={"gates": fixed})


def check_production(store: Store, prepared: "PreparedExperiment", gate: GateSpec, window: ProductionBaseline) -> None:
    """Raise InputError, before anything is paid, if a window cannot be the baseline of a gate."""
    spec, where = prepared.spec, f"gate {gate.name!r}: baseline {window.text!r}"
    if window.evaluation not in (known := windows.known_evaluations(store)):
        names = ", ".join(known) or "none yet (`evaluate-traces`)"
        raise InputError(f"{where}: no trace evaluation is called {window.evaluation!r}, wanted one of {names}")
    versions = {name: judge.version for name, judge in prepared.by_name.items()}
    for metric in gate.compared:
        if metric in (timed := timed_metrics(spec)):
            raise InputError(f"{where}: {metric} cannot be compared with production: {timed[metric]}")
        found = _in_window(store, spec, window, metric, versions)
        if isinstance(found, Reason):
            raise InputError(f"{where}: {found}")
        n = found.n_clusters if found.n_clusters < found.values.values.size else found.n_scored
        if n < gate.min_examples:
            noun = found.noun if n == found.n_scored else "sessions"
            raise InputError(f"{where}: {metric}: got {n} scored {noun}, wanted at least {gate.min_examples}")


def _in_window(
    store: Store, spec: ExperimentSpec, window: ProductionBaseline, metric: str, versions: Mapping[str, str]
) -> windows.ProductionScores | Reason:
    """Return the scores of a metric in a window by the evaluator that the candidate has, or why there are none.

    `versions` are those of the candidate's evaluators, by name.
    """
    identity = evaluation_id(window.evaluation)
    given = windows.versions_in(store, identity, window, metric)
    if not given:
        return Reason("no_such_metric", f"no item of the window has a score of {metric}")
    evaluator = next((name for name in given if name in versions), None)
    if evaluator is None:
        others = ", ".join(sorted(given))
        return Reason("not_comparable", f"{metric} was scored by {others} in production, which the candidate lacks")
    definitions = windows.composite_definitions(store, identity)  # a composite's version includes its evaluators'
    same = [version for version in given[evaluator] if definitions.get(version, version) == versions[evaluator]]
    if not same:
        then = given[evaluator][0]
        return _other_version(metric, evaluator, definitions.get(then, then), versions[evaluator])
    for part in sorted(
        {name for composite in spec.composites if composite.name == metric for name in composite.metrics}
    ):
        for name, seen in windows.versions_in(store, identity, window, part).items():
            if changed := {*seen} - {versions.get(name)}:  # a composite's score does not say which version it is of
                return _other_version(metric, name, min(changed), versions.get(name))
    scores = windows.production_scores(store, identity, window, metric, same[0])
    if scores is None:
        return Reason("no_data", f"no item of version {window.version} in the window has a score of {metric}")
    if not scores.n_scored:
        return Reason("not_numeric", f"{metric} has no numeric score in the window")
    return scores


def _other_version(metric: str, evaluator: str, then: str, wanted: str | None) -> Reason:
    now_has = "none" if wanted is None else wanted[:SHORT]
    text = f"{evaluator} has another version in production: {then[:SHORT]} there, {now_has} now"
    return Reason("not_comparable", f"{metric}: {text}; wanted the same, so that only the answers differ")


@dataclass(frozen=True, kw_only=True)
class ProductionComparison:
    """The metrics of a candidate against a window of production."""

    store: Store
    spec: ExperimentSpec
    window: ProductionBaseline
    values: Mapping[str, MetricValues]  # the candidate's
    judge_models: JudgeModels  # the candidate's

    @property
    def owners(self) -> list[str]:
        """The owners of the scores in the window."""
        assert self.window.since is not None and self.window.until is not None  # fixed before
        identity, first = evaluation_id(self.window.evaluation), self.window.since.astimezone(UTC).date()
        n_days = (self.window.until.astimezone(UTC).date() - first).days + 1
        return [identity, *(f"{identity}-{first + timedelta(days=number)}" for number in range(n_days))]

    @cached_property
    def note(self) -> Difference:
        """What limits every comparison with production."""
        text = (
            f"compared with {self.window.text}: not the same examples, so the difference includes the difference in "
            "traffic"
        )
        return Difference(what="examples", text=text)

    def estimate(self, metric: str, sample: MetricSample, min_examples: int) -> Estimate | Reason:
        """Return how much better the candidate is than production in a metric, or why that cannot be said."""
        if metric in (timed := timed_metrics(self.spec)):
            return timed[metric]
        versions = {values.evaluator: values.evaluator_version for values in self.values.values()}
        found = _in_window(self.store, self.spec, self.window, metric, versions)
        if isinstance(found, Reason):
            return found
        if why := self._other_judge(metric, found):
            return why
        theirs = MetricSample(values=found.values, clusters=found.clusters, scale=sample.scale)
        n, noun = _count(theirs, found.noun)
        if n < min_examples:
            return Reason("below_min_examples", f"{n} scored {noun} of production, wanted at least {min_examples}")
        return UnpairedEstimate(sample, theirs, found, self.spec.confidence_level)

    def _other_judge(self, metric: str, found: windows.ProductionScores) -> Reason | None:
        """Return why two sides that one evaluator scored are not comparable: its connection named another model."""
        for decider, models in found.judge_models.items():
            ours = self.judge_models.get((metric, decider))
            if ours is not None and ours != models:
                text = f"{metric} was judged by a different model: {models} in production, {ours} now"
                return Reason("not_comparable", text)
        return None


def _count(sample: MetricSample, noun: str) -> tuple[int, str]:
    """Return what is counted of a sample, and how many: scored items, or clusters if there are any."""
    estimate = sample.mean(0.95)
    is_clustered = estimate.n_clusters is not None and estimate.n_clusters < estimate.n
    return (estimate.n_clusters or 0, "sessions") if is_clustered else (estimate.n, noun)


@dataclass(frozen=True)
class UnpairedEstimate(Estimate):
    """The difference of two samples of different items."""

    candidate: MetricSample
    production: MetricSample
    found: windows.ProductionScores
    confidence_level: float

    @cached_property
    def facts(self) -> Facts:
        ours, difference = self.candidate.mean(self.confidence_level), self.at(self.confidence_level)
        ends = self._extremes(self.confidence_level)
        return Facts(
            value=difference.difference,
            worst_case_values=ends and interval(ends[0].difference, ends[1].difference),
            n=ours.n if ours.n_clusters is None else ours.n_clusters,
            noun="examples" if ours.n_clusters is None else "clusters",
            n_missing=int(self.candidate.values.missing.sum()) + self.found.values.n_missing,
            higher_is_better=self.candidate.scale.higher_is_better,
            reason=difference.reason,
            reason_code=difference.reason_code,
            against=f"{self.found.n_scored} {self.found.noun} of production, which are different items",
        )

    def at(self, confidence_level: float) -> UnpairedDifference:
        return unpaired_difference(self.candidate.mean(confidence_level), self.production.mean(confidence_level))

    def interval_at(self, confidence_level: float) -> Interval | None:
        difference = self.at(confidence_level)
        return interval(difference.low, difference.high)

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        ends = self._extremes(confidence_level)
        return ends and interval(ends[0].low, ends[1].high)

    def _extremes(self, confidence_level: float) -> tuple[UnpairedDifference, UnpairedDifference] | None:
        """Return the smallest and the largest difference over all possible missing values; None for an unbounded
        metric."""
        if not (self.candidate.values.missing.any() or self.production.values.missing.any()):
            return (both := self.at(confidence_level)), both
        if not self.candidate.scale.is_bounded:
            return None
        low, high = self.candidate.scale.bounds
        ours, theirs = (
            [side.worst_case_mean(end, confidence_level) for end in (low, high)]
            for side in (self.candidate, self.production)
        )
        return unpaired_difference(ours[0], theirs[1]), unpaired_difference(ours[1], theirs[0])
