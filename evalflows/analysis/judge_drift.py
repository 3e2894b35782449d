"""Whether a judge has drifted, or the system that it judges: from its judgements of anchors, whose scores are known,
and from its scores of new answers.

If only the system has changed, the judge says the same of the anchors as before. If the judge has changed, the scores
of new answers change with it: what is left of their change beyond that on the anchors is the system's.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalflows.analysis.comparability import JUDGE_DRIFT, JUDGE_LOST, Difference
from evalflows.analysis.figures import figure
from evalflows.analysis.judge_exclusions import Exclusion, OnceJudged
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import FloatArray
from evalflows.stats.e_processes import STEP, Bets, StreamEvidence, moved_p_value, stream_evidence
from evalflows.stats.proportions import normal_quantile
from evalflows.store.records import CheckRow, ExperimentRow, Reason, derived_id, drift_batch, to_json
from evalflows.store.store import Store

ALPHA = 0.05
"""The share of streams without a change, of up to HORIZON anchors, that may raise an alarm."""

AT_ONCE = 0.01
"""The level of the tests of a run's anchors against the baseline's and against all before, besides that evidence."""

FEWEST = 10
"""Anchors since a change of the scores from which it is said whether the judge or the system has changed."""

SURE = 0.99
"""The level at which a judge's change does not explain that of the scores."""

TOLD_APART = 0.2
"""The least difference between a judge's mean scores of good and bad anchors, as a share of that of the known ones."""

DRAWS = 500
"""Resamples of the anchors."""

FLATTEST = 0.1
"""The slope of a judge's scores in the known ones from which it can be told what it made of true scores."""

MOST_LEVELS = 5
"""Different scores up to which each is bet on."""

MOST_VALUES = 2_000
"""Values of a stream of scores; of more, the means of blocks are looked at."""

MOST_ANCHORS = 5_000
"""The newest anchors that are looked at."""

FEW = 20
"""Anchors of good, or of bad, answers below which a judge may have changed on them unseen."""

Changed = Literal["none", "system", "judge", "both"]


class AnchorStream(NamedTuple):
    """A judge's scores of anchors, in the order in which they were given."""

    values: FloatArray
    known: FloatArray
    anchors: NDArray[np.int64]  # which anchor, as a number
    moments: NDArray[Any]  # ascending; as those of the scores

    def of(self, places: slice | NDArray[Any]) -> "AnchorStream":
        return AnchorStream(self.values[places], self.known[places], self.anchors[places], self.moments[places])


class ScoreStream(NamedTuple):
    """A judge's scores of new answers, in the order in which they were given."""

    values: FloatArray
    moments: NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The means before and after a moment, and their difference; of subjects on both sides, the mean of their own."""

    before: float
    after: float
    n_before: int
    n_after: int
    difference: float
    standard_error: float  # of the difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What has changed, if anything: the judge, the system, or both."""

    changed: Changed | None  # None: the scores have changed, and too few anchors were judged since to tell why
    n_anchors: int
    n_scores: int
    judge: StreamEvidence
    system: StreamEvidence | None = None
    since: Any = None  # the moment of the first value after the change
    seen_at: Any = None  # the moment with which it is called
    of_anchors: Shift | None = None  # of the judge's score minus the known one
    of_scores: Shift | None = None
    n_good: int = 0  # of the anchors, those of which the known score is in the upper half


class Explained(NamedTuple):
    """By how much the scores changed more than the judge's change explains, with its standard error."""

    rest: float
    standard_error: float

    def is_more(self, level: float) -> bool:
        return abs(self.rest) > normal_quantile(level) * self.standard_error


