"""Plan a run: its cost, the variance of its metrics from past experiments or by a cautious guess, and the sample sizes
for the target effects. Nothing is run or stored. The model calls that targets and judges will make (how many, how large
and at what price) are recorded in a dry run that makes none of them."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from inspect import isawaitable, signature
from itertools import combinations, groupby, islice
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from evalflows.analysis.bundle_checks import earlier_check
from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.experiment_metrics import PairedExperimentMetric
from evalflows.analysis.figures import figure, given_figure, shares_text
from evalflows.analysis.flaky import Repeats, check_quarantine, noise_by_metric
from evalflows.analysis.judge_drift import once_judged
from evalflows.analysis.judge_exclusions import excluded_metrics
from evalflows.analysis.pairing import Clusters, Places
from evalflows.analysis.trace_datasets import loaded_dataset
from evalflows.analysis.verdicts import ADJUSTMENT_NAMES
from evalflows.data_checks.suites import load_expectations
from evalflows.engine.anchors import AT_LEAST, n_due, read_anchors
from evalflows.engine.contents import Described
from evalflows.engine.controls import control_pairs
from evalflows.engine.dialogue import script_of
from evalflows.engine.parameter_trials import parameter_sets
from evalflows.engine.preflight import check_spec, reference_as_answer
from evalflows.engine.prepare import PreparedExperiment, prepare
from evalflows.engine.resampling import is_resampled
from evalflows.engine.running import draw, mode_of
from evalflows.engine.spec_evaluators import PreparedEvaluator, evaluator_version, is_ours
from evalflows.engine.spec_targets import target_version
from evalflows.engine.views import example_view, target_arguments
from evalflows.evaluators.binding import Bound
from evalflows.evaluators.bundle import Task, joined
from evalflows.llm.budget import Budget
from evalflows.llm.calls import Caller, Completer, Embedder, Endpoint, Kind, Read
from evalflows.llm.connections import address, known, resolve
from evalflows.llm.ledger import Ledger
from evalflows.llm.limiter import Limiter
from evalflows.llm.local import LOCAL_MODEL, identity_of
from evalflows.llm.prefixes import beginning_of
from evalflows.llm.prices import LONG_ANSWER, Price, Tokens, price_in_batches, price_of, tokens_of_request
from evalflows.specs.attachments import without_contents
from evalflows.specs.comparison import CompareSpec
from evalflows.specs.connections import ConnectionSpec, LocalConnection, Mode, RemoteConnection
from evalflows.specs.dialogue import MOST_TRIALS, MOST_TURNS, ScriptedUser, SimulatedUser, UserCheck
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec, JudgeSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import (
    MEASURES,
    USER,
    USER_CHECK,
    PassKind,
    SlicedMetric,
    base_metric,
    is_pass_k,
    metric_of,
    sliced_metric,
)
from evalflows.specs.protocols import Completion, Message
from evalflows.specs.target import ChatTarget, ConversationTarget, HttpTarget, PythonTarget, TargetSpec, asked
from evalflows.stats.paired import paired_difference
from evalflows.stats.power import (
    MOST_UNSEEN,
    Components,
    cautious_sd,
    difference_components,
    needed_examples,
    needed_for_margin,
    needed_in_range,
    plan_sizes,
    smallest_detectable,
    unseen_variance,
)
from evalflows.store.final_examples import final_inputs, refuse_final
from evalflows.store.ingest import LoadedDataset
from evalflows.store.queries.lookup import find_experiments, newest_on
from evalflows.store.queries.past_calls import (
    CallsEach,
    MeasuredBefore,
    PastCalls,
    asked_by_judge,
    asked_by_pairwise,
    asked_by_target,
    asked_in_conversations,
    calls_of_judge,
    calls_of_target,
    calls_to_model,
    in_ledger,
    measured_before,
    run_values,
)
from evalflows.store.queries.repeated_values import repeated_values
from evalflows.store.queries.shared_examples import places_of, slice_value, slice_values
from evalflows.store.records import FINAL, CallRow, ExampleRow, ExperimentRow, now, to_json
from evalflows.store.store import Store
from evalflows.targets import chat_with_attachments

if TYPE_CHECKING:
    from evalflows.llm.client import Client

MIN_PAIRS = 20
"""A run group with fewer pairs is used only if no older one has enough. The standard error of the variance of 20
normal differences is a third of that variance."""

MAX_RUN_GROUPS = 20
"""The most run groups that are examined."""

RELIABLE_UNITS = 50
"""With this many units, a planned sample size is within about 40 % of the right one, at 95 % confidence."""

Unit = Literal["example", "cluster"]
Source = Literal["two_sides", "one_side", "guess"]
RunValues = npt.NDArray[np.float64]

_REJECTED = """select candidate_experiment_id from source.decisions
               group by 1 having arg_max(conclusion, recorded_at) = 'FAIL'"""

_DECIDED = "select distinct candidate_experiment_id, baseline_experiment_id from source.decisions"

REPETITIONS = (1, 2, 3, 5)
"""The numbers of repetitions that are compared."""

Purpose = Literal["difference", "non_inferiority", "superiority"]


YES_NO = {"bool", "bool | None", "typing.Optional[bool]"}

SIGNIFICANT_DIGITS = 3
"""Significant digits of an approximate number of examples."""

MAX_LEDGER_LOOKUPS = 20_000
"""The most runs of a chat target whose requests are all looked up in the ledger, at 0.1 ms each."""

MAX_DRY_RUNS = 200
"""The most requests that are built to estimate their size."""

CallKind = Literal["target", "judge", "controls", "bundle", "anchors", "summary", "pairwise"]

Evaluator = PreparedEvaluator[FallbackSpec]

ANSWERS_PER_CONTROL = 3
"""Each control has a right answer, a wrong one, and a wrong one that asks to be accepted."""

OPEN = "at most: only what earlier tiers leave open"


class RequestRecordedError(Exception):
    """Raised instead of making a model call; the text is the call's key."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A model request that was recorded instead of sent."""

    key: str
    tokens_in: int  # an upper estimate, as in budgets
    tokens_out: int
    beginning: str | None = None  # a hash of it, if it is as long as a provider's cache keeps


class _NoLedger(Ledger):
    """A ledger whose lookup ends every call."""

    def __init__(self) -> None:
        self.in_flight = {}

    async def find(self, key: str) -> CallRow | None:
        raise RequestRecordedError(key)


class RequestRecorder(Caller):
    """A caller that records requests instead of making them."""

    def __init__(self, name: str, connection: ConnectionSpec) -> None:
        endpoint = Endpoint(
            name=name,
            connection=connection,
            identity=identity(connection),
            client=cast("Client", None),  # neither is used: the ledger ends the call first
            limiter=cast("Limiter", None),
        )
        super().__init__(endpoint, _NoLedger(), Budget())
        self.requests: list[RecordedRequest] = []

    async def call(self, kind: Kind, request: Mapping[str, Any], read: Read, repeat: int = 0) -> tuple[CallRow, bool]:
        try:
            return await super().call(kind, request, read, repeat)
        except RequestRecordedError as recorded:
            self.requests.append(RecordedRequest(str(recorded), *_tokens(kind, request), beginning_of(request)))
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSize:
    """The average tokens and cost of a call."""

    tokens_in: float | None
    tokens_out: float | None
    usd: float | None  # as the spec makes its calls; None if the tokens or the price are unknown
    usd_direct: float | None = None  # with nothing from a cache
    usd_prefixed: float | None = None  # directly, with beginnings from the provider's cache
    usd_batch: float | None = None  # in a batch; None also if the connection has no batches
    mode: Mode = "direct"
    basis: str  # the source of the averages, in words
    price_note: str = ""  # where the price is from, if neither the address nor a connection tells


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCalls:
    """The calls of one target, or of one judge for one purpose."""

    caller: str
    kind: CallKind
    connection: str | None = None
    model: str | None = None
    per_run: float | None  # calls per example and repetition, over all targets; None if unknown
    fixed: int = 0  # calls that do not depend on the number of examples
    calls: int | None  # for the spec as it is; None if unknown
    at_most: bool = False  # whether `calls` is a maximum: equal requests are paid once, some answers are not judged
    in_ledger: int | None = None  # calls that the ledger has already; None if not looked up
    size: CallSize
    note: str | None = None
    uncounted: str | None = None  # calls that come on top, in words; without them `calls` is no maximum

    def calls_at(self, examples: int, repetitions: int) -> int | None:
        return None if self.per_run is None else self.fixed + ceil(round(self.per_run * examples * repetitions, 6))

    def usd_at(self, examples: int, repetitions: int) -> float | None:
        return self._usd(self.calls_at(examples, repetitions))

    @property
    def usd(self) -> float | None:
        """The cost of the calls that are not in the ledger."""
        return self._usd(None if self.calls is None else self.calls - (self.in_ledger or 0))

    def _usd(self, calls: int | None) -> float | None:
        return _times_usd(calls, self.size.usd)

    @property
    def ways(self) -> dict[str, float | None]:
        """What the calls cost in USD in other ways; None where that is not known or cannot be.

        Each directly; those that the ledger lacks directly, with beginnings from the provider's cache, and in batches.
        """
        size, calls = self.size, self.calls
        paid = None if calls is None else calls - (self.in_ledger or 0)
        return {
            "direct": _times_usd(calls, size.usd_direct),
            "ledger": _times_usd(paid, size.usd_direct),
            "prefixes": _times_usd(paid, size.usd_prefixed),
            "batch": _times_usd(paid, size.usd_batch),
        }


