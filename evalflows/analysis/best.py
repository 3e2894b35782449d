"""The best of several stored experiments by one metric, as the variants of a search on the same examples."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.figures import estimate_text
from evalflows.analysis.pairing import Scale, at_places, filled, scale_of, with_missing
from evalflows.specs.errors import MOST, InputError, names_to_choose
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES, TRIAL
from evalflows.stats.selection import Selection, WinnersFigure, select_best
from evalflows.store.queries.values import Values
from evalflows.store.records import ExperimentRow
from evalflows.store.sql import ask
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One of the compared experiments."""

    experiment_id: str
    name: str
    mean: float  # with missing values at their worst
    best_case: float  # with missing values at their best
    n_missing: int  # examples whose value it lacks
    may_be_best: bool | None  # whether it cannot be told from the best; None if there are too few examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """Which of several variants is best by a metric, and how good it is, knowing that it was chosen for its mean."""

    metric: str
    variants: Sequence[Variant]  # the best first
    baseline_experiment_id: str
    baseline: str
    mean: WinnersFigure  # with missing values at their worst
    gain: WinnersFigure | None  # over the baseline's best case; None if that is the best, or as good
    n_examples: int
    n_clusters: int | None
    n_left_out: int  # shared examples that some variant lacks, by the metric's policy (missing: leave_out)
    n_tried: int  # experiments of the store on these examples, trials excepted
    confidence_level: float
    seed: int
    method: str
    reason: str | None
    warning: str | None

    @property
    def sentences(self) -> list[str]:
        """What was found, in words."""
        first, *others = self.variants
        tried = f"; {self.n_tried} experiments in the store are on these examples" if self.n_tried else ""
        out = [f"{first.name} has the highest mean of {self.metric} of {len(self.variants)} variants{tried}"]
        if lacking := [variant for variant in self.variants if variant.n_missing]:
            many = [f"{variant.n_missing} of {self.n_examples} in {variant.name}" for variant in lacking[:MOST]]
            many += ["…"] if len(lacking) > MOST else []
            out.append(f"missing values count at their worst for their own variant: {', '.join(many)}")
        if self.n_left_out:
            out.append(f"{self.n_left_out} examples left out for a missing value of any variant (missing: leave_out)")
        if self.reason:
            return [*out, self.reason]
        level = f"{self.confidence_level:.0%}"
        alike = [variant.name for variant in others if variant.may_be_best]
        if alike:
            names = f"{', '.join(alike[:MOST])}{', …' if len(alike) > MOST else ''}"
            out.append(f"{len(alike)} other{'s' * (len(alike) > 1)} may also be the best ({level}): {names}")
        else:
            out.append(f"it is the best of these ({level})")
        out.append(f"its mean is {_text(self.mean, self.metric)}")
        if self.gain:
            out.append(f"its gain over {self.baseline} is {_text(self.gain, self.metric, signed=True)}")
        elif first.experiment_id != self.baseline_experiment_id:
            out.append(f"its gain over {self.baseline} is unknown: the missing values there allow as high a mean")
        return [*out, *([self.warning] if self.warning else [])]


def _text(figure: WinnersFigure, metric: str, *, signed: bool = False) -> str:
    naive = estimate_text(figure.naive, None, None, metric, signed=signed)
    if figure.corrected is None:
        return f"{naive}, and does not vary"
    corrected = estimate_text(figure.corrected, figure.low, figure.high, metric, signed=signed)
    return f"{corrected}, corrected for the selection (uncorrected {naive})"