def drift_in(
    anchors: AnchorStream,
    scores: ScoreStream | None = None,
    *,
    scale: float = 1.0,
    begins: Sequence[int] | None = None,
) -> Drift:
    """Return whether the judge, the system or both have changed in the course of two streams.

    `scale` is the width of the range of scores, and `begins` are the numbers of the anchors with which a judge may have
    changed; see `stream_evidence`.
    """
    judge = judge_evidence(anchors, scale, begins=begins)
    system = None if scores is None else _score_evidence(scores, scale)
    nothing = Drift(
        changed="none",
        n_anchors=len(anchors.values),
        n_scores=0 if scores is None else len(scores.values),
        judge=judge,
        system=system,
        n_good=int(_is_good(anchors).sum()),
    )
    of_judge = None if judge.change is None else anchors.moments[judge.change]
    of_system = None if system is None or system.change is None or scores is None else scores.moments[system.change]
    if of_judge is None and of_system is None:
        return nothing
    if of_judge is None and _moved(anchors, anchors.moments >= of_system, scale) <= AT_ONCE:
        of_judge = of_system  # a moment that the anchors alone do not single out
    since = of_judge if of_judge is not None else of_system
    of_anchors = _shift(anchors.values - anchors.known, anchors.moments >= since, anchors.anchors)
    of_scores = None if scores is None else _shift(scores.values, scores.moments >= since)
    alarms = [anchors.moments[judge.alarm]] if judge.alarm is not None else []
    if system is not None and system.alarm is not None and scores is not None:
        alarms.append(scores.moments[system.alarm])
    changed = _changed(of_judge is not None, of_system is not None, _explained(anchors, of_scores, since), of_anchors)
    return replace(
        nothing, changed=changed, since=since, seen_at=min(alarms), of_anchors=of_anchors, of_scores=of_scores
    )


def drift_of(
    judged: Sequence[float],
    known: Sequence[float],
    *,
    anchors: Sequence[object] | None = None,
    scores: Sequence[float] = (),
    moments: Sequence[Any] | None = None,
    score_moments: Sequence[Any] | None = None,
    scale: float | None = None,
) -> Drift:
    """Return whether a judge, or the system that it judges, has changed in the course of these scores.

    Args:
        judged: The judge's scores of answers whose scores are known, in the order in which they were given; shape (n,).
        known: The known scores, in the same order and unit; shape (n,).
        anchors: Which answer each is of, if some were judged more than once; default: each another; shape (n,).
        scores: The judge's scores of new answers, in order; shape (m,). Without them only the judge is looked at.
        moments: When each of `judged` was given, ascending; default: evenly spread among `scores`; shape (n,).
        score_moments: When each of `scores` was given, in the same unit; default: their numbers; shape (m,).
        scale: The width of the scores' range; default: that of all given.

    Raise ValueError for sequences of different lengths.
    """
    if not len(judged) == len(known) == len(anchors if anchors is not None else judged):
        raise ValueError(f"got {len(judged)} judged and {len(known)} known scores, wanted as many, and as many anchors")
    n, m = len(judged), len(scores)
    at = np.asarray(moments) if moments is not None else (np.arange(n) + 0.5) * (m / n if m and n else 1)
    numbers = np.arange(n) if anchors is None else np.unique([*map(str, anchors)], return_inverse=True)[1]
    stream = AnchorStream(np.asarray(judged, float), np.asarray(known, float), numbers.astype(np.int64), at)
    of_scores = np.arange(m) if score_moments is None else np.asarray(score_moments)
    both = np.concatenate([stream.values, stream.known])
    width = scale or (float(np.ptp(both)) if n else 0.0) or 1.0
    return drift_in(stream, ScoreStream(np.asarray(scores, float), of_scores) if m else None, scale=width)


def _changed(by_judge: bool, by_system: bool, explained: Explained | None, anchors: Shift | None) -> Changed | None:
    """Return what has changed. The scores' change beyond what the judge's own explains is the system's."""
    if not by_system or explained is None:
        return "judge" if by_judge else "none"
    if by_judge:
        return "both" if explained.is_more(SURE) else "judge"
    is_moved = anchors is not None and abs(anchors.difference) > normal_quantile(1 - ALPHA) * anchors.standard_error
    if anchors is None or anchors.n_after < FEWEST or is_moved or not explained.is_more(1 - ALPHA):
        return None
    return "system"


def _explained(anchors: AnchorStream, scores: Shift | None, since: Any) -> Explained | None:
    """Return how much of the change of scores is beyond what the judge's change on the anchors explains.

    The judge's score is taken as linear in the known one, before and after, as in Rogan and Gladen (1978) for yes and
    no: that gives the mean of the answers' true scores before, and what the judge of today would make of it. The
    standard error is of resampled anchors, each with all its judgements.
    """
    is_after = anchors.moments >= since
    if scores is None or not is_after.any() or is_after.all():
        return None
    n_anchors = int(anchors.anchors.max()) + 1
    drawn = np.random.default_rng(len(is_after)).multinomial(n_anchors, np.full(n_anchors, 1 / n_anchors), DRAWS)
    weights = np.vstack([np.ones(n_anchors), drawn])[:, anchors.anchors].astype(float)
    lines = [_lines(weights * side, anchors.known, anchors.values) for side in (~is_after, is_after)]
    (slope, offset), (slope_after, offset_after) = lines
    with np.errstate(divide="ignore", invalid="ignore"):
        is_steep = slope > FLATTEST
        true = np.where(is_steep, (scores.before - offset) / np.where(is_steep, slope, 1.0), scores.before)
        expected = np.where(is_steep, offset_after + slope_after * true, scores.before + offset_after - offset)
    shifts = expected[np.isfinite(expected)] - scores.before
    if len(shifts) < 2:
        return None
    error = float(np.hypot(shifts[1:].std(ddof=1), scores.standard_error))
    return Explained(scores.difference - float(shifts[0]), error)