def _times_usd(calls: int | None, usd: float | None) -> float | None:
    if calls == 0:
        return 0.0
    return None if calls is None or usd is None else calls * usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The total of all known calls."""

    calls: int
    at_most: bool
    in_ledger: int
    usd: float | None  # None if a price or a number of calls is unknown
    usd_known: float  # the cost of the calls with a known price
    unknown: tuple[str, ...]  # the callers whose number of calls is unknown
    unpriced: tuple[str, ...]  # the callers whose price or tokens are unknown
    uncounted: tuple[str, ...] = ()  # calls that come on top, in words


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The inputs of a plan of calls."""

    store: Store
    prepared: PreparedExperiment
    examples: Sequence[ExampleRow]

    @property
    def spec(self) -> ExperimentSpec:
        return self.prepared.spec

    @property
    def runs(self) -> int:
        """The runs of one target."""
        return len(self.examples) * self.spec.repetitions

    def connection(self, name: str) -> ConnectionSpec:
        return resolve(name, self.spec.connections)


CACHED_TOKENS = 1024
"""Tokens of a beginning that a cache keeps at least."""

_STAGES = {"target": "answers", "judge": "judgements", "anchors": "judgements", "pairwise": "pairs"}
"""What a run waits for in turn, by the kind of calls."""

