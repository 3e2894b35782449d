"""The best of several stored experiments by one metric, as the variants of a search on the same examples."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from evalflows.analysis.differences import ExperimentPair, MetricReader
from evalflows.analysis.figures import estimate_text
from evalflows.analysis.pairing import scale_of
from evalflows.specs.errors import MOST, InputError, names_to_choose
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES, TRIAL
from evalflows.stats.selection import Selection, WinnersFigure, select_best
from evalflows.store.records import ExperimentRow
from evalflows.store.sql import ask
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One of the compared experiments."""

    experiment_id: str
    name: str
    mean: float  # over the examples that all variants have a value of
    may_be_best: bool | None  # whether it cannot be told from the best; None if there are too few examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """Which of several variants is best by a metric, and how good it is, knowing that it was chosen for its mean."""

    metric: str
    variants: Sequence[Variant]  # the best first
    baseline_experiment_id: str
    baseline: str
    mean: WinnersFigure
    gain: WinnersFigure | None  # over the baseline; None if that is the best
    n_examples: int
    n_clusters: int | None
    n_left_out: int  # shared examples that some variant has no value of
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
        if self.n_left_out:
            out.append(f"examples left out because a variant has no value for them: {self.n_left_out}")
        return [*out, *([self.warning] if self.warning else [])]


def _text(figure: WinnersFigure, metric: str, *, signed: bool = False) -> str:
    naive = estimate_text(figure.naive, None, None, metric, signed=signed)
    if figure.corrected is None:
        return f"{naive}, and does not vary"
    corrected = estimate_text(figure.corrected, figure.low, figure.high, metric, signed=signed)
    return f"{corrected}, corrected for the selection (uncorrected {naive})"


def best_of(store: Store, experiments: Sequence[str], metric: str | None = None, baseline: str | None = None) -> Best:
    """Return the best of experiments, given by id, on the examples that all of them share.

    Args:
        store: The store.
        experiments: Ids of at least two.
        metric: The metric. Default: the only one that an evaluator gave in all.
        baseline: The id of one of them, from which the gain is measured. Default: the first.

    Raise InputError for fewer than two experiments, for a metric that not all have, that is not comparable between
    them, or is of a sample, and if they share no example.
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
    places = [dict(zip(pair.matched.baseline, pair.matched.candidate, strict=True)) for pair in pairs if pair.matched]
    common = sorted(reduce(lambda some, others: some & others.keys(), places, {*places[0]}))
    columns = [[*(pair.values[chosen].values[at[i]] for i in common)] for pair, at in zip(pairs, places, strict=True)]
    values = np.array(columns, dtype=np.float64).reshape(len(rows), -1).T
    known = np.flatnonzero(np.isfinite(values).all(axis=1))
    if not len(known):
        raise InputError(f"best: got no example with a value of {chosen} in all {len(rows)} experiments")
    sign = 1.0 if spec.direction(chosen).higher_is_better else -1.0
    of_known = None if clusters is None else [clusters[common[i]] for i in known]
    found = select_best(sign * values[known], baseline=base, clusters=of_known, confidence_level=spec.confidence_level)
    return Best(
        metric=chosen,
        variants=_variants(rows, names, found, sign),
        baseline_experiment_id=rows[base].experiment_id,
        baseline=names[rows[base].experiment_id],
        mean=_within(_signed(found.mean, sign), scale_of(pairs[0].values[chosen], spec).support),
        gain=found.gain and _signed(found.gain, sign),
        n_examples=found.n,
        n_clusters=found.n_clusters,
        n_left_out=len(common) - found.n,
        n_tried=_tried(pairs[0].reader.store, rows),
        confidence_level=found.confidence_level,
        seed=found.seed,
        method=found.method,
        reason=found.reason,
        warning=found.warning,
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


def _variants(rows: Sequence[ExperimentRow], names: dict[str, str], found: Selection, sign: float) -> list[Variant]:
    order = sorted(range(len(rows)), key=lambda index: (index != found.winner, -found.means[index]))
    return [
        Variant(
            experiment_id=rows[index].experiment_id,
            name=names[rows[index].experiment_id],
            mean=float(sign * found.means[index]),
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