def _lines(weights: FloatArray, known: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return slope and offset of the weighted least squares of values on known scores, for each row of weights."""
    n, sum_k, sum_v, sum_kv, sum_kk = (
        weights @ column for column in (np.ones(len(known)), known, values, known * values, known * known)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = n * sum_kk - sum_k**2
        slope = np.where(spread > 0, (n * sum_kv - sum_k * sum_v) / spread, 0.0)
        return slope, (sum_v - slope * sum_k) / n


def _moved(stream: AnchorStream, is_after: NDArray[np.bool_], scale: float) -> float:
    """Return the p-value of a test that the judgements of anchors after a moment are like those before."""
    if not is_after.any() or is_after.all():
        return 1.0
    errors, values = (stream.values - stream.known) / scale, stream.values / scale
    means = _means(errors, stream.anchors)
    own = errors - np.array([means[anchor] for anchor in stream.anchors.tolist()])
    features = [errors, np.abs(errors), values, own]
    return moved_p_value([f[~is_after] for f in features], [f[is_after] for f in features], seed=len(is_after))


def judge_evidence(
    stream: AnchorStream, scale: float, *, begins: Sequence[int] | None = None, at_once: bool = False
) -> StreamEvidence:
    """Return the evidence that a judge has changed: in its scores, in their errors, and of the same anchors."""
    errors, values, anchors = (stream.values - stream.known) / scale, stream.values / scale, stream.anchors
    bets = [
        Bets([errors, np.abs(errors), *_levels(values)]),
        Bets([values, np.abs(errors)], anchors),
        Bets([values], anchors, apart=True),
    ]
    return stream_evidence(len(values), bets, ALPHA, begins=begins, at_once=at_once)


def _levels(values: FloatArray) -> list[FloatArray]:
    """Return the values as features: of few different ones, which of these it is."""
    levels = np.unique(values)
    return [(values == level) * 1.0 for level in levels] if 2 < len(levels) <= MOST_LEVELS else [values]


def _score_evidence(scores: ScoreStream, scale: float) -> StreamEvidence:
    values, size = scores.values / scale, -(-len(scores.values) // MOST_VALUES)
    if size <= 1:
        return stream_evidence(len(values), [Bets(_levels(values))], ALPHA)
    n_blocks = len(values) // size
    means = values[: n_blocks * size].reshape(n_blocks, size).mean(axis=1) * np.sqrt(size)
    found = stream_evidence(n_blocks, [Bets([means])], ALPHA)
    alarm = None if found.alarm is None else (found.alarm + 1) * size - 1  # a block is known with its last value
    return StreamEvidence(found.evidence, alarm, None if found.change is None else found.change * size)


def _shift(values: FloatArray, is_after: NDArray[np.bool_], subjects: NDArray[np.int64] | None = None) -> Shift | None:
    """Return the shift of a mean; of subjects with values on both sides, by their own means, if there are enough."""
    before, after = values[~is_after], values[is_after]
    if not len(before) or not len(after):
        return None
    difference = float(after.mean() - before.mean())
    error = float(np.sqrt(sum(side.var(ddof=1) / len(side) if len(side) > 1 else np.inf for side in (before, after))))
    if subjects is not None:
        sides = [_means(values[side], subjects[side]) for side in (~is_after, is_after)]
        shared = sorted(sides[0].keys() & sides[1].keys())
        if len(shared) >= FEWEST:
            own = np.array([sides[1][subject] - sides[0][subject] for subject in shared])
            difference, error = float(own.mean()), float(own.std(ddof=1) / np.sqrt(len(shared)))
    return Shift(
        before=float(before.mean()),
        after=float(after.mean()),
        n_before=int((~is_after).sum()),
        n_after=int(is_after.sum()),
        difference=difference,
        standard_error=error,
    )


def _means(values: FloatArray, subjects: NDArray[np.int64]) -> dict[int, float]:
    names, places = np.unique(subjects, return_inverse=True)
    sums = np.bincount(places, values) / np.bincount(places)
    return dict(zip(names.tolist(), sums.tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeStream:
    """What a version of a judge said of anchors, with the runs in which it did."""

    metric: str
    evaluator: str
    version: str
    stream: AnchorStream
    runs: NDArray[Any]  # the run group, the comparison or the batch of each

    @property
    def scale(self) -> float:
        """The width of the range of the scores, as far as they are known."""
        both = np.concatenate([self.stream.values, self.stream.known])
        return float(np.ptp(both)) or 1.0


_STREAMS = """
select evaluator, metric, evaluator_version, snapshot_id, list(value order by judged_at, sentinel_id),
       list(known order by judged_at, sentinel_id), list(example_id order by judged_at, sentinel_id),
       list(judged_at order by judged_at, sentinel_id), list(run_id order by judged_at, sentinel_id)
from source.sentinels
where status = 'scored' and value is not null and (evaluator_version, snapshot_id) in (
    select (evaluator_version, snapshot_id) from source.sentinels where list_contains($1, run_id))
group by all
"""


def judge_streams(store: Store, runs: Sequence[str]) -> list[JudgeStream]:
    """Return what the judges of some run groups, comparisons or batches said of their anchors, ever."""
    found = []
    for evaluator, metric, version, _, values, known, examples, moments, of in store.query(_STREAMS, [[*runs]]):
        newest = slice(-MOST_ANCHORS, None)
        numbers = np.unique(examples, return_inverse=True)[1].astype(np.int64)
        stream = AnchorStream(np.array(values), np.array(known), numbers, np.array(moments))
        found.append(
            JudgeStream(
                metric=metric,
                evaluator=evaluator,
                version=version,
                stream=stream.of(newest),
                runs=np.array(of)[newest],
            )
        )
    return found


def drift_since(judge: JudgeStream, baseline: str, candidate: str) -> Drift | None:
    """Return the drift of a judge from the run of the baseline to that of the candidate; None if it has not drifted.

    Either all anchors since then show it, or those of the candidate differ from those of the baseline.
    """
    stream, scale = judge.stream, judge.scale
    of_baseline, of_candidate = (np.nonzero(judge.runs == owner)[0] for owner in (baseline, candidate))
    if not len(of_baseline) or not len(of_candidate):
        return None
    first, last = int(of_baseline[-1]) + 1, int(of_candidate[-1]) + 1
    until = stream.of(slice(last))
    begins = [begin for begin in _begins(judge.runs[:last]) if begin >= first] or [first]
    evidence = judge_evidence(until, scale, begins=begins, at_once=True)
    both = stream.of(np.concatenate([of_baseline, of_candidate]))
    is_after = np.arange(len(both.values)) >= len(of_baseline)
    of_all = judge.runs[:last] == candidate
    p = 2 * min(_moved(both, is_after, scale), _moved(until, of_all, scale))  # Bonferroni
    if evidence.alarm is None and p > AT_ONCE:
        return None
    begin = evidence.change if evidence.change is not None else int(of_candidate[0])
    since = stream.moments[begin]
    return Drift(
        changed="judge",
        n_anchors=last,
        n_scores=0,
        judge=evidence,
        since=since,
        seen_at=stream.moments[last - 1 if evidence.alarm is None else evidence.alarm],
        of_anchors=_shift(both.values - both.known, is_after),
    )


def _begins(runs: NDArray[Any]) -> list[int]:
    """Return the numbers of the anchors with which a judge may have changed: each run's first, and every STEP."""
    starts = np.nonzero(runs[1:] != runs[:-1])[0] + 1
    return sorted({*starts.tolist(), *range(0, len(runs), STEP)})


def _is_good(stream: AnchorStream) -> NDArray[np.bool_]:
    if not len(stream.known):
        return np.zeros(0, dtype=np.bool_)
    low, high = float(stream.known.min()), float(stream.known.max())
    return np.asarray(stream.known > (low + high) / 2 if low < high else stream.known > 0)


def tells_apart(stream: AnchorStream) -> bool:
    """Return whether a judge scores good anchors higher than bad ones, as far as there are both."""
    is_good = _is_good(stream)
    if not is_good.any() or is_good.all():
        return True
    between = stream.values[is_good].mean() - stream.values[~is_good].mean()
    return bool(between >= TOLD_APART * np.ptp(stream.known))


def once_judged(store: Store, runs: Sequence[str]) -> dict[tuple[str, str], OnceJudged]:
    """Return the scores that today's judge would not give, by its version and metric: those of experiments that began
    before its last drift, and all of a judge of these runs that has not scored good anchors higher than bad ones since.
    """
    found = {}
    for evaluator, metric, version, since in store.query(_KNOWN, [NAME, ""]):
        reason = Reason("judge_drifted", f"the judge of {metric} has drifted since {since:%Y-%m-%d %H:%M}")
        found[version, metric] = OnceJudged(since, Exclusion(judge=evaluator, reason=reason))
    for judge in judge_streams(store, runs):
        key, stream = (judge.version, judge.metric), judge.stream
        if (drifted := found.get(key)) is not None and drifted.before is not None:
            stream = stream.of(stream.moments >= drifted.before)
        if len(stream.values) >= FEWEST and not tells_apart(stream):
            reason = Reason("judge_failed_validation", f"the judge of {judge.metric} {_BLIND}")
            found[key] = OnceJudged(None, Exclusion(judge=judge.evaluator, reason=reason))
    return found


_BLIND = "does not distinguish good anchors from bad ones"


def drift_differences(
    streams: Callable[[Sequence[str]], Sequence[JudgeStream]],
    candidate: ExperimentRow,
    baseline: ExperimentRow,
    spec: ExperimentSpec,
) -> list[Difference]:
    """Return the metrics whose judge has drifted since it judged the baseline, and the composites of them.

    Of a judge with anchors that did not judge any in the baseline's run, that is said.
    """
    anchored = {judge.metric for judge in spec.evaluators if judge.anchors is not None}
    if not anchored or candidate.run_group == baseline.run_group:
        return []
    found: dict[str, str] = {}
    lost: set[str] = set()
    for judge in streams([candidate.run_group, baseline.run_group]):
        drift = drift_since(judge, baseline.run_group, candidate.run_group)
        if drift is not None:
            found[judge.metric] = drift_text(judge.metric, drift)
            if not tells_apart(judge.stream.of(judge.runs == candidate.run_group)):
                found[judge.metric] += f"; it {_BLIND}"
                lost.add(judge.metric)
    unknown = anchored - {
        judge.evaluator
        for judge in streams([baseline.run_group])
        if baseline.run_group in judge.runs and candidate.run_group in judge.runs
    }
    dependent = {
        composite.name: (part, f"{composite.name} depends on {part}; {found[part]}")
        for composite in spec.composites
        for part in sorted(composite.metrics & found.keys())[:1]
    }
    return [
        *(
            Difference(what=JUDGE_LOST if part in lost else JUDGE_DRIFT, text=text, metric=name, refuses=True)
            for name, (part, text) in ({metric: (metric, text) for metric, text in found.items()} | dependent).items()
        ),
        *(Difference(what="anchors", text=_UNKNOWN.format(metric), metric=metric) for metric in sorted(unknown)),
    ]


_UNKNOWN = "it is unknown whether the judge of {} has drifted: it did not judge the same anchors with the baseline"


def drift_text(metric: str, drift: Drift) -> str:
    """Return what has changed, in words."""
    since = f" since {drift.since:%Y-%m-%d %H:%M}" if isinstance(drift.since, datetime) else ""
    on_anchors, on_scores = drift.of_anchors, drift.of_scores
    if drift.changed == "none":
        return f"no evidence of drift of the judge of {metric} on {drift.n_anchors} anchors{_few(drift)}"
    said = "" if on_anchors is None else f": {_means_in_words(metric, on_anchors)}"
    if drift.changed == "judge":
        return f"the judge of {metric} has drifted{since}{said}"
    scores = (
        "" if on_scores is None else f" from {figure(on_scores.before, metric)} to {figure(on_scores.after, metric)}"
    )
    if drift.changed is None:
        n = on_anchors.n_after if on_anchors else 0
        return f"{metric}: the scores went{scores}{since}; {n} anchors since do not show whether the judge has drifted"
    what = "the system has changed, not the judge" if drift.changed == "system" else "the system and the judge changed"
    return f"{metric}: {what}{since}: scores went{scores}{said.replace(':', ';', 1)}"


def _few(drift: Drift) -> str:
    """Return that anchors of one kind, on which the judge could have changed unseen, are few; empty if neither are."""
    kinds = {"bad": drift.n_anchors - drift.n_good, "good": drift.n_good}
    kind = min(kinds, key=kinds.__getitem__)
    return (
        f", of which {f'only {kinds[kind]}' if kinds[kind] else 'none'} of {kind} answers" if kinds[kind] < FEW else ""
    )


def _means_in_words(metric: str, shift: Shift) -> str:
    before, after = (figure(mean, metric, signed=True) for mean in (shift.before, shift.after))
    n = f"{shift.n_after} anchor{'s' if shift.n_after != 1 else ''}"
    return f"on {n} it is off by {after} on average, by {before} on {shift.n_before} before"


NAME = "drift"
"""The name of the checks of judges' drift."""

_KNOWN = """
select c.subject_id, c.column_name, c.observed ->> 'version', max((c.observed ->> 'since')::timestamptz)
from source.checks c where c.name = $1 and c.subject_kind = 'judge' and c.passed = false and c.batch_id <> $2
group by all
"""

_SCORES = """
select epoch_us(recorded_at) as moment, value from source.judgements
where starts_with(experiment_id, $1) and metric = $2 and evaluator_version = $3 and status = 'scored'
      and value is not null and turn is null
order by moment, judgement_id
"""


def publish_drift(
    store: Store, run_id: str, *, evaluation: str | None = None, flow_run_id: str | None = None
) -> list[CheckRow]:
    """Publish what the anchors of a run say of each of its judges, a check that fails if the judge has drifted.

    A drift that an earlier run has found is over: only anchors since then are looked at. Of production, the scores of
    its items say whether the system has changed.

    Args:
        store: The store.
        run_id: The run group, the comparison or the batch.
        evaluation: The id of the trace evaluation whose scores are looked at.
        flow_run_id: Of the flow run that checks.
    """
    streams = judge_streams(store, [run_id])
    if not streams:
        return []
    batch = drift_batch(run_id)
    known = {tuple(key): since for *key, since in store.query(_KNOWN, [NAME, batch])}
    rows = []
    for judge in streams:
        begin = known.get((judge.evaluator, judge.metric, judge.version))
        since = np.ones(len(judge.runs), bool) if begin is None else judge.stream.moments >= begin
        stream, begins = judge.stream.of(since), _begins(judge.runs[since])
        scores = None if evaluation is None else _scores(store, evaluation, judge, begin)
        drift = drift_in(stream, scores, scale=judge.scale, begins=begins)
        has_drifted = drift.changed in ("judge", "both")
        rows.append(
            CheckRow(
                check_id=derived_id(batch, judge.metric, judge.version),
                batch_id=batch,
                subject_kind="judge",
                subject_id=judge.evaluator,
                name=NAME,
                column_name=judge.metric,
                passed=None if drift.changed is None else not has_drifted,
                severity="warning",
                n_checked=drift.n_anchors,
                observed=to_json(_figures(run_id, judge, drift)),
                message=drift_text(judge.metric, drift),
                reason_code="judge_drifted" if has_drifted else None,
                flow_run_id=flow_run_id,
            )
        )
    store.publish("checks", batch, rows)
    return rows


def _scores(store: Store, evaluation: str, judge: JudgeStream, begin: datetime | None) -> ScoreStream:
    columns = store.columns(_SCORES, [f"{evaluation}-", judge.metric, judge.version])
    values = np.asarray(columns["value"], dtype=np.float64)
    moments = _moments(np.asarray(columns["moment"], dtype=np.int64).tolist())
    is_since = np.full(len(values), fill_value=True) if begin is None else moments >= begin
    return ScoreStream(values[is_since], moments[is_since])


def _moments(microseconds: Sequence[int]) -> NDArray[Any]:
    return np.array([datetime.fromtimestamp(moment / 1e6, UTC) for moment in microseconds], dtype=object)


def _figures(run_id: str, judge: JudgeStream, drift: Drift) -> dict[str, Any]:
    anchors, scores = drift.of_anchors, drift.of_scores
    moments = {"since": drift.since, "seen_at": drift.seen_at}
    return {
        "run_id": run_id,
        "version": judge.version,
        "changed": drift.changed,
        **{name: moment and moment.isoformat() for name, moment in moments.items()},
        "n_since": anchors and anchors.n_after,
        "error_before": anchors and anchors.before,
        "error": anchors and anchors.after,
        "error_standard_error": anchors.standard_error if anchors and np.isfinite(anchors.standard_error) else None,
        "score_before": scores and scores.before,
        "score": scores and scores.after,
        "evidence": float(drift.judge.evidence[-1]) if len(drift.judge.evidence) else None,
    }