def best_of(store: Store, experiments: Sequence[str], metric: str | None = None, baseline: str | None = None) -> Best:
    """Return the best of experiments, given by id, on the examples that all of them share.

    A missing value counts against its own experiment only: at the worst, unless the metric's policy leaves it out.

    Args:
        store: The store.
        experiments: Ids of at least two.
        metric: The metric. Default: the only one that an evaluator gave in all.
        baseline: The id of one of them, from which the gain is measured. Default: the first.

    Raise InputError for fewer than two experiments, for a metric that not all have, that is not comparable between
    them, is of a sample, or has missing values and no range, and if they share no example.
    """
    ids = list(dict.fromkeys([*experiments, *([baseline] if baseline else [])]))
    if len(ids) < 2:
        raise InputError("best: got one experiment, wanted at least two variants")
    reader = MetricReader(store)
    rows = [store.read("experiments", identity)[0] for identity in ids]
    spec = reader.spec(rows[0]).model_copy(update={"quarantine": []})  # it is for verdicts
    pairs = [ExperimentPair(reader=reader, spec=spec, candidate=row, baseline=rows[0]) for row in rows]
    shared = set.intersection(*({*pair.values} for pair in pairs))
    chosen = _metric(metric, [name for name in shared if name not in MEASURES], shared)
    return best_among(pairs, chosen, ids.index(baseline) if baseline else 0)