_UNKNOWN_SIZE = CallSize(tokens_in=None, tokens_out=None, usd=None, basis="unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    """A judge that calls a model, and the number and size of its calls."""

    name: str  # as in its scores
    connection: str
    model: str
    calls_per_judgement: float
    size: CallSize
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceEstimate:
    """The variance of a paired difference across examples, or clusters, in squared units of the metric."""

    source: Source
    basis: str  # the experiments or assumption behind it, in words
    unit: Unit = "example"
    variance: float  # with the repetitions of those experiments
    between: float | None = None  # between examples; None if it cannot be separated from the noise of repetitions
    within: float | None = None  # added by one repetition of both sides
    repetitions: int | None = None  # of the experiments behind it
    n_pairs: int | None = None
    n_clusters: int | None = None
    design_effect: float | None = None  # by which clusters multiply the variance of a mean
    is_yes_no: bool

    @property
    def is_split(self) -> bool:
        return self.between is not None and self.within is not None

    def variance_at(self, repetitions: int) -> float:
        if self.between is None or self.within is None:
            return self.variance
        return self.between + self.within / repetitions

    @property
    def parts(self) -> Components | float:
        """The argument of `plan_sizes`."""
        if not self.is_split:
            return math.sqrt(self.variance)
        return Components(
            between=self.between,
            within=self.within,
            observed=self.variance,
            n=self.n_pairs or 0,
            method="anova",
            reason=None,
        )

    @property
    def n_units(self) -> int | None:
        return self.n_clusters if self.unit == "cluster" else self.n_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """What a search for similar past experiments needs to know about the planned one."""

    store: Store
    prepared: PreparedExperiment
    dataset_name: str | None
    snapshot_id: str  # "" if it is not frozen yet
    is_clustered: bool
    sliced: SlicedMetric | None = None  # a slice, of whose examples the variance is wanted

    def places(self, row: ExperimentRow) -> Places:
        """Return the positions of the examples of an experiment that count."""
        if self.sliced is None or self.sliced.path is None:
            return np.arange(row.n_examples, dtype=np.intp)
        return places_of(slice_values(self.store, row.snapshot_id, self.sliced.path), self.sliced)

    @property
    def examples(self) -> str:
        return "examples" if self.sliced is None or self.sliced.path is None else "examples of the slice"

    def version(self, name: str) -> str | None:
        """Return the version of an evaluator or a composite; None if unknown."""
        described = self.prepared.by_name.get(name)
        return None if described is None else described.version


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricProperties:
    """What is known about a metric before it is measured."""

    name: str
    evaluator: str  # the one that gives it, or the composite's own name
    is_yes_no: bool
    bounds: tuple[float, float] | None


def estimate_variance(history: HistoryQuery, metric: MetricProperties) -> VarianceEstimate | str:
    """Return the variance estimate of a metric from past experiments, or why there is none.

    Experiments on the same dataset count alone if enough of their pairs are known, also if none differs; then come
    those with the same evaluator version, then the newest. Scores of a judge that decide nothing, of one that has
    drifted since, or of another version of a judge do not count. Those that a gate rejected do not count if there are
    others: they differ from the baseline more than the next one will. How many are left out is part of the text.
    """
    measured, version = measured_before(history.store, base_metric(metric.name)), history.version(metric.evaluator)
    past, left_out = _usable(history, metric, measured, version)

    def preference(experiment: MeasuredBefore) -> tuple[bool, bool]:
        return _is_same_dataset(history, experiment), experiment.evaluator_version == version

    past.sort(key=preference, reverse=True)
    estimate = _from_past(history, metric, past)
    if not left_out:
        return estimate
    note = f"; left out: {', '.join(left_out)}"
    return f"{estimate}{note}" if isinstance(estimate, str) else replace(estimate, basis=estimate.basis + note)


def _usable(
    history: HistoryQuery, metric: MetricProperties, measured: Sequence[MeasuredBefore], version: str | None
) -> tuple[list[MeasuredBefore], list[str]]:
    """Return the experiments that count, and how many of the others are left out for each reason."""
    groups = {one.experiment_id: one.run_group for one in measured}
    excluded = excluded_metrics(history.store, groups, once_judged(history.store, sorted({*groups.values()})))
    why = [excluded.get((one.experiment_id, base_metric(metric.name))) for one in measured]
    fit = [one for one, exclusion in zip(measured, why, strict=True) if exclusion is None]
    n_drifted = sum(exclusion is not None and exclusion.reason.code == "judge_drifted" for exclusion in why)
    judge = next((one for one in history.prepared.evaluators if one.name == metric.evaluator), None)
    asks_model = judge is not None and any(tier.connection for tier in judge.judges)
    same = [one for one in fit if one.evaluator_version == version] if asks_model else fit
    rejected = {row for (row,) in history.store.query(_REJECTED)}
    accepted = [one for one in same if one.experiment_id not in rejected] or same
    counts = {
        "whose judge decides nothing": len(measured) - len(fit) - n_drifted,
        "whose judge has drifted since": n_drifted,
        "by another version of the judge": len(fit) - len(same),
        "that a gate rejected": len(same) - len(accepted),
    }
    return accepted, [f"{n} experiment{'' if n == 1 else 's'} {which}" for which, n in counts.items() if n]


def _from_past(
    history: HistoryQuery, metric: MetricProperties, past: Sequence[MeasuredBefore]
) -> VarianceEstimate | str:
    here = [experiment for experiment in past if _is_same_dataset(history, experiment)]
    best = _best(_from_pairs(history, metric.name, here))
    if best is None or (best.n_pairs or 0) < MIN_PAIRS:
        best = _best(_from_pairs(history, metric.name, past))
    if best is not None and best.variance > 0:
        return best
    if best is None and past and (estimate := _from_one_experiment(history, metric.name, past[0])) is not None:
        return estimate
    return _cautious_guess(metric, best, are_some=bool(past))


def _best(estimates: Iterable[VarianceEstimate]) -> VarianceEstimate | None:
    """Return the first estimate above 0 from enough pairs, else the one from the most pairs."""
    seen: list[VarianceEstimate] = []
    for estimate in islice(estimates, MAX_RUN_GROUPS):
        if estimate.variance > 0 and (estimate.n_pairs or 0) >= MIN_PAIRS:
            return estimate
        seen.append(estimate)
    return max(seen, key=lambda estimate: (estimate.variance > 0, estimate.n_pairs or 0), default=None)


def _is_same_dataset(history: HistoryQuery, experiment: MeasuredBefore) -> bool:
    has_same_name = history.dataset_name is not None and experiment.dataset_name == history.dataset_name
    return has_same_name or experiment.snapshot_id == history.snapshot_id


def _from_pairs(history: HistoryQuery, metric: str, past: Sequence[MeasuredBefore]) -> Iterator[VarianceEstimate]:
    """Yield the largest variance estimate of each run group's candidates against its baseline, then that of the two
    newest experiments on each snapshot; on other datasets, if they have the same name or a gate compared them."""
    for group in grouped((experiment.run_group, experiment) for experiment in past).values():
        base = next((experiment for experiment in group if experiment.is_baseline), group[-1])
        others = [other for other in group if other is not base and other.evaluator_version == base.evaluator_version]
        estimates = [estimate for other in others if (estimate := _from_pair(history, metric, other, base))]
        if estimates:
            yield max(estimates, key=lambda estimate: estimate.variance)
    by_snapshot = sorted(past, key=_snapshot_and_version)  # stable: the newest stay first
    decided = {frozenset(pair) for pair in history.store.query(_DECIDED)} if past else set()
    for _, same in groupby(by_snapshot, key=_snapshot_and_version):
        newest = list(same)[:2]
        are_separate_runs = len({experiment.run_group for experiment in newest}) == 2
        are_related = len({experiment.name for experiment in newest}) == 1 or _is_same_dataset(history, newest[0])
        are_related = are_related or frozenset(experiment.experiment_id for experiment in newest) in decided
        if are_separate_runs and are_related and (estimate := _from_pair(history, metric, newest[0], newest[1])):
            yield estimate


def _snapshot_and_version(experiment: MeasuredBefore) -> tuple[str, str]:
    return experiment.snapshot_id, experiment.evaluator_version


def _from_pair(
    history: HistoryQuery, metric: str, candidate: MeasuredBefore, baseline: MeasuredBefore
) -> VarianceEstimate | None:
    """Return the variance estimate of a pair; None if it shares fewer than two examples or clusters."""
    candidate_row, baseline_row = (_experiment_row(history.store, side) for side in (candidate, baseline))
    reader, spec = MetricReader(history.store), history.prepared.spec
    pair = ExperimentPair(reader=reader, spec=spec, candidate=candidate_row, baseline=baseline_row)
    name = f"{candidate.name} against {baseline.name} of {candidate.started_at:%Y-%m-%d}"
    if (whole := pair.experiment_metrics.get(metric)) is not None:
        estimate = None if whole.why_not_compared else _whole_variance(whole)
        return estimate and replace(estimate, basis=f"{name}, {whole.candidate.n} {whole.candidate.noun}")
    matched = reader.matched(candidate_row, baseline_row)
    matched = matched.at(np.flatnonzero(np.isin(matched.candidate, history.places(candidate_row))))
    ours = _run_values(history, metric, candidate_row, candidate)[matched.candidate]
    theirs = _run_values(history, metric, baseline_row, baseline)[matched.baseline]
    clusters = matched.of_clusters(reader.clusters(candidate_row)) if history.is_clustered else None
    estimate = _paired_variance(ours, theirs, clusters)
    if estimate is None:
        return None
    basis = f"{name}, {estimate.n_pairs} {history.examples}"
    return replace(estimate, basis=basis + _other_dataset_note(history, candidate), is_yes_no=candidate.is_yes_no)


def _other_dataset_note(history: HistoryQuery, experiment: MeasuredBefore) -> str:
    if _is_same_dataset(history, experiment):
        return ""
    return f" of another dataset ({experiment.dataset_name or experiment.snapshot_id})"


def _whole_variance(whole: PairedExperimentMetric) -> VarianceEstimate | None:
    """Return the variance of one example, or cluster, that gives a metric of the whole experiment its error."""
    difference, is_clustered = whole.difference(whole.confidence_level), whole.candidate.noun == "clusters"
    if difference.standard_error is None:
        return None
    return VarianceEstimate(
        source="two_sides",
        basis="",
        unit="cluster" if is_clustered else "example",
        variance=difference.n_pairs * difference.standard_error**2,
        n_pairs=difference.n_pairs,
        n_clusters=difference.n_pairs if is_clustered else None,
        is_yes_no=False,
    )


def _paired_variance(ours: RunValues, theirs: RunValues, clusters: Clusters) -> VarianceEstimate | None:
    """Return the variance of the paired differences per example, or cluster: that of their mean times the number of
    these.

    Noise between repetitions is independent of clusters, so the design effect applies to the rest only.
    """
    scored = np.flatnonzero(~(np.isnan(ours).all(axis=1) | np.isnan(theirs).all(axis=1)))
    ours, theirs = ours[scored], theirs[scored]
    cluster_ids = None if clusters is None else [clusters[index] for index in scored.tolist()]
    parts = difference_components(ours, theirs)
    if parts.observed is None:
        return None
    test = paired_difference(np.nanmean(ours, axis=1), np.nanmean(theirs, axis=1), cluster_ids)
    if test.p_value is None:
        return None
    units = parts.n if test.n_clusters is None else test.n_clusters
    per_example = parts.n * (test.standard_error or 0.0) ** 2  # of independent examples whose mean has this error
    noise = 0.0 if parts.between is None else parts.observed - parts.between
    scale = units / parts.n
    return VarianceEstimate(
        source="two_sides",
        basis="",
        unit="example" if test.n_clusters is None else "cluster",
        variance=per_example * scale,
        between=None if parts.between is None else max(per_example - noise, 0.0) * scale,
        within=None if parts.within is None else parts.within * scale,
        repetitions=min(ours.shape[1], theirs.shape[1]),
        n_pairs=parts.n,
        n_clusters=test.n_clusters,
        design_effect=None if test.n_clusters is None or not parts.observed else per_example / parts.observed,
        is_yes_no=False,
    )


def _from_one_experiment(history: HistoryQuery, metric: str, experiment: MeasuredBefore) -> VarianceEstimate | None:
    """Return the variance from one target's answers, if those of another vary as much and independently of these."""
    row = _experiment_row(history.store, experiment)
    runs = _run_values(history, metric, row, experiment)[history.places(row)]
    values = runs[~np.isnan(runs).all(axis=1)]
    means = np.nanmean(values, axis=1) if len(values) else np.array([])
    variance = 2 * float(np.var(means, ddof=1)) if means.size > 1 else 0.0
    if not variance:
        return None
    basis = (
        f"{experiment.name} alone, assuming independent answers of the other target, {means.size} {history.examples}"
    )
    return VarianceEstimate(
        source="one_side",
        basis=basis + _other_dataset_note(history, experiment),
        variance=variance,
        repetitions=experiment.repetitions,
        n_pairs=int(means.size),
        is_yes_no=experiment.is_yes_no,
    )


def _cautious_guess(
    metric: MetricProperties, seen: VarianceEstimate | None, *, are_some: bool
) -> VarianceEstimate | str:
    """Return the largest variance of independent answers, for a bounded metric; else why the variance is unknown."""
    if seen is not None and seen.is_yes_no and seen.n_pairs:
        but = f"but {MOST_UNSEEN} in {seen.n_pairs} may differ"
        basis = f"a cautious guess: all differences were the same in {seen.basis}, {but}"
        return VarianceEstimate(
            source="guess",
            basis=basis,
            variance=unseen_variance(seen.n_pairs),
            repetitions=seen.repetitions,
            n_pairs=seen.n_pairs,
            is_yes_no=True,
        )
    none = "no two experiments with it can be compared" if are_some else "no experiment in the store has it"
    why = none if seen is None else f"all differences were the same in {seen.basis}"
    if metric.bounds is None:
        return f"unknown, since {why}; run it on {RELIABLE_UNITS} examples first"
    width = metric.bounds[1] - metric.bounds[0]
    value_text = "right or wrong" if metric.is_yes_no else "the best or the worst possible"
    basis = f"a cautious guess, since {why}: each answer {value_text} with probability 1/2"
    variance = (width * cautious_sd(0.5, 0.5)) ** 2
    return VarianceEstimate(source="guess", basis=basis, variance=variance, is_yes_no=metric.is_yes_no)


def _experiment_row(store: Store, measured: MeasuredBefore) -> ExperimentRow:
    (row,) = store.read("experiments", measured.experiment_id)
    return row  # type: ignore[no-any-return]


def _run_values(history: HistoryQuery, metric: str, row: ExperimentRow, measured: MeasuredBefore) -> RunValues:
    """Return one row per example and one column per repetition; a single column for a pass@k metric."""
    if not is_pass_k(metric):
        return run_values(history.store, row, metric, measured.evaluator_version)
    versions = (v for v in MetricReader(history.store).all_values(row, history.prepared.spec) if v.metric == metric)
    values = next((v.values for v in versions if v.evaluator_version == measured.evaluator_version), None)
    return np.full((row.n_examples, 1), np.nan) if values is None else values[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEffect:
    """The effect to detect in a metric."""

    purpose: Purpose
    size: float  # the difference to detect
    declared: float  # as the command or the gate gives it
    gate: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A number of examples and of repetitions per target, with its cost."""

    repetitions: int
    examples: int
    clusters: int | None
    calls: int
    usd: float | None
    is_cheapest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSizes:
    """The designs that detect an effect, by repetitions."""

    effect: TargetEffect
    designs: tuple[Design, ...]
    reason: str | None = None  # why there are no designs
    if_none_differs: int | None = None  # examples that are enough if no pair differs, as so far

    @property
    def cheapest(self) -> Design | None:
        return next((design for design in self.designs if design.is_cheapest), None)

    def at(self, repetitions: int) -> Design | None:
        return next((design for design in self.designs if design.repetitions == repetitions), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentDesign:
    """The current dataset and design."""

    n_examples: int
    n_clusters: int | None  # None without clusters
    repetitions: int
    confidence_level: float
    power: float
    judged_share: float = 1.0  # of the examples
    widest: float | None = None  # difference that is possible; None without a range that the intervals allow for

    @property
    def cluster_size(self) -> float:
        return self.n_examples / self.n_clusters if self.n_clusters else 1.0

    def units(self, estimate: VarianceEstimate) -> float:
        """Return the number of judged examples, or of clusters, as the estimate counts them."""
        n_all = self.n_clusters if estimate.unit == "cluster" and self.n_clusters else self.n_examples
        return n_all * (self.judged_share if n_all == self.n_examples else 1.0)


def sample_sizes_of(
    estimate: VarianceEstimate, effect: TargetEffect, current: CurrentDesign, lines: Sequence[PlannedCalls]
) -> SampleSizes:
    """Return the designs that detect an effect; the cheapest one is marked."""
    repetitions = sorted({*REPETITIONS, current.repetitions}) if estimate.is_split else [current.repetitions]
    try:
        planned = plan_sizes(
            effect.size,
            estimate.parts,
            repetitions=repetitions,
            confidence_level=current.confidence_level,
            power=current.power,
        )
        units = [_by_deciding_interval(estimate, effect, current, size.repetitions) for size in planned]
    except ValueError as error:
        return SampleSizes(effect=effect, designs=(), reason=str(error))
    designs = [
        _design(
            of_size or max(size.examples, _min_units(estimate, effect, current, size.repetitions)),
            size.repetitions,
            estimate,
            current,
            lines,
        )
        for size, of_size in zip(planned, units, strict=True)
    ]
    cheapest = min(designs, key=_cost)
    return SampleSizes(
        effect=effect,
        designs=tuple(replace(design, is_cheapest=design is cheapest) for design in designs),
        if_none_differs=_if_none_differs(estimate, effect, current),
    )


def _design(
    units: int, repetitions: int, estimate: VarianceEstimate, current: CurrentDesign, lines: Sequence[PlannedCalls]
) -> Design:
    of_clusters = estimate.unit == "cluster"
    clusters = math.ceil(units / current.judged_share) if of_clusters else None
    examples = math.ceil(units / current.judged_share * (current.cluster_size if of_clusters else 1.0))
    return Design(
        repetitions=repetitions,
        examples=examples,
        clusters=clusters,
        calls=calls_at(lines, examples, repetitions),
        usd=usd_at(lines, examples, repetitions),
    )


def _cost(design: Design) -> tuple[float, float, int]:
    """Sort key: the cost in USD if known, then calls, then runs."""
    return design.usd or 0.0, design.calls, design.examples * design.repetitions


def _by_deciding_interval(
    estimate: VarianceEstimate, effect: TargetEffect, current: CurrentDesign, repetitions: int
) -> int | None:
    """Return the number of pairs with which a candidate passes a margin by the interval that decides; None for other
    effects, and for metrics without a range."""
    if effect.purpose == "difference" or not effect.declared:
        return None
    levels = {"confidence_level": current.confidence_level, "power": current.power}
    if _has_lower_bound(estimate, repetitions):
        if effect.purpose == "superiority":
            return None
        return needed_for_margin(effect.size, min(1.0, estimate.variance_at(repetitions)), **levels)
    if current.widest is None:
        return None
    return needed_in_range(effect.size, math.sqrt(estimate.variance_at(repetitions)), current.widest, **levels)


def _if_none_differs(estimate: VarianceEstimate, effect: TargetEffect, current: CurrentDesign) -> int | None:
    """Return the examples that are enough for a margin if no pair differs; None if some pair did so far."""
    if effect.purpose != "non_inferiority" or estimate.source != "guess" or not estimate.n_pairs:
        return None
    units = needed_for_margin(effect.size, 0.0, confidence_level=current.confidence_level, power=current.power)
    return math.ceil(units / current.judged_share)


def _min_units(estimate: VarianceEstimate, effect: TargetEffect, current: CurrentDesign, repetitions: int) -> int:
    """Return the least number of examples for a yes/no metric with one answer per example; 0 for other metrics.

    A difference d means that at least a share d of pairs differ, so the variance is at least d - d^2. For a guessed
    variance, the bound holds with repetitions too.
    """
    if not _has_lower_bound(estimate, repetitions) or effect.purpose == "non_inferiority" or effect.size >= 1:
        return 0
    sd = math.sqrt(effect.size - effect.size**2)
    return needed_examples(effect.size, sd=sd, confidence_level=current.confidence_level, power=current.power)


def _has_lower_bound(estimate: VarianceEstimate, repetitions: int) -> bool:
    return estimate.is_yes_no and estimate.unit == "example" and (repetitions == 1 or estimate.source == "guess")


def minimum_detectable(estimate: VarianceEstimate, current: CurrentDesign) -> float | None:
    """Return the smallest true difference that the current design detects at its power; None below 2 units."""
    units = current.units(estimate)
    if units < 2:
        return None
    return smallest_detectable(
        units,
        estimate.variance_at(current.repetitions),
        yes_no=_has_lower_bound(estimate, current.repetitions),
        confidence_level=current.confidence_level,
        power=current.power,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPlan:
    """The plan of one metric."""

    metric: str
    variance: VarianceEstimate | None = None
    reason: str | None = None  # why the variance is unknown
    n_examples: int  # of the dataset, or of the metric's slice of it
    n_clusters: int | None  # of these examples; None without clusters
    judged_share: float  # of the examples
    minimum_detectable: float | None = None  # with the dataset and the repetitions of the spec
    sample_sizes: tuple[SampleSizes, ...] = ()
    repeats: Repeats | None = None  # which examples to answer more often; None if none is flaky


def metrics_to_plan(prepared: PreparedExperiment, wanted: Sequence[str]) -> list[str]:
    """Return the metrics of evaluators, composites and gate comparisons, or only the wanted ones, if any.

    Raise InputError for a metric that no evaluator gives.
    """
    spec, own = prepared.spec, _own_metrics(prepared)
    members = spec.panel_members
    every = list(
        dict.fromkeys([*own, *(metric for gate in spec.gates for metric in (*gate.non_inferiority, *gate.superiority))])
    )
    if prepared.given_metrics is not None:  # if None, an evaluator may give others
        known = {*every, *members, *MEASURES}
        for metric in wanted:
            if base_metric(metric_of(metric)) not in known and metric not in known:
                raise InputError(
                    f"metric: no evaluator gives {metric!r}, wanted some of {', '.join([*every, *MEASURES])}"
                )
    return list(dict.fromkeys(wanted)) or every


def _own_metrics(prepared: PreparedExperiment) -> list[str]:
    """Return the metrics of evaluators and composites, without pass@k."""
    given = [metric for evaluator in prepared.evaluators for metric in evaluator.metrics]
    of_all = filter(is_resampled, prepared.summary_evaluators)
    given += [metric for evaluator in of_all for metric in evaluator.metrics]
    own = [metric for metric in given if metric not in prepared.spec.panel_members]
    return [*own, *(composite.name for composite in prepared.spec.composites)]


def _n_comparisons(prepared: PreparedExperiment) -> int:
    """Return how many verdicts the run adjusts together: of each candidate's metrics, with pass@k."""
    own, spec = set(_own_metrics(prepared)), prepared.spec
    kinds = len(get_args(PassKind))
    of_candidate = len(own) + sum(kinds * len({*spec.direction(metric).pass_k}) for metric in own)
    return of_candidate * max(len(spec.targets) - 1, 1)


def planned_metric(
    history: HistoryQuery,
    name: str,
    effect: float | None,
    current: CurrentDesign,
    examples: Sequence[ExampleRow],
    lines: Sequence[PlannedCalls],
) -> MetricPlan:
    """Plan one metric for the requested effect and for the gates' rules.

    The variance of a slice is that of its pairs in past experiments, as in a gate; of the whole metric if none has it.
    """
    sliced = sliced_metric(name)
    if sliced.path is not None:
        examples = [example for example in examples if slice_value(example, sliced.path) == sliced.value]
        n_clusters = None if current.n_clusters is None else _n_clusters(examples)
        current = replace(current, n_examples=len(examples), n_clusters=n_clusters)
    evaluator = _evaluator(history.prepared, sliced.metric)
    current = replace(current, judged_share=_judged_share(evaluator, examples))
    properties = _properties(history.prepared.spec, sliced.metric, evaluator)
    if (bounds := properties.bounds) and history.prepared.spec.direction(sliced.metric).rare_losses:
        current = replace(current, widest=bounds[1] - bounds[0])
    estimate = estimate_variance(replace(history, sliced=sliced), properties)
    if isinstance(estimate, str) or estimate.n_pairs is None:
        estimate = estimate_variance(history, properties)
    design: dict[str, Any] = {
        "n_examples": current.n_examples,
        "n_clusters": current.n_clusters,
        "judged_share": current.judged_share,
    }
    if isinstance(estimate, str):
        return MetricPlan(metric=name, reason=estimate, **design)
    detectable = _possible(minimum_detectable(estimate, current), properties)
    return MetricPlan(
        metric=name,
        variance=estimate,
        **design,
        minimum_detectable=detectable,
        sample_sizes=tuple(
            sample_sizes_of(estimate, target, current, lines)
            for target in _target_effects(history.prepared.spec, name, effect, detectable)
        ),
    )


def _possible(size: float | None, metric: MetricProperties) -> float | None:
    """Return a difference of means; None if it is larger than any that the metric's values can have."""
    low, high = (0.0, 1.0) if metric.is_yes_no else metric.bounds or (0.0, math.inf)
    return None if size is None or size > high - low else size


def _n_clusters(examples: Sequence[ExampleRow]) -> int:
    """Return the number of clusters; an example without one is a cluster of its own."""
    return len({example.cluster or ("alone", example.example_id) for example in examples})


def _target_effects(
    spec: ExperimentSpec, metric: str, effect: float | None, detectable: float | None
) -> Iterator[TargetEffect]:
    """Yield the requested effect, else the metric's declared margin, and the effects that the gates' rules need.

    A candidate must exceed a superiority margin significantly, so the effect to detect is the excess over the margin.
    Without a margin, and with no effect requested, it is what the dataset can detect.
    """
    size = effect if effect is not None else spec.direction(metric_of(metric)).margin
    if size is not None:
        yield TargetEffect(purpose="difference", size=size, declared=size)
    for gate in spec.gates:
        margin, rise = gate.non_inferiority.get(metric), gate.superiority.get(metric)
        if margin is not None:
            yield TargetEffect(purpose="non_inferiority", size=margin, declared=margin, gate=gate.name)
        if rise == 0 and effect is None and detectable is not None:
            size = detectable * (1 + 1e-9)  # else rounding may ask for one example more
            yield TargetEffect(purpose="superiority", size=size, declared=0.0, gate=gate.name)
        if rise and effect is None:
            yield TargetEffect(purpose="difference", size=rise, declared=rise, gate=gate.name)
        elif rise and effect is not None and effect > rise:
            yield TargetEffect(purpose="superiority", size=effect - rise, declared=rise, gate=gate.name)


def _properties(
    spec: ExperimentSpec, name: str, evaluator: PreparedEvaluator[EvaluatorSpec] | None
) -> MetricProperties:
    base = base_metric(name)
    if evaluator is None:
        is_composite = base in {composite.name for composite in spec.composites if composite.weights}
        return MetricProperties(name=name, evaluator=base, is_yes_no=False, bounds=(0.0, 1.0) if is_composite else None)
    own = base == evaluator.name
    is_yes_no = own and all(_is_yes_no(judge.bound.function) for judge in evaluator.judges)
    bounds = (0.0, 1.0) if is_yes_no or base != name else spec.direction(name).range
    return MetricProperties(name=name, evaluator=evaluator.name, is_yes_no=is_yes_no and base == name, bounds=bounds)


def _evaluator(prepared: PreparedExperiment, metric: str) -> PreparedEvaluator[EvaluatorSpec] | None:
    base = base_metric(metric)
    return next((evaluator for evaluator in prepared.evaluators if base in evaluator.metrics), None)


def _is_yes_no(function: Any) -> bool:
    """Return whether a function is annotated to return a bool."""
    try:
        returned = signature(function).return_annotation
    except (TypeError, ValueError):
        return False
    return returned is bool or str(returned) in YES_NO


def _judged_share(evaluator: PreparedEvaluator[EvaluatorSpec] | None, examples: Sequence[ExampleRow]) -> float:
    """Return the share of examples that the evaluator scores."""
    sample = None if evaluator is None else draw(evaluator.spec, examples)
    return 1.0 if sample is None else len(sample.drawn) / len(examples)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReusedAnswers:
    """Answers that a target takes from an experiment, and does not make."""

    target: str
    experiment: str
    n: int
    n_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The cost of a run, and the effects it could detect."""

    spec: ExperimentSpec  # as requested
    effect: float | None
    design: CurrentDesign
    calls: tuple[PlannedCalls, ...]
    total: Total
    trials: int  # calls of a few tokens before the others
    metrics: tuple[MetricPlan, ...]
    comparisons: int  # verdicts that the run adjusts together
    reused: tuple[ReusedAnswers, ...] = ()  # by targets with `answers_of`


def plan_experiment(spec: ExperimentSpec, effect: float | None, metrics: Sequence[str], power: float) -> Plan:
    """Plan a spec from the history in the store; no key is needed. Raise InputError for an invalid request."""
    store = Store()
    _check_request(spec, effect, power)
    prepared, loaded = _prepared(spec, store)
    names = metrics_to_plan(prepared, metrics)
    examples = loaded.selected
    inputs = PlanInputs(store, prepared, examples)
    design = CurrentDesign(
        n_examples=len(examples),
        n_clusters=_n_clusters(examples) if any(example.cluster is not None for example in examples) else None,
        repetitions=prepared.spec.repetitions,
        confidence_level=prepared.spec.confidence_level,
        power=power,
    )
    lines = (*calls_of_targets(inputs), *calls_of_judges(inputs))
    history = HistoryQuery(
        store=store,
        prepared=prepared,
        dataset_name=loaded.name,
        snapshot_id=loaded.examples[0].snapshot_id,
        is_clustered=design.n_clusters is not None,
    )
    planned = [planned_metric(history, name, effect, design, examples, lines) for name in names]
    repeats = _repeats(history, design)
    return Plan(
        spec=spec,
        effect=effect,
        design=design,
        calls=lines,
        total=total_of(lines),
        trials=len(parameter_sets(store, prepared, inputs.runs)),
        metrics=tuple(replace(metric, repeats=repeats.get(metric.metric)) for metric in planned),
        comparisons=_n_comparisons(prepared),
        reused=tuple(found for target in inputs.spec.targets if (found := _reused(inputs, target)) is not None),
    )


def _repeats(history: HistoryQuery, design: CurrentDesign) -> dict[str, Repeats | None]:
    """Return which examples to answer more often, by metric."""
    if history.dataset_name is None or (newest := newest_on(history.store, history.dataset_name)) is None:
        return {}
    (row,) = history.store.read("experiments", newest)
    noise = noise_by_metric(repeated_values(history.store, row, before=now()), row.n_examples)
    return {metric: of_metric.repeats(design.repetitions) for metric, of_metric in noise.items()}


def _check_request(spec: ExperimentSpec, effect: float | None, power: float) -> None:
    if effect is not None and not 0 < effect < math.inf:
        raise InputError(f"effect: got {effect:g}, wanted a number above 0")
    lowest = (1 - spec.confidence_level) / 2
    if not lowest < power < 1:
        raise InputError(f"power: got {power:g}, wanted a number between {lowest:.3g} and 1")


def _prepared(spec: ExperimentSpec, store: Store) -> tuple[PreparedExperiment, LoadedDataset]:
    """Prepare and check the spec as for a run, and load its dataset without freezing it."""
    loaded = loaded_dataset(store, spec.dataset, final=FINAL in (spec.dataset.splits or ()))
    refuse_final(loaded, final_inputs(store, loaded))
    load_expectations(spec.dataset.expectations)
    prepared = prepare(spec)
    connections = {name: _keyless(connection) for name, connection in known(prepared.spec.connections).items()}
    prepared = replace(prepared, spec=prepared.spec.model_copy(update={"connections": connections}))
    check_spec(prepared, loaded.selected, store)
    check_quarantine(prepared, loaded.examples)
    return prepared, loaded


def _keyless(connection: ConnectionSpec) -> ConnectionSpec:
    """Return the connection without its key: a plan makes no calls."""
    if not isinstance(connection, RemoteConnection):
        return connection
    return connection.model_copy(update={"api_key_env": None, "api_key_block": None})


class Detail(str):
    """A sentence that adds to the one before it."""


def sentences_of(plan: Plan) -> list[str]:
    """Return the cost, then a few sentences per metric, then the caveats."""
    of_metrics = [sentence for metric in plan.metrics for sentence in _of_metric(plan, metric)]
    repeats = [metric.repeats.text(metric.metric) for metric in plan.metrics if metric.repeats]
    return [*cost_sentences(plan), *of_metrics, *_bases(plan), *repeats, *_caveats(plan)]


def cost_sentences(plan: Plan) -> Iterator[str]:
    """Yield what a run costs, and why that may be too little."""
    total, cells = plan.total, [target.factors for target in plan.spec.targets if target.factors]
    if cells:
        factors = (f"{factor} ({len({cell[factor] for cell in cells})})" for factor in cells[0])
        yield f"a matrix of {len(cells)} cells: {' x '.join(factors)}"
    if total.calls or (plan.calls and not total.unknown):
        usd = f"about {money(total.usd)} USD" if total.usd is not None else "cost unknown"
        cached = f", of which {count(total.in_ledger)} are in the ledger and not paid again" if total.in_ledger else ""
        are_requests = any(isinstance(asked(target), HttpTarget) for target in plan.spec.targets)
        calls = f"{'' if are_requests else 'model '}call{'' if total.calls == 1 else 's'}"
        besides = f", not counting {_listed(total.uncounted)}" if total.uncounted else ""
        number = f"{'at most ' if total.at_most else ''}{count(total.calls)}"
        yield f"this run makes {number} {calls}{besides}{cached}: {usd}"
    else:
        yield "this run makes no known model calls"
    if total.unknown:
        yield f"the calls of {_listed(total.unknown)} are unknown and not counted: run it on a few examples first"
    if total.unpriced:
        yield f"the cost of {_listed(total.unpriced)} is unknown: no token counts or no price"
    for found in plan.reused:
        yield f"{count(found.n)} of {count(found.n_runs)} answers of {found.target} are reused from {found.experiment}"
    yield from dict.fromkeys(calls.size.price_note for calls in plan.calls if calls.size.price_note)
    yield from _about_batches(plan.calls)
    if plan.spec.budget_usd is not None and total.usd_known > plan.spec.budget_usd:
        yield f"budget_usd: {plan.spec.budget_usd:g} may not be enough: the run would end incomplete"
    if plan.trials:
        yield f"beforehand, short calls test whether the models accept their parameters: {plan.trials}"
    if plan.spec.max_calls is not None and total.calls - total.in_ledger + plan.trials > plan.spec.max_calls:
        yield f"max_calls: {plan.spec.max_calls} may not be enough: the run would end incomplete"


def _about_batches(calls: Sequence[PlannedCalls]) -> Iterator[str]:
    """Yield what batches would save, or what waiting for them means."""
    if batched := [of for of in calls if of.size.mode == "batch" and of.calls]:
        kinds = list(dict.fromkeys(_STAGES[of.kind] for of in batched if of.kind in _STAGES))
        waits = {1: "once", 2: "twice, one after the other"}.get(len(kinds), f"{len(kinds)} times, one after another")
        yield f"batches answer within a day; the run waits {waits}: for {_listed(kinds)}"
        return
    pairs = [(of.usd, of.ways["batch"]) for of in calls]
    known = [(usd, batch) for usd, batch in pairs if usd is not None and batch is not None]
    saved = sum(usd - batch for usd, batch in known)
    if saved > 0:
        left = money(sum(usd for usd, _ in known) - saved)
        yield f"in batches (`--set mode=batch`) these calls cost about {left} USD: they are answered within a day"


def _of_metric(plan: Plan, metric: MetricPlan) -> Iterator[str]:
    if metric.variance is None:
        yield f"{metric.metric}: {metric.reason}"
        return
    for sizes in metric.sample_sizes:
        if sizes.effect.declared:
            yield from _of_sizes(plan, metric, sizes)
    any_rise = [gate.name for gate in plan.spec.gates if gate.superiority.get(metric.metric) == 0]
    if not metric.sample_sizes or (any_rise and plan.effect is None):
        rules = f", for superiority ({_listed(any_rise)})" if any_rise else ""
        yield f"{metric.metric}: {_detectable(metric)}{rules}; use --effect to plan for another difference"
    for gate in plan.spec.gates:
        margin = gate.superiority.get(metric.metric)
        if margin and plan.effect is not None and plan.effect <= margin:
            effect = figure(plan.effect, metric.metric)
            yield Detail(
                f"  an improvement of {effect} does not meet the superiority margin of {margin:g} ({gate.name})"
            )


def _bases(plan: Plan) -> Iterator[str]:
    """Say what the variances are estimated from, grouped by basis."""
    known = ((metric.metric, metric.variance) for metric in plan.metrics if metric.variance is not None)
    by_basis = grouped((variance.basis + _uncertainty(variance), metric) for metric, variance in known)
    for basis, metrics in by_basis.items():
        yield f"{_listed(metrics)}: estimated from {basis}"


def _of_sizes(plan: Plan, metric: MetricPlan, sizes: SampleSizes) -> Iterator[str]:
    current = sizes.at(plan.design.repetitions)
    if current is None:
        yield f"{metric.metric}: {sizes.reason}"
        return
    clusters = f" in {count(current.clusters)} clusters" if current.clusters is not None else ""
    answered = "" if current.repetitions == 1 else f", each answered {_times(current.repetitions)},"
    of_slice = "" if sliced_metric(metric.metric).path is None else " of the slice"
    needed = f"about {about(current.examples)} examples{of_slice}{clusters}{answered} are needed"
    if sizes.if_none_differs is not None and metric.variance is not None:
        some = f"{MOST_UNSEEN} in {metric.variance.n_pairs} differ"
        needed += f" if {some}, and about {about(sizes.if_none_differs)} if, as so far, no pair differs"
    yield f"{_purpose(plan, metric, sizes)}, {needed}; {_detectable(metric)}"
    best = sizes.cheapest
    if best is not None and best is not current:
        usd = "" if best.usd is None else f" ({money(best.usd)} USD)"
        yield Detail(
            f"  cheaper: {about(best.examples)} examples, each answered {_times(best.repetitions)}: "
            f"{count(best.calls)} calls{usd} instead of {count(current.calls)}"
        )


def _purpose(plan: Plan, metric: MetricPlan, sizes: SampleSizes) -> str:
    effect, power = sizes.effect, f"with {plan.design.power:.0%} power"
    bound = given_figure(effect.declared, metric_of(metric.metric))
    if effect.purpose == "non_inferiority":
        what = f"for an equally good candidate to pass the non-inferiority margin of {bound}"
        return f"{what} on {metric.metric} ({effect.gate}) {power}"
    if effect.purpose == "superiority":
        gain = figure(effect.declared + effect.size, metric_of(metric.metric))
        what = f"for a candidate that is better by {gain} to pass the superiority margin of {bound}"
        return f"{what} on {metric.metric} {power}"
    return f"to detect a difference of {bound} in {metric.metric} {power}"


def _detectable(metric: MetricPlan) -> str:
    whole = "dataset" if sliced_metric(metric.metric).path is None else "slice"
    has = f"the {whole}'s {count(metric.n_examples)} examples"
    if metric.n_clusters is not None:
        has += f" in {count(metric.n_clusters)} clusters"
    if metric.judged_share < 1:
        has += f", of which {metric.judged_share:.0%} are judged,"
    if metric.minimum_detectable is None:
        return f"{has} are too few to detect any difference"
    return f"{has} detect a difference of {figure(metric.minimum_detectable, metric_of(metric.metric))} or more"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _uncertainty(variance: VarianceEstimate) -> str:
    """Say what makes a variance estimate less certain."""
    notes = []
    if variance.design_effect is not None:
        notes.append(f"design effect of clusters {variance.design_effect:.1f}")
    if variance.n_units is not None and variance.n_units < RELIABLE_UNITS:
        notes.append(f"rough, with only {variance.n_units} {variance.unit}s")
    return f"; {'; '.join(notes)}" if notes else ""


def _caveats(plan: Plan) -> Iterator[str]:
    """Say what the sample sizes do not account for."""
    if not any(metric.variance for metric in plan.metrics):
        return
    if plan.comparisons > 1 and plan.spec.adjustment != "none":
        method = ADJUSTMENT_NAMES[plan.spec.adjustment]
        said = f"verdicts are adjusted for {plan.comparisons} comparisons ({method})"
        yield f"{said}; the sample sizes are for a single one"
    if plan.spec.batch is not None:
        yield f"interim analyses after every {plan.spec.batch} examples need more examples than one final analysis"
    unclear = [metric.metric for metric in plan.metrics if metric.variance and metric.variance.unit == "example"]
    if plan.design.n_clusters is not None and unclear:
        yield f"the effect of clusters on {_listed(unclear)} is unknown: more examples may be needed"
    answered_once = [
        metric.metric
        for metric in plan.metrics
        if metric.variance
        and metric.variance.source != "guess"
        and any(len(s.designs) == 1 for s in metric.sample_sizes)
    ]
    if answered_once:
        why = "the stored data has one answer per example"
        yield Detail(f"whether repetitions would save examples of {_listed(answered_once)} is unknown: {why}")


def about(number: int) -> str:
    """Return a number rounded up to a few significant digits."""
    step = 10 ** max(len(str(number)) - SIGNIFICANT_DIGITS, 0)
    return count(math.ceil(number / step) * step)


def count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def money(usd: float | None) -> str:
    """Format USD, with more digits for small sums; `-` if unknown."""
    return "-" if usd is None else f"{usd:,.2f}" if usd >= 1 or not usd else f"{usd:.4f}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def identity(connection: ConnectionSpec) -> str:
    """Return the identity of a connection in ledger keys: its URL, or the identity of the local model."""
    return identity_of(connection) if isinstance(connection, LocalConnection) else address(connection).rstrip("/")


def model_of(connection: ConnectionSpec, named: str | None, *, embeds: bool = False) -> str:
    """Return the model that a target or evaluator uses: the one it names, else the connection's default."""
    if embeds:
        return named or connection.embedding_model or ""
    return named or connection.model or (LOCAL_MODEL if isinstance(connection, LocalConnection) else "")


def chat_requests(
    spec: ChatTarget, connection: ConnectionSpec, examples: Sequence[ExampleRow], repetitions: int
) -> list[RecordedRequest]:
    """Return the requests of a chat target, one per example and repetition."""
    recorder = RequestRecorder(spec.connection, connection)
    target = chat_with_attachments(spec.as_sent, Completer(recorder, model_of(connection, None)))

    async def dry_run_all() -> None:
        for example in examples:
            view = example_view(example)
            fields = {"inputs": view.inputs, "metadata": view.metadata, "attachments": view.attachments}
            for repetition in range(repetitions):
                await _dry_run(target.call, fields | {"repetition": repetition})

    _run_in_thread(dry_run_all())
    return recorder.requests


def judge_requests(
    spec: FallbackSpec, bound: Bound, name: str, connection: ConnectionSpec, examples: Sequence[ExampleRow]
) -> list[list[RecordedRequest] | None]:
    """Return the requests of a built-in judge on each example, with the reference as the answer.

    None for an example on which the judge raised before any request.
    """
    recorder = RequestRecorder(name, connection)
    complete = Completer(recorder, model_of(connection, spec.model))
    embed = Embedder(recorder, model_of(connection, spec.model, embeds=True))
    by_example: list[list[RecordedRequest] | None] = []

    async def dry_run_all() -> None:
        for example in examples:
            recorder.requests = []
            described = Described(spec.sees)
            arguments = described.arguments(reference_as_answer(bound, example))
            available = {**arguments, "complete": described.complete(complete), "embed": embed}
            reached = await _dry_run(bound.call, available)
            by_example.append(recorder.requests if reached else None)

    _run_in_thread(dry_run_all())
    return by_example


def shared_requests(
    judges: Sequence[PreparedEvaluator[EvaluatorSpec]],
    name: str,
    connection: ConnectionSpec,
    examples: Sequence[ExampleRow],
) -> list[RecordedRequest]:
    """Return the requests of a bundle's judges, one for each example on which all of them ask for something."""
    recorder = RequestRecorder(name, connection)
    complete, of_example = Completer(recorder, model_of(connection, judges[0].spec.model)), list[Task]()

    async def note(messages: str | Sequence[Message], *, schema: dict[str, Any] | None = None, **_: Any) -> Completion:
        of_example.append(Task(messages=messages, schema=schema or {}))
        raise RequestRecordedError

    async def dry_run_all() -> None:
        for example in examples:
            of_example.clear()
            for judge in judges:
                described = Described(judge.spec.sees)
                arguments = described.arguments(reference_as_answer(judge.bound, example))
                await _dry_run(judge.bound.call, {**arguments, "complete": described.complete(note), "embed": None})
            if len(of_example) == len(judges):
                task = joined(of_example)
                with suppress(RequestRecordedError):
                    await complete(task.messages, schema=task.schema)

    _run_in_thread(dry_run_all())
    return [replace(request, tokens_out=len(judges) * request.tokens_out) for request in recorder.requests]


async def _dry_run(call: Callable[[Mapping[str, Any]], Any], available: Mapping[str, Any]) -> bool:
    """Return whether the call made a model request or returned; False if it raised before either."""
    try:
        returned = call(available)
        if isawaitable(returned):
            await returned
    except RequestRecordedError:
        return True
    except Exception:  # a judge may fail on a reference, which is not a real answer
        return False
    return True


def _run_in_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run in a new thread: the caller may already have a running event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


def _tokens(kind: Kind, request: Mapping[str, Any]) -> tuple[int, int]:
    """Estimate tokens as a budget does before the first answer."""
    tokens_in = tokens_of_request(without_contents(to_json(request)))
    max_tokens = request.get("max_completion_tokens") or request.get("max_tokens")
    return tokens_in, 0 if kind == "embedding" else max_tokens if isinstance(max_tokens, int) else LONG_ANSWER


def total_of(lines: Sequence[PlannedCalls]) -> Total:
    """Sum the calls of the spec as it is."""
    unpriced = tuple(line.caller for line in lines if line.calls is not None and line.usd is None)
    unknown = tuple(line.caller for line in lines if line.calls is None)
    known = sum((line.usd or 0.0 for line in lines), 0.0)
    return Total(
        calls=sum(line.calls or 0 for line in lines),
        at_most=any(line.at_most for line in lines if line.calls) and not any(line.uncounted for line in lines),
        in_ledger=sum(line.in_ledger or 0 for line in lines),
        usd=None if unpriced or unknown else known,
        usd_known=known,
        unknown=unknown,
        unpriced=unpriced,
        uncounted=tuple(line.uncounted for line in lines if line.uncounted),
    )


def calls_at(lines: Iterable[PlannedCalls], examples: int, repetitions: int) -> int:
    """Return the known calls for another number of examples and repetitions, with an empty ledger."""
    return sum(line.calls_at(examples, repetitions) or 0 for line in lines)


def usd_at(lines: Iterable[PlannedCalls], examples: int, repetitions: int) -> float | None:
    """Return the cost of these calls; None if the cost of any is unknown."""
    costs = [line.usd_at(examples, repetitions) for line in lines]
    return None if None in costs else sum((cost for cost in costs if cost is not None), 0.0)


def calls_of_targets(inputs: PlanInputs) -> Iterator[PlannedCalls]:
    """Yield one line per chat or Python target: recorded answers are free, and calls behind HTTP are unknown."""
    seen_keys: set[str] = set()
    for target in inputs.spec.targets:
        if isinstance(target, ChatTarget):
            yield _of_chat(inputs, target, seen_keys)
        elif isinstance(target, ConversationTarget):
            yield from _of_conversations(inputs, target)
        elif isinstance(target, PythonTarget):
            yield _of_python(inputs, target)


def _of_chat(inputs: PlanInputs, target: ChatTarget, seen_keys: set[str]) -> PlannedCalls:
    connection = inputs.connection(target.connection)
    model = model_of(connection, target.model)
    is_looked_up = inputs.runs <= MAX_LEDGER_LOOKUPS
    examples = inputs.examples if is_looked_up else inputs.examples[:MAX_DRY_RUNS]
    requests = chat_requests(target, connection, examples, inputs.spec.repetitions if is_looked_up else 1)
    past = calls_of_target(inputs.store, target_version(target, inputs.spec.connections))
    return PlannedCalls(
        caller=target.name,
        kind="target",
        connection=target.connection,
        model=model,
        per_run=1.0,
        calls=inputs.runs,
        at_most=not is_looked_up,
        in_ledger=_n_in_ledger(inputs, requests, seen_keys) if is_looked_up else None,
        size=size_of(
            inputs, connection, model, past, requests, by="target", mode=mode_of(target.mode, inputs.spec, connection)
        ),
    )


def _n_in_ledger(inputs: PlanInputs, requests: Sequence[RecordedRequest], seen_keys: set[str]) -> int:
    """Return how many calls need no payment: the ledger has them, or an earlier request of the same run is equal."""
    keys = {request.key for request in requests}
    if not inputs.spec.use_cache:
        return len(requests) - len(keys)
    repeated = len(requests) - len(keys - seen_keys)
    new = keys - seen_keys
    seen_keys |= keys
    return repeated + len(in_ledger(inputs.store, new))


def _of_conversations(inputs: PlanInputs, target: ConversationTarget) -> Iterator[PlannedCalls]:
    """Yield a line per caller in a conversation: of the calls that earlier ones took, else of the most that it may."""
    store, version = inputs.store, target_version(target, inputs.spec.connections)
    trials = 1 if target.user_check is None else MOST_TRIALS
    turns, inner = trials * _turns(inputs, target), target.target
    if isinstance(inner, PythonTarget):
        yield _of_python(inputs, target)
    else:
        named = inner.connections[0] if isinstance(inner, ChatTarget) else None
        yield _in_conversations(inputs, target, None, named, turns, asked_by_target(store, version))
    for who, most, caller in ((USER, turns, target.user), (USER_CHECK, trials, target.user_check)):
        if isinstance(caller, SimulatedUser | UserCheck):
            history = asked_in_conversations(store, version, who)
            yield _in_conversations(inputs, target, who, (caller.connection, caller.model), most, history)


def _turns(inputs: PlanInputs, target: ConversationTarget) -> float:
    """Return the most turns of a conversation; of scripts the mean."""
    if not isinstance(target.user, ScriptedUser):
        return target.max_turns or MOST_TURNS
    examples = (target_arguments(example_view(example), 0) for example in inputs.examples)
    scripts = [len(script_of(target.user, example)) for example in examples]
    return sum(min(length, target.max_turns or length) for length in scripts) / len(scripts)


def _in_conversations(
    inputs: PlanInputs,
    target: ConversationTarget,
    other: str | None,
    model_named: tuple[str, str | None] | None,
    most: float,
    history: CallsEach | None,
) -> PlannedCalls:
    """Return the calls of the target in its conversations, or of another; `most` in each without a history."""
    per_run = most if history is None else history.calls_each
    past = calls_of_target(inputs.store, target_version(target, inputs.spec.connections), other)
    calls: dict[str, Any] = {"size": _UNKNOWN_SIZE}
    if model_named is not None:
        connection = inputs.connection(model_named[0])
        model = model_of(connection, model_named[1])
        size = size_of(inputs, connection, model, past, [], by="target" if other is None else "user")
        calls = {"connection": model_named[0], "model": model, "size": size}
    elif past is not None:
        calls = {"size": _size_as_before(past, past.usd, "of this application")}
    note, uncounted = f"at most {most:g} a conversation", None
    if history is not None:
        note = f"as in {history.times} earlier answers of this target"
    elif other is None and model_named is not None and target.world is not None and target.max_steps > 1:
        note = f"one a turn, at most {most:g} turns a conversation, and {target.max_steps} calls a turn"
        uncounted = f"those between the tools of {target.name} (at most {target.max_steps - 1} more a turn)"
    return PlannedCalls(
        caller=target.name if other is None else other.replace("target", target.name, 1),
        kind="target",
        per_run=per_run,
        calls=ceil(round(per_run * inputs.runs, 6)),
        at_most=history is None and uncounted is None,
        note=note,
        uncounted=uncounted,
        **calls,
    )


def _reused(inputs: PlanInputs, target: TargetSpec) -> ReusedAnswers | None:
    """Return the answers that `answers_of` names; None without."""
    if not isinstance(target, HttpTarget | PythonTarget) or target.answers_of is None:
        return None
    (identity,) = find_experiments(inputs.store, target.answers_of)
    ids = [example.example_id for example in inputs.examples]
    ((n,),) = inputs.store.query(_REUSED, [identity, inputs.spec.repetitions, ids])
    return ReusedAnswers(target=target.name, experiment=identity, n=n, n_runs=inputs.runs)


_REUSED = """
select count(*) from source.outputs
where experiment_id = ? and repetition < ? and list_contains(?, example_id) and outputs is not null
"""


def _of_python(inputs: PlanInputs, target: PythonTarget | ConversationTarget) -> PlannedCalls:
    version = target_version(target, inputs.spec.connections)
    history, past = asked_by_target(inputs.store, version), calls_of_target(inputs.store, version)
    per_run = history.calls_each if history else None
    unknown = "its calls are unknown: run it on a few examples first"
    reused = _reused(inputs, target)
    runs = inputs.runs - (reused.n if reused else 0)
    return PlannedCalls(
        caller=target.name,
        kind="target",
        per_run=per_run,
        calls=None if per_run is None and runs else ceil(round((per_run or 0.0) * runs, 6)),
        size=_size_as_before(past, past.usd if past else None, "of this target") if past else _UNKNOWN_SIZE,
        note=unknown
        if history is None
        else f"{per_run:g} calls per answer, as in {history.times} earlier answers of this target",
    )


def size_of(
    inputs: PlanInputs,
    connection: ConnectionSpec,
    model: str,
    past: PastCalls | None,
    requests: Sequence[RecordedRequest],
    *,
    by: Literal["target", "judge", "user"],
    mode: Mode = "direct",
) -> CallSize:
    """Return the size of a call, from earlier calls of the same version, else from earlier calls to the same model,
    else from the recorded requests; with a note on its price, if there is one."""
    whose = f"of this {by}"
    if past is None:
        past = calls_to_model(inputs.store, identity(connection), model, by_target=by == "target")
        whose = f"of other {by}s to this model"
    into: float | None
    if past is not None:
        into, out, cached = past.tokens_in, past.tokens_out or 0.0, past.tokens_cached or 0.0
        kept, size = cached, _size_as_before(past, None, whose)
    elif requests:
        into = sum(request.tokens_in for request in requests) / len(requests)
        out = sum(request.tokens_out for request in requests) / len(requests)
        shared = Counter(request.beginning for request in requests if request.beginning is not None)
        # of each beginning, all calls but the first find it in the cache: some 1,024 tokens at least
        cached, kept = 0.0, CACHED_TOKENS * sum(count - 1 for count in shared.values()) / len(requests)
        size = CallSize(tokens_in=into, tokens_out=out, usd=None, basis="upper estimate")
    else:
        return _UNKNOWN_SIZE
    price = price_of(connection, model)
    if price is None or into is None:
        return size
    in_batch = price_in_batches(connection, price)
    size = replace(
        size,
        usd_direct=_usd(price, into, out),
        usd_prefixed=_usd(price, into, out, kept) if kept else None,
        usd_batch=None if in_batch is None else _usd(in_batch, into, out, cached),
        mode=mode,
        price_note=price.note(model),
    )
    return replace(size, usd=size.usd_batch if mode == "batch" else _usd(price, into, out, cached))


def _size_as_before(past: PastCalls, usd: float | None, whose: str) -> CallSize:
    parts = (past.tokens_cached, past.tokens_in), (past.tokens_reasoning, past.tokens_out)
    shares = shares_text(*(part / of if part and of else None for part, of in parts))
    basis = f"{past.calls} earlier calls {whose}" + (f", {shares}" if shares else "")
    return CallSize(tokens_in=past.tokens_in, tokens_out=past.tokens_out, usd=usd, basis=basis)


def _usd(price: Price, tokens_in: float, tokens_out: float, cached: float = 0.0) -> float | None:
    """Return the cost of a call, with tokens rounded up."""
    return price.cost(Tokens(ceil(tokens_in), int(cached), ceil(tokens_out)))


def calls_of_judges(inputs: PlanInputs) -> Iterator[PlannedCalls]:
    """Yield one line per judge that calls a model, with its controls; then summary evaluators and pairwise judges.

    Evaluators without a model have no line, nor do fallbacks, which are used only on failure.
    """
    for evaluator in inputs.prepared.evaluators:
        if not evaluator.bundled:
            yield from _of_evaluator(inputs, evaluator)
        elif evaluator.name == evaluator.bundled[0].name:
            yield from _of_bundle(inputs, evaluator)
    for evaluator in inputs.prepared.summary_evaluators:
        yield from _of_summary(inputs, evaluator)
    if inputs.spec.compare is not None:
        for judge in inputs.prepared.pairwise:
            yield from _of_pairwise(inputs, inputs.spec.compare, judge)


def _of_evaluator(inputs: PlanInputs, evaluator: PreparedEvaluator[EvaluatorSpec]) -> Iterator[PlannedCalls]:
    sample = draw(evaluator.spec, inputs.examples)
    judged = [example for example in inputs.examples if sample is None or example.example_id in sample.drawn]
    share, judge = len(judged) / len(inputs.examples), None
    for number, tier in enumerate(evaluator.judges):
        judge = _judge(inputs, tier, judged, evaluator)
        if judge is not None:
            notes = [judge.note, OPEN if number else None, None if share == 1 else f"a sample of {share:.0%}"]
            caller = judge.name if tier is evaluator else f"{judge.name}: {tier.name}"
            per_run = len(inputs.spec.targets) * share * judge.calls_per_judgement
            yield _line(inputs, judge, caller, per_run=per_run, note="; ".join(note for note in notes if note) or None)
    if judge is not None:  # the controls of a cascade go to its last tier
        yield from _tests_of(inputs, evaluator, judge)


def _tests_of(inputs: PlanInputs, evaluator: PreparedEvaluator[EvaluatorSpec], judge: _Judge) -> Iterator[PlannedCalls]:
    """Yield the controls and anchors of a judge."""
    if evaluator.spec.controls:
        yield _of_controls(inputs, judge, evaluator.spec.controls)
    if evaluator.spec.anchors is not None:
        n_anchors = len(read_anchors(inputs.store, evaluator.spec.anchors))
        count = n_due(evaluator.spec.anchors, n_anchors, len(inputs.examples) * inputs.spec.repetitions, AT_LEAST)
        fixed = ceil(count * judge.calls_per_judgement)
        yield _line(inputs, judge, f"{judge.name}: anchors", fixed=fixed, kind="anchors")


def _of_bundle(inputs: PlanInputs, first: PreparedEvaluator[EvaluatorSpec]) -> Iterator[PlannedCalls]:
    """Yield a line for the calls that the judges of a bundle share, of which the first is given; one for each that is
    tried alone; and one for the controls and anchors of each, which judges alone."""
    sample, members, spec = draw(first.spec, inputs.examples), first.bundled, inputs.spec
    judged = [example for example in inputs.examples if sample is None or example.example_id in sample.drawn]
    share, alone = len(judged) / len(inputs.examples), [_judge(inputs, one, judged, one) for one in members]
    known = [judge for judge in alone if judge is not None]
    connection = inputs.connection(known[0].connection)
    past = calls_of_judge(inputs.store, first.name, evaluator_version(first, spec.connections))
    requests = shared_requests(members, known[0].connection, connection, judged[:MAX_DRY_RUNS])
    mode = mode_of(first.spec.mode, spec, connection)
    shared = replace(
        known[0],
        size=size_of(inputs, connection, known[0].model, past, requests, by="judge", mode=mode),
        calls_per_judgement=max(judge.calls_per_judgement for judge in known),
    )
    names = ", ".join(member.name for member in members)
    per_run = len(spec.targets) * share * shared.calls_per_judgement
    notes = ["in one call", None if share == 1 else f"a sample of {share:.0%}"]
    yield _line(inputs, shared, names, per_run=per_run, note="; ".join(note for note in notes if note))
    of_spec = spec.bundles[first.spec.bundle or ""]
    to_check = [one for one in first.in_bundle if not one.spec.bundle_unchecked]
    versions = [evaluator_version(one, spec.connections) for one in to_check]
    are_tried = all(earlier_check(inputs.store, version) is not None for version in versions)
    n_tried = min(max(member.bundle_sample for member in of_spec), len(judged))
    for judge, member in zip(known, members, strict=True):
        if not are_tried:
            fixed = ceil(2 * n_tried * judge.calls_per_judgement)
            yield _line(inputs, _directly(judge), f"{judge.name}: alone", fixed=fixed, kind="bundle")
        yield from _tests_of(inputs, member, judge)


def _of_controls(inputs: PlanInputs, judge: _Judge, controls: int) -> PlannedCalls:
    pairs = len(control_pairs(inputs.examples, controls))
    fixed = ceil(ANSWERS_PER_CONTROL * pairs * judge.calls_per_judgement)
    return _line(inputs, _directly(judge), f"{judge.name}: controls", fixed=fixed, kind="controls")


def _directly(judge: _Judge) -> _Judge:
    """Return a judge whose calls wait for no batch."""
    size = judge.size
    usd = size.usd_direct if size.mode == "batch" else size.usd
    return replace(judge, size=replace(size, mode="direct", usd=usd, usd_batch=None))


def _of_summary(inputs: PlanInputs, evaluator: PreparedEvaluator[EvaluatorSpec]) -> Iterator[PlannedCalls]:
    if not evaluator.bound.asks_for("complete", "embed"):
        return
    judge = _judge(inputs, evaluator, [], evaluator)
    if judge is not None:
        fixed = ceil(len(inputs.spec.targets) * judge.calls_per_judgement)
        yield _line(inputs, _directly(judge), judge.name, fixed=fixed, kind="summary", note=judge.note)


def _of_pairwise(
    inputs: PlanInputs, compare: CompareSpec, judge: PreparedEvaluator[JudgeSpec]
) -> Iterator[PlannedCalls]:
    planned = _judge(inputs, judge, inputs.examples, judge)
    if planned is not None:
        targets = inputs.spec.targets
        pairs = len(list(combinations(targets, 2))) if compare.pairs == "all" else len(targets) - 1
        if judge.bound.is_of_all and judge.connection:
            pairs = 1  # the first pair of an example asks for all
        per_run = pairs * (2 if compare.both_orders else 1) * planned.calls_per_judgement
        yield _line(inputs, planned, planned.name, per_run=per_run, kind="pairwise", note=planned.note)
        if judge.spec.controls:
            yield _of_controls(inputs, planned, judge.spec.controls)


def _judge(inputs: PlanInputs, evaluator: Evaluator, judged: Sequence[ExampleRow], cascade: Evaluator) -> _Judge | None:
    """Return the judge, or None if it calls no model.

    `cascade` contains it as a tier; for other judges, it is the judge.
    """
    spec, name, is_tier = evaluator.spec, evaluator.connection, cascade is not evaluator
    version = evaluator_version(cascade, inputs.spec.connections)
    history, past = None, None  # those of a cascade say nothing about one tier
    if not is_tier and not (evaluator.bound.is_of_all and name):  # of these one call is of many judgements
        calls_per_judgement_of = asked_by_pairwise if cascade.scope == "pair" else asked_by_judge
        history = calls_per_judgement_of(inputs.store, cascade.name, version)
        past = calls_of_judge(inputs.store, cascade.name, version)
    if name is None:
        return None if is_tier else _with_own_client(cascade.name, history, past)
    connection, embeds = inputs.connection(name), not evaluator.bound.asks_for("complete")
    if embeds and isinstance(connection, LocalConnection):
        return None  # vectors are made in this process
    model = model_of(connection, spec.model or (spec.args.get("model") if embeds else None), embeds=embeds)
    measured, requests = _judges_dry_run(inputs, evaluator, name, judged)
    repeats = spec.args.get("repeats", 1)
    assumed = history.calls_each if history else float(repeats if isinstance(repeats, int) else 1)
    return _Judge(
        name=cascade.name,
        connection=name,
        model=model,
        calls_per_judgement=assumed if measured is None else measured,
        size=size_of(
            inputs, connection, model, past, requests, by="judge", mode=mode_of(spec.mode, inputs.spec, connection)
        ),
        note=None if measured is not None else _note(history),
    )


def _with_own_client(name: str, history: CallsEach | None, past: PastCalls | None) -> _Judge | None:
    """Return a judge that calls a model with its own client; None if the store has no calls of it."""
    if history is None or not history.calls_each or past is None:
        return None
    return _Judge(
        name=name,
        connection="",
        model="",
        calls_per_judgement=history.calls_each,
        size=_size_as_before(past, past.usd, "of this judge"),
        note=_note(history),
    )


def _judges_dry_run(
    inputs: PlanInputs, evaluator: Evaluator, name: str, judged: Sequence[ExampleRow]
) -> tuple[float | None, list[RecordedRequest]]:
    """Return the calls per judgement of a built-in judge, and its requests; None if they cannot be known before the
    run."""
    spec, bound = evaluator.spec, evaluator.bound
    if not is_ours(spec) or not bound.is_async or not judged:
        return None, []
    step = -(-len(judged) // MAX_DRY_RUNS)
    by_example = judge_requests(spec, bound, name, inputs.connection(name), judged[::step])
    known = [requests for requests in by_example if requests is not None]
    requests = [request for requests in known for request in requests]
    return (len(requests) / len(known) if requests else None), requests


def _note(history: CallsEach | None) -> str:
    if history is not None:
        return f"{history.calls_each:g} calls per judgement, as in {history.times} earlier judgements"
    return "assumed: one call per judgement"


def _line(
    inputs: PlanInputs,
    judge: _Judge,
    caller: str,
    *,
    per_run: float = 0.0,
    fixed: int = 0,
    kind: CallKind = "judge",
    note: str | None = None,
) -> PlannedCalls:
    return PlannedCalls(
        caller=caller,
        kind=kind,
        connection=judge.connection or None,
        model=judge.model or None,
        per_run=per_run,
        fixed=fixed,
        calls=fixed + ceil(round(per_run * inputs.runs, 6)),
        at_most=True,
        size=judge.size,
        note=note,
    )
