"""A plan in words, for someone without statistics."""

import math
from collections.abc import Iterable, Iterator

from store.results import figure
from tasks.plan import Plan
from tasks.plan_metrics import MetricPlan
from tasks.plan_sizes import Sizes
from tasks.plan_spread import ROUGH_BELOW, Spread

FIGURES = 3
"""Of a number of examples that is said to be about right."""


def sentences_of(plan: Plan) -> list[str]:
    """What it costs, then a few sentences a metric, then what the figures leave out."""
    of_metrics = [said for one in plan.metrics for said in _of_metric(plan, one)]
    return [*_cost(plan), *of_metrics, *_bases(plan), *_left_out(plan)]


def _cost(plan: Plan) -> Iterator[str]:
    total = plan.total
    if not plan.calls:
        yield "this run asks no model, as far as can be told"
        return
    usd = f"about {money(total.usd)} USD" if total.usd is not None else "cost not known"
    there = f", of which {count(total.in_ledger)} are in the ledger and not paid again" if total.in_ledger else ""
    what = "model call" if total.calls == 1 else "model calls"
    yield f"this run makes {'at most ' if total.at_most else ''}{count(total.calls)} {what}{there}: {usd}"
    if total.unknown:
        yield f"the calls of {_listed(total.unknown)} are not known and not counted: run it on a few examples first"
    if total.unpriced:
        yield f"the cost of {_listed(total.unpriced)} is not known: nobody knows the tokens, or the price"
    if plan.spec.budget_usd is not None and total.usd_known > plan.spec.budget_usd:
        yield f"budget_usd: {plan.spec.budget_usd:g} may not be enough: the run would end incomplete"
    if plan.spec.max_calls is not None and total.calls - total.in_ledger > plan.spec.max_calls:
        yield f"max_calls: {plan.spec.max_calls} may not be enough: the run would end incomplete"


def _of_metric(plan: Plan, one: MetricPlan) -> Iterator[str]:
    if one.spread is None:
        yield f"{one.metric}: {one.reason}"
        return
    for sizes in one.wanted:
        yield from _of_wanted(plan, one, sizes)
    if not one.wanted:
        yield f"a difference in {one.metric}: {_shown(plan, one)}; --effect says how many examples a smaller one takes"
    for gate in plan.spec.gates:
        rise = gate.goals.get(one.metric)
        if rise and plan.effect is not None and plan.effect <= rise:
            yield f"  a rise of {figure(plan.effect, one.metric)} does not meet the goal of {rise:g} ({gate.name})"


def _bases(plan: Plan) -> Iterator[str]:
    """Where the figures are from, metrics of one origin together."""
    found: dict[str, list[str]] = {}
    for one in plan.metrics:
        if one.spread is not None:
            found.setdefault(one.spread.basis + _rough(one.spread), []).append(one.metric)
    for basis, metrics in found.items():
        yield f"{_listed(metrics)}: reckoned from {basis}"


def _of_wanted(plan: Plan, one: MetricPlan, sizes: Sizes) -> Iterator[str]:
    way = sizes.at(plan.present.repetitions)
    if way is None:
        yield f"{one.metric}: {sizes.reason}"
        return
    clusters = f" in {count(way.clusters)} clusters" if way.clusters is not None else ""
    answered = "" if way.repetitions == 1 else f", each answered {_times(way.repetitions)},"
    needed = f"about {about(way.examples)} examples{clusters}{answered} are needed"
    yield f"{_purpose(plan, one, sizes)}, {needed}; {_shown(plan, one)}"
    best = sizes.cheapest
    if best is not None and best is not way:
        usd = "" if best.usd is None else f" ({money(best.usd)} USD)"
        yield (
            f"  cheaper: {about(best.examples)} examples, each answered {_times(best.repetitions)}: "
            f"{count(best.calls)} calls{usd} instead of {count(way.calls)}"
        )
    if len(sizes.ways) == 1 and one.spread is not None and one.spread.source != "guess":
        yield "  what repetitions would save is not known: there, no example was answered twice"


def _purpose(plan: Plan, one: MetricPlan, sizes: Sizes) -> str:
    wanted, often = sizes.wanted, _often(plan.present.power)
    said = figure(wanted.said, one.metric)
    if wanted.purpose == "guard":
        return (
            f"for a candidate that is truly equal to pass the guard of {said} on {one.metric} ({wanted.gate}), {often}"
        )
    if wanted.purpose == "goal":
        rise = figure(wanted.said + wanted.size, one.metric)
        return f"for a candidate that is truly better by {rise} to pass the goal of {said} on {one.metric}, {often}"
    return f"to see a difference of {said} in {one.metric}, {often}"


def _shown(plan: Plan, one: MetricPlan) -> str:
    has = f"the dataset has {count(plan.present.n_examples)}"
    if plan.present.n_clusters is not None:
        has += f" in {count(plan.present.n_clusters)} clusters"
    if one.share < 1:
        has += f", of which {one.share:.0%} are judged"
    if one.smallest_seen is None:
        return f"{has}, too few to show anything"
    return f"{has}, which would show one of {figure(one.smallest_seen, one.metric)}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _often(power: float) -> str:
    return "4 times in 5" if power == 0.8 else f"in {power:.0%} of such runs"


def _rough(spread: Spread) -> str:
    """What makes it less sure."""
    said = []
    if spread.design_effect is not None:
        said.append(f"by clusters, which make it vary {spread.design_effect:.1f} times as much")
    if spread.n_units is not None and spread.n_units < ROUGH_BELOW:
        said.append(f"{spread.n_units} {spread.unit}s are few, so the numbers are rough")
    return f"; {'; '.join(said)}" if said else ""


def _left_out(plan: Plan) -> Iterator[str]:
    """Said where anything was reckoned."""
    if not any(one.spread for one in plan.metrics):
        return
    several = len(plan.metrics) * max(len(plan.spec.targets) - 1, 1)
    if several > 1 and plan.spec.adjustment != "none":
        yield (
            f"verdicts are adjusted for looking at {several} differences ({plan.spec.adjustment}); the sizes are "
            "those of one by itself"
        )
    if plan.spec.batch is not None:
        yield f"a gate looks after every {plan.spec.batch} examples, which takes more than one look at the end does"
    unclear = [one.metric for one in plan.metrics if one.spread and one.spread.unit == "example"]
    if plan.present.n_clusters is not None and unclear:
        yield f"the examples come in clusters, of which nothing is known for {_listed(unclear)}: it may take more"


def about(number: int) -> str:
    """Rounded up to a few figures."""
    step = 10 ** max(len(str(number)) - FIGURES, 0)
    return count(math.ceil(number / step) * step)


def count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def money(usd: float | None) -> str:
    """USD, with as many digits as small sums need; `-` where it is not known."""
    return "-" if usd is None else f"{usd:,.2f}" if usd >= 1 or not usd else f"{usd:.4f}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