def best_among(pairs: Sequence[ExperimentPair], chosen: str, base: int) -> Best:
    """Return the best of the candidates of some pairs, which all have the first of them as baseline, by a metric of
    all; the gain is measured from the one at place `base`. Raise InputError as `best_of`."""
    rows, spec, clusters = [pair.candidate for pair in pairs], pairs[0].spec, pairs[0].clusters
    names = _names(rows)
    for row, pair in zip(rows, pairs, strict=True):
        if why := pair.why_refused(chosen) or pair.why_excluded(chosen):
            raise InputError(f"best: {chosen} of {names[row.experiment_id]}: {why.text}")
        if (pair.values[chosen].weights != 1).any():
            raise InputError(f"best: {chosen} of {names[row.experiment_id]}: got a sample, wanted all answers judged")
    scored = _scored(pairs, chosen, names)
    if not len(scored.places):
        raise InputError(f"best: got no example with a value of {chosen} in all {len(rows)} experiments")
    sign = 1.0 if spec.direction(chosen).higher_is_better else -1.0
    of_known = None if clusters is None else [clusters[place] for place in scored.places]
    ends = sorted(sign * end for end in scored.scale.bounds)
    worst, highest = (filled(sign * scored.values, scored.missing, end) for end in ends)
    found = select_best(worst, highest, baseline=base, clusters=of_known, confidence_level=spec.confidence_level)
    return Best(
        metric=chosen,
        variants=_variants(rows, names, found, sign * highest.mean(axis=0), (scored.missing > 0).sum(axis=0), sign),
        baseline_experiment_id=rows[base].experiment_id,
        baseline=names[rows[base].experiment_id],
        mean=_within(_signed(found.mean, sign), scored.scale.support),
        gain=found.gain and _signed(found.gain, sign),
        n_examples=found.n,
        n_clusters=found.n_clusters,
        n_left_out=scored.n_left_out,
        n_tried=_tried(pairs[0].reader.store, rows),
        confidence_level=found.confidence_level,
        seed=found.seed,
        method=found.method,
        reason=found.reason,
        warning=found.warning,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scored:
    """The values of the examples that all variants share and the metric applies to; arrays of shape (examples, K)."""

    places: npt.NDArray[np.intp]  # of the examples, in the first variant's snapshot
    values: Values
    missing: Values  # the share of each that is missing
    scale: Scale
    n_left_out: int


def _scored(pairs: Sequence[ExperimentPair], chosen: str, names: Mapping[str, str]) -> _Scored:
    """Return the values of a metric; raise InputError if some are missing and nothing bounds them.

    A value is also missing if the metric applies only to other variants' answers, as in a comparison of two.
    """
    places = [dict(zip(pair.matched.baseline, pair.matched.candidate, strict=True)) for pair in pairs if pair.matched]
    common = np.array(sorted(reduce(lambda some, others: some & others.keys(), places, {*places[0]})), dtype=np.intp)
    of_all = [pair.values[chosen] for pair in pairs]
    at = [np.array([of_pair[place] for place in common], dtype=np.intp) for of_pair in places]
    shared = [at_places(of, chosen) for of, chosen in zip(of_all, at, strict=True)]
    applies = np.any([np.isfinite(of.values) | of.missing for of in shared], axis=0)
    inapplicable_to_all = np.minimum.reduce([of.inapplicable_part for of in shared])
    counted = [with_missing(of, inapplicable_to_all) for of in shared]
    values = np.array([of.values for of in counted]).T
    missing = np.where(np.isfinite(values), np.array([of.missing_part for of in counted]).T, 1.0)
    telling = [of for of in of_all if of.scored] or of_all  # the others do not tell what values are possible
    scale = scale_of(telling[0], pairs[0].spec, next((of for of in telling if not of.are_0_or_1), telling[0]))
    kept = applies & ~missing.any(axis=1) if scale.leaves_out_missing else applies
    lacking = (missing[kept] > 0).sum(axis=0)
    if lacking.any() and not scale.is_bounded:
        index = int(np.argmax(lacking))
        name = names[pairs[index].candidate.experiment_id]
        got = f"got {lacking[index]} missing values of {int(kept.sum())}"
        raise InputError(f"best: {chosen} of {name}: {got}, wanted all, or a range or missing: leave_out in metrics")
    return _Scored(
        places=common[kept],
        values=values[kept],
        missing=missing[kept],
        scale=scale,
        n_left_out=int((applies & ~kept).sum()),
    )


def _names(rows: Sequence[ExperimentRow]) -> dict[str, str]:
    """Return the names of experiments; of those that share one, with the id."""
    counted = [row.name for row in rows]
    return {
        row.experiment_id: row.name if counted.count(row.name) == 1 else f"{row.name} ({row.experiment_id})"
        for row in rows
    }


def _metric(metric: str | None, of_evaluators: Sequence[str], shared: set[str]) -> str:
    if metric is None and len(of_evaluators) == 1:
        return of_evaluators[0]
    if metric is None or metric not in shared:
        known = sorted(of_evaluators)
        wanted = names_to_choose(metric or "", known) if known else "a metric that an evaluator gave in all experiments"
        raise InputError(f"metric: got {'none' if metric is None else repr(metric)}, wanted {wanted}")
    return metric


def _variants(
    rows: Sequence[ExperimentRow],
    names: Mapping[str, str],
    found: Selection,
    best_cases: Values,
    n_missing: npt.NDArray[np.intp],
    sign: float,
) -> list[Variant]:
    order = sorted(range(len(rows)), key=lambda index: (index != found.winner, -found.means[index]))
    return [
        Variant(
            experiment_id=rows[index].experiment_id,
            name=names[rows[index].experiment_id],
            mean=float(sign * found.means[index]),
            best_case=float(best_cases[index]),
            n_missing=int(n_missing[index]),
            may_be_best=None if found.reason else index in found.contenders,
        )
        for index in order
    ]


def _signed(figure: WinnersFigure, sign: float) -> WinnersFigure:
    """Return a figure in the metric's own direction."""
    if sign > 0 or figure.low is None or figure.high is None or figure.corrected is None:
        return WinnersFigure(naive=sign * figure.naive, corrected=figure.corrected, low=figure.low, high=figure.high)
    return WinnersFigure(naive=-figure.naive, corrected=-figure.corrected, low=-figure.high, high=-figure.low)


def _within(figure: WinnersFigure, support: tuple[float, float]) -> WinnersFigure:
    """Return a mean with an interval that no value of the metric lies outside of."""
    low, high = (None if end is None else min(max(end, support[0]), support[1]) for end in (figure.low, figure.high))
    return replace(figure, low=low, high=high)


def _tried(store: Store, rows: Sequence[ExperimentRow]) -> int:
    query = "select count(*) from experiments where list_contains($1, snapshot_id) and not list_contains(tags, $2)"
    (((count,),),) = ask(store, (query, [[row.snapshot_id for row in rows], TRIAL]))
    return int(count)
