"""Sentences that describe a plan."""

import math
from collections.abc import Iterable, Iterator

from evalflows.analysis.differences.verdicts import ADJUSTMENT_NAMES
from evalflows.analysis.planning.metrics import MetricPlan
from evalflows.analysis.planning.plan import Plan
from evalflows.analysis.planning.sample_sizes import Sizes
from evalflows.analysis.planning.variance import ROUGH_BELOW, Spread
from evalflows.reports.figures import figure

FIGURES = 3
"""Significant figures of an approximate number of examples."""


class Detail(str):
    """A sentence that adds to the one before it."""


def sentences_of(plan: Plan) -> list[str]:
    """Return the cost, then a few sentences per metric, then the caveats."""
    of_metrics = [sentence for metric in plan.metrics for sentence in _of_metric(plan, metric)]
    return [*_cost(plan), *of_metrics, *_bases(plan), *_caveats(plan)]


def _cost(plan: Plan) -> Iterator[str]:
    total = plan.total
    if not plan.calls:
        yield "this run makes no known model calls"
        return
    usd = f"about {money(total.usd)} USD" if total.usd is not None else "cost unknown"
    cached = f", of which {count(total.in_ledger)} are in the ledger and not paid again" if total.in_ledger else ""
    calls = "model call" if total.calls == 1 else "model calls"
    yield f"this run makes {'at most ' if total.at_most else ''}{count(total.calls)} {calls}{cached}: {usd}"
    if total.unknown:
        yield f"the calls of {_listed(total.unknown)} are unknown and not counted: run it on a few examples first"
    if total.unpriced:
        yield f"the cost of {_listed(total.unpriced)} is unknown, since the tokens or the price are"
    if plan.spec.budget_usd is not None and total.usd_known > plan.spec.budget_usd:
        yield f"budget_usd: {plan.spec.budget_usd:g} may not be enough: the run would end incomplete"
    if plan.spec.max_calls is not None and total.calls - total.in_ledger > plan.spec.max_calls:
        yield f"max_calls: {plan.spec.max_calls} may not be enough: the run would end incomplete"


def _of_metric(plan: Plan, metric: MetricPlan) -> Iterator[str]:
    if metric.spread is None:
        yield f"{metric.metric}: {metric.reason}"
        return
    for sizes in metric.wanted:
        yield from _of_sizes(plan, metric, sizes)
    if not metric.wanted:
        yield f"{metric.metric}: {_detectable(plan, metric)}; use --effect to plan for another difference"
    for gate in plan.spec.gates:
        margin = gate.superiority.get(metric.metric)
        if margin and plan.effect is not None and plan.effect <= margin:
            effect = figure(plan.effect, metric.metric)
            yield Detail(
                f"  an improvement of {effect} does not meet the superiority margin of {margin:g} ({gate.name})"
            )


def _bases(plan: Plan) -> Iterator[str]:
    """What the variances are estimated from, grouped by basis."""
    by_basis: dict[str, list[str]] = {}
    for metric in plan.metrics:
        if metric.spread is not None:
            by_basis.setdefault(metric.spread.basis + _uncertainty(metric.spread), []).append(metric.metric)
    for basis, metrics in by_basis.items():
        yield f"{_listed(metrics)}: estimated from {basis}"


def _of_sizes(plan: Plan, metric: MetricPlan, sizes: Sizes) -> Iterator[str]:
    current = sizes.at(plan.present.repetitions)
    if current is None:
        yield f"{metric.metric}: {sizes.reason}"
        return
    clusters = f" in {count(current.clusters)} clusters" if current.clusters is not None else ""
    answered = "" if current.repetitions == 1 else f", each answered {_times(current.repetitions)},"
    needed = f"about {about(current.examples)} examples{clusters}{answered} are needed"
    yield f"{_purpose(plan, metric, sizes)}, {needed}; {_detectable(plan, metric)}"
    best = sizes.cheapest
    if best is not None and best is not current:
        usd = "" if best.usd is None else f" ({money(best.usd)} USD)"
        yield Detail(
            f"  cheaper: {about(best.examples)} examples, each answered {_times(best.repetitions)}: "
            f"{count(best.calls)} calls{usd} instead of {count(current.calls)}"
        )
    if len(sizes.ways) == 1 and metric.spread is not None and metric.spread.source != "guess":
        yield Detail("  whether repetitions would save examples is unknown: that data has one answer per example")


def _purpose(plan: Plan, metric: MetricPlan, sizes: Sizes) -> str:
    effect, power = sizes.wanted, f"with {plan.present.power:.0%} power"
    bound = figure(effect.said, metric.metric)
    if effect.purpose == "non_inferiority":
        what = f"for an equally good candidate to pass the non-inferiority margin of {bound}"
        return f"{what} on {metric.metric} ({effect.gate}) {power}"
    if effect.purpose == "superiority":
        gain = figure(effect.said + effect.size, metric.metric)
        what = f"for a candidate that is better by {gain} to pass the superiority margin of {bound}"
        return f"{what} on {metric.metric} {power}"
    return f"to detect a difference of {bound} in {metric.metric} {power}"


def _detectable(plan: Plan, metric: MetricPlan) -> str:
    has = f"the dataset has {count(plan.present.n_examples)}"
    if plan.present.n_clusters is not None:
        has += f" in {count(plan.present.n_clusters)} clusters"
    if metric.share < 1:
        has += f", of which {metric.share:.0%} are judged"
    if metric.minimum_detectable is None:
        return f"{has}, too few to detect any difference"
    return f"{has}, enough to detect a difference of {figure(metric.minimum_detectable, metric.metric)}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _uncertainty(spread: Spread) -> str:
    """What makes a variance estimate less certain."""
    notes = []
    if spread.design_effect is not None:
        notes.append(f"design effect of clusters {spread.design_effect:.1f}")
    if spread.n_units is not None and spread.n_units < ROUGH_BELOW:
        notes.append(f"rough, with only {spread.n_units} {spread.unit}s")
    return f"; {'; '.join(notes)}" if notes else ""


def _caveats(plan: Plan) -> Iterator[str]:
    """What the sample sizes do not account for."""
    if not any(metric.spread for metric in plan.metrics):
        return
    comparisons = len(plan.metrics) * max(len(plan.spec.targets) - 1, 1)
    if comparisons > 1 and plan.spec.adjustment != "none":
        method = ADJUSTMENT_NAMES[plan.spec.adjustment]
        yield f"verdicts are adjusted for {comparisons} comparisons ({method}); the sample sizes are for one alone"
    if plan.spec.batch is not None:
        yield f"interim analyses after every {plan.spec.batch} examples need more examples than one final analysis"
    unclear = [metric.metric for metric in plan.metrics if metric.spread and metric.spread.unit == "example"]
    if plan.present.n_clusters is not None and unclear:
        yield f"the effect of clusters on {_listed(unclear)} is unknown: more examples may be needed"


def about(number: int) -> str:
    """Round up to a few significant figures."""
    step = 10 ** max(len(str(number)) - FIGURES, 0)
    return count(math.ceil(number / step) * step)


def count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def money(usd: float | None) -> str:
    """Format USD, with more digits for small sums; `-` if unknown."""
    return "-" if usd is None else f"{usd:,.2f}" if usd >= 1 or not usd else f"{usd:.4f}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
