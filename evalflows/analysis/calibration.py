"""The weights of a composite that order cases as people ranked them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalflows.analysis.robustness import parts_of, scores_by_example
from evalflows.specs.errors import InputError
from evalflows.stats.weights import CalibratedWeights, calibrated_weights, checked_weights, normalised, run_parts
from evalflows.store.records import ExperimentRow
from evalflows.store.row_specs import experiment_spec
from evalflows.store.store import Store


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
    n_left_out: int  # ranked cases without the composite
    agreement: float | None  # the share of pairs of cases in people's order by the weights
    agreement_declared: float | None  # by the declared ones
    p_value: float | None
    metrics: Sequence[CalibratedMetric]
    reason: str | None
    sentences: Sequence[str]


def calibrate(store: Store, experiment: str, composite: str | None, ranks: Mapping[str, float]) -> Calibration:
    """Return the weights of an experiment's composite under which its cases are in the order of `ranks`.

    `ranks` are those of examples by id, 1 for the best. Without a name, the only composite is meant. Raise InputError
    for a composite without weights, and if fewer than two ranked examples have it.
    """
    row: ExperimentRow = store.read("experiments", experiment)[0]
    composites = {composite.name: composite for composite in experiment_spec(row).composites if composite.weights}
    if composite is None and len(composites) == 1:
        composite = next(iter(composites))
    if composite not in composites:
        raise InputError(
            f"composite: got {composite!r}, wanted one of {', '.join(composites) or 'none: there is none'}"
        )
    spec = composites[composite]
    if spec.function is not None or spec.aggregation == "minimum" or len(spec.weights) < 2:
        raise InputError(f"composite {composite!r}: has no weights to calibrate, wanted a mean of at least two metrics")
    by_example = scores_by_example(store.read("judgements", experiment), composite)
    cases = [example for example in ranks if example in by_example]
    if len(cases) < 2:
        raise InputError(f"composite {composite!r}: {len(cases)} of {len(ranks)} ranked examples have it, wanted more")
    parts = [(number, score) for number, case in enumerate(cases) for score in by_example[case]]
    runs = run_parts(
        [parts_of(score, tuple(spec.weights)) for _, score in parts],
        [number for number, _ in parts],
        aggregation=spec.aggregation,
    )
    order = [ranks[case] for case in cases]
    found = calibrated_weights(runs, order)
    declared = checked_weights([*spec.weights.values()], len(spec.weights))
    by_declared = _agreement(runs.scores(normalised(declared))[0].tolist(), order)
    none = (None,) * len(declared)
    return Calibration(
        experiment_id=experiment,
        composite=composite,
        n_cases=len(cases),
        n_left_out=len(ranks) - len(cases),
        agreement=found.agreement,
        agreement_declared=by_declared,
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
        sentences=_sentences(composite, found, by_declared),
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


def _sentences(composite: str, found: CalibratedWeights, declared: float | None) -> list[str]:
    if found.weights is None:
        chance = "" if found.p_value is None else f" (p = {found.p_value:.2g}, {found.n_cases} cases)"
        return [f"{composite}: no weights: {found.reason}{chance}"]
    by_declared = "" if declared is None else f", and {declared:.0%} by the declared ones"
    return [
        f"{composite}: {found.agreement:.0%} of the pairs of {found.n_cases} ranked cases are in order by these weights"
        f"{by_declared} (p = {found.p_value:.2g} for no relation)"
    ]
