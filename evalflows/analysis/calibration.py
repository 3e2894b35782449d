"""The weights of a composite that order cases as people ranked or labelled them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest

import numpy as np

from evalflows.analysis.robustness import parts_of, scores_by_example
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metrics import CompositeSpec
from evalflows.stats.weights import CalibratedWeights, calibrated_weights, checked_weights, normalised, run_parts
from evalflows.store.queries.labels import labelled_composites
from evalflows.store.queries.looks import final_ids
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.queries.trace_evaluations import newest_spec
from evalflows.store.records import CheckRow, ExperimentRow, derived_id, to_json
from evalflows.store.row_specs import experiment_spec
from evalflows.store.store import Store

BY_LABELS = "weights_by_labels"
"""Name of the check of declared weights, and of its batches."""

MOST_CASES = 150
"""Labelled cases that weights are fitted to: pairs grow with their square."""


@dataclass(frozen=True, slots=True)
class Case:
    """A case with its rank, low for the best, and the scaled parts of each of its runs."""

    rank: float
    runs: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedMetric:
    """A metric's weight as it is declared and as ranked cases say, with its interval; None if they do not say."""

    metric: str
    declared: float
    weight: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The weights of a composite by ranked cases."""

    experiment_id: str
    composite: str
    n_cases: int
    n_left_out: int  # ranked or labelled cases without the composite
    n_final: int  # those of final examples, left out because weights fitted to them would be tested on them
    agreement: float | None  # the share of pairs of cases in people's order by the weights
    agreement_declared: float | None  # by the declared ones
    agreement_out_of_sample: float | None  # of cases that the weights were not fitted to
    p_value: float | None
    metrics: Sequence[CalibratedMetric]
    reason: str | None
    sentences: Sequence[str]


def calibrate(store: Store, experiment: str, composite: str | None, ranks: Mapping[str, float]) -> Calibration:
    """Return the weights of an experiment's composite under which its cases are in the order of `ranks`.

    `ranks` are those of examples by id, 1 for the best; final examples are left out. Without a name, the only composite
    is meant. Raise InputError for a composite without weights, and if fewer than two cases are left that have it.
    """
    row: ExperimentRow = store.read("experiments", experiment)[0]
    spec = _composite(experiment_spec(row).composites, composite)
    by_example = scores_by_example(store.read("judgements", experiment), spec.name)
    final = final_ids(store, [experiment]) & ranks.keys()
    allowed = {example: rank for example, rank in ranks.items() if example not in final}
    cases = [
        Case(rank, [parts_of(score.metadata, [*spec.weights]) for score in by_example[example]])
        for example, rank in allowed.items()
        if example in by_example
    ]
    return _calibrated(experiment, spec, cases, "ranked", n_final=len(final), n_left_out=len(allowed) - len(cases))


def calibrate_by_labels(store: Store, reference: str, composite: str | None, metric: str) -> Calibration:
    """Return the weights of a composite under which its answers are in the order of what people, or users, said of them
    as `metric`.

    The answers are those of an experiment, except to final examples, or the traces, observations or sessions of a trace
    evaluation. Of more than MOST_CASES, as many are drawn at random, evenly over the labels. Raise InputError as
    `calibrate` does.
    """
    if (evaluation := newest_spec(store, reference)) is not None:
        identity, composites = evaluation[0], evaluation[1].composites
    else:
        (identity,) = find_experiments(store, reference, just_one=True)
        composites = experiment_spec(store.read("experiments", identity)[0]).composites
    spec = _composite(composites, composite)
    labelled = labelled_composites(store, identity, spec.name, metric)
    if not labelled:
        raise InputError(f"labels: got none of {metric!r} in {reference!r}, wanted numbers, or yes and no")
    final = final_ids(store, [identity])
    allowed = [one for one in labelled if one.example_id not in final]
    cases = [Case(-one.label, [parts_of(one.metadata, [*spec.weights])]) for one in allowed if one.metadata is not None]
    n_final, n_left_out = len(labelled) - len(allowed), len(allowed) - len(cases)
    return _calibrated(identity, spec, _drawn(cases), "labelled", n_final=n_final, n_left_out=n_left_out)


def calibration_check(found: Calibration, labels: str) -> CheckRow:
    """Check that each declared weight is in the interval that labels say; None if they say no weights."""
    outside = [one for one in found.metrics if one.low is not None and not one.low <= one.declared <= (one.high or 0.0)]
    said = [
        f"the weight of {one.metric} is declared as {one.declared:.2f}, and {one.low:.2f} to {one.high:.2f} by {labels}"
        for one in outside
    ]
    batch = f"{BY_LABELS}-{found.experiment_id}"
    return CheckRow(
        check_id=derived_id(batch, found.composite, labels),
        batch_id=batch,
        subject_kind="experiment",
        subject_id=found.composite,
        name=BY_LABELS,
        passed=None if found.reason else not outside,
        severity="warning",
        n_checked=len(found.metrics),
        n_unexpected=len(outside),
        observed=to_json(asdict(found)),
        expected=to_json({one.metric: one.declared for one in found.metrics}),
        message="; ".join([*found.sentences, *said]),
    )


def _drawn(cases: Sequence[Case]) -> list[Case]:
    """Return at most MOST_CASES, drawn at random, as many of each label as there are."""
    shuffled = [cases[place] for place in np.random.default_rng(0).permutation(len(cases))]
    of_label = [*grouped((case.rank, case) for case in shuffled).values()]
    in_turn = [case for turn in zip_longest(*of_label) for case in turn if case is not None]
    return in_turn[:MOST_CASES]


def _composite(composites: Sequence[CompositeSpec], name: str | None) -> CompositeSpec:
    """Return the composite of a name, or the only one. Raise InputError if it has no weights to calibrate."""
    known = {composite.name: composite for composite in composites if composite.weights}
    if name is None and len(known) == 1:
        name = next(iter(known))
    if name not in known:
        got = "none" if name is None else repr(name)
        wanted = f"one of {', '.join(known)}" if known else "a spec with a composite, under `composites`"
        raise InputError(f"composite: got {got}, wanted {wanted}")
    spec = known[name]
    if spec.function is not None or spec.aggregation == "minimum" or len(spec.weights) < 2:
        raise InputError(f"composite {name!r}: has no weights to calibrate, wanted a mean of at least two metrics")
    return spec


def _calibrated(
    identity: str, spec: CompositeSpec, cases: Sequence[Case], how: str, *, n_final: int, n_left_out: int
) -> Calibration:
    composite = spec.name
    if len(cases) < 2:
        final = f" ({n_final} are of final examples, which are left out)" if n_final else ""
        raise InputError(f"composite {composite!r}: got {len(cases)} {how} cases that have it, wanted more{final}")
    runs = run_parts(
        [parts for case in cases for parts in case.runs],
        [number for number, case in enumerate(cases) for _ in case.runs],
        aggregation=spec.aggregation,
    )
    order = [case.rank for case in cases]
    found = calibrated_weights(runs, order)
    declared = checked_weights([*spec.weights.values()], len(spec.weights))
    by_declared = _agreement(runs.scores(normalised(declared))[0].tolist(), order)
    none = (None,) * len(declared)
    return Calibration(
        experiment_id=identity,
        composite=composite,
        n_cases=len(cases),
        n_left_out=n_left_out,
        n_final=n_final,
        agreement=found.agreement,
        agreement_declared=by_declared,
        agreement_out_of_sample=found.out_of_sample,
        p_value=found.p_value,
        metrics=[
            CalibratedMetric(metric=metric, declared=was, weight=weight, low=low, high=high)
            for metric, was, weight, low, high in zip(
                spec.weights,
                declared.tolist(),
                found.weights or none,
                found.low or none,
                found.high or none,
                strict=True,
            )
        ],
        reason=found.reason,
        sentences=_sentences(composite, found, by_declared, how),
    )


def _agreement(scores: Sequence[float], ranks: Sequence[float]) -> float | None:
    """Return the share of pairs of cases whose scores are in the order of the ranks; a tie of scores is one half."""
    pairs = [
        (score - other) * (theirs - mine)
        for number, (score, mine) in enumerate(zip(scores, ranks, strict=True))
        for other, theirs in zip(scores[number + 1 :], ranks[number + 1 :], strict=True)
        if mine != theirs
    ]
    return sum(0.5 if pair == 0 else float(pair > 0) for pair in pairs) / len(pairs) if pairs else None


def _sentences(composite: str, found: CalibratedWeights, declared: float | None, how: str) -> list[str]:
    if found.weights is None:
        chance = "" if found.p_value is None else f" (p = {found.p_value:.2g}, {found.n_cases} cases)"
        return [f"{composite}: no weights: {found.reason}{chance}"]
    by_declared = "" if declared is None else f", and {declared:.0%} by the declared ones"
    sentences = [
        f"{composite}: {found.agreement:.0%} of the pairs of {found.n_cases} {how} cases are in order by these weights"
        f"{by_declared} (p = {found.p_value:.2g} for no relation)"
    ]
    if found.out_of_sample is not None:
        wrong = f"{1 - found.out_of_sample:.0%} of the pairs"
        sentences.append(f"out of sample, by weights that were fitted to other cases, {wrong} are in the wrong order")
    return sentences
