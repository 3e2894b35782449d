"""Sentences that describe a plan."""

import math
from collections.abc import Iterable, Iterator

from evalflows.analysis.differences.verdicts import ADJUSTMENT_NAMES
from evalflows.analysis.planning.metrics import MetricPlan
from evalflows.analysis.planning.plan import Plan
from evalflows.analysis.planning.sample_sizes import SampleSizes
from evalflows.analysis.planning.variance import RELIABLE_UNITS, VarianceEstimate
from evalflows.reports.figures import figure
from evalflows.specs.metric_slices import metric_of, sliced_metric

SIGNIFICANT_DIGITS = 3
"""Significant digits of an approximate number of examples."""


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
        yield f"the cost of {_listed(total.unpriced)} is unknown: no token counts or no price"
    if plan.spec.budget_usd is not None and total.usd_known > plan.spec.budget_usd:
        yield f"budget_usd: {plan.spec.budget_usd:g} may not be enough: the run would end incomplete"
    if plan.spec.max_calls is not None and total.calls - total.in_ledger > plan.spec.max_calls:
        yield f"max_calls: {plan.spec.max_calls} may not be enough: the run would end incomplete"


def _of_metric(plan: Plan, metric: MetricPlan) -> Iterator[str]:
    if metric.variance is None:
        yield f"{metric.metric}: {metric.reason}"
        return
    for sizes in metric.sample_sizes:
        yield from _of_sizes(plan, metric, sizes)
    if not metric.sample_sizes:
        yield f"{metric.metric}: {_detectable(metric)}; use --effect to plan for another difference"
    for gate in plan.spec.gates:
        margin = gate.superiority.get(metric.metric)
        if margin and plan.effect is not None and plan.effect <= margin:
            effect = figure(plan.effect, metric.metric)
            yield Detail(
                f"  an improvement of {effect} does not meet the superiority margin of {margin:g} ({gate.name})"
            )


def _bases(plan: Plan) -> Iterator[str]:
    """Say what the variances are estimated from, grouped by basis."""
    by_basis: dict[str, list[str]] = {}
    for metric in plan.metrics:
        if metric.variance is not None:
            by_basis.setdefault(metric.variance.basis + _uncertainty(metric.variance), []).append(metric.metric)
    for basis, metrics in by_basis.items():
        yield f"{_listed(metrics)}: estimated from {basis}"


def _of_sizes(plan: Plan, metric: MetricPlan, sizes: SampleSizes) -> Iterator[str]:
    current = sizes.at(plan.design.repetitions)
    if current is None:
        yield f"{metric.metric}: {sizes.reason}"
        return
    clusters = f" in {count(current.clusters)} clusters" if current.clusters is not None else ""
    answered = "" if current.repetitions == 1 else f", each answered {_times(current.repetitions)},"
    needed = f"about {about(current.examples)} examples{clusters}{answered} are needed"
    yield f"{_purpose(plan, metric, sizes)}, {needed}; {_detectable(metric)}"
    best = sizes.cheapest
    if best is not None and best is not current:
        usd = "" if best.usd is None else f" ({money(best.usd)} USD)"
        yield Detail(
            f"  cheaper: {about(best.examples)} examples, each answered {_times(best.repetitions)}: "
            f"{count(best.calls)} calls{usd} instead of {count(current.calls)}"
        )
    if len(sizes.designs) == 1 and metric.variance is not None and metric.variance.source != "guess":
        yield Detail("  whether repetitions would save examples is unknown: the stored data has one answer per example")


def _purpose(plan: Plan, metric: MetricPlan, sizes: SampleSizes) -> str:
    effect, power = sizes.effect, f"with {plan.design.power:.0%} power"
    bound = figure(effect.declared, metric_of(metric.metric))
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
    has = f"the {whole} has {count(metric.n_examples)}"
    if metric.n_clusters is not None:
        has += f" in {count(metric.n_clusters)} clusters"
    if metric.judged_share < 1:
        has += f", of which {metric.judged_share:.0%} are judged"
    if metric.minimum_detectable is None:
        return f"{has}, too few to detect any difference"
    return f"{has}, enough to detect a difference of {figure(metric.minimum_detectable, metric_of(metric.metric))}"


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
    comparisons = len(plan.metrics) * max(len(plan.spec.targets) - 1, 1)
    if comparisons > 1 and plan.spec.adjustment != "none":
        method = ADJUSTMENT_NAMES[plan.spec.adjustment]
        yield f"verdicts are adjusted for {comparisons} comparisons ({method}); the sample sizes are for one alone"
    if plan.spec.batch is not None:
        yield f"interim analyses after every {plan.spec.batch} examples need more examples than one final analysis"
    unclear = [metric.metric for metric in plan.metrics if metric.variance and metric.variance.unit == "example"]
    if plan.design.n_clusters is not None and unclear:
        yield f"the effect of clusters on {_listed(unclear)} is unknown: more examples may be needed"


def about(number: int) -> str:
    """A number rounded up to a few significant digits."""
    step = 10 ** max(len(str(number)) - SIGNIFICANT_DIGITS, 0)
    return count(math.ceil(number / step) * step)


def count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def money(usd: float | None) -> str:
    """Format USD, with more digits for small sums; `-` if unknown."""
    return "-" if usd is None else f"{usd:,.2f}" if usd >= 1 or not usd else f"{usd:.4f}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
