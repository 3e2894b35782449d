"""Which examples to show after the figures: those of the metric that got worse, or the lowest scores, and how to list
all of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Any

from evalflows.reports.decisions import Decision
from evalflows.reports.item_lines import item_lines
from evalflows.reports.results import Result
from evalflows.reports.sql_text import shell_text, sql_text
from evalflows.reports.worst_items import WorstItem, is_higher_better, worst_items
from evalflows.specs.metric_names import MEASURES, base_metric
from evalflows.store.parquet import Store

SHOWN = 5
MOST_LINES = 2
"""Lines of each text."""

Outcomes = Mapping[tuple[str, str], str]
"""Of a gate's rules, by candidate and metric."""

_RANKS = ("broken", "worse", "open")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstExamples:
    """The worst examples by one metric of one experiment."""

    metric: str
    name: str
    baseline: str | None
    items: Sequence[WorstItem]

    def lines(self, width: int) -> Iterator[str]:
        """Yield a heading, and a few lines for each example, at most `width` characters wide."""
        against = f" than {self.baseline}" if self.baseline else ""
        yield f"{'worse' if against else 'lowest'} by {self.metric}: {self.name}{against}"
        for item in self.items:
            compared = self.baseline is not None
            lines = item_lines(item, self.metric, compared=compared, width=width - 2, most=MOST_LINES)
            yield from (f"  {line}" for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """What to show: at most SHOWN examples in all, and the command that lists all of them."""

    examples: Sequence[WorstExamples]
    command: str


def worst_of(store: Store, results: Sequence[Result], decisions: Sequence[Decision] = ()) -> Worst | None:
    """Return the examples that got worse against the baseline, by the metric that is worst off.

    That is the metric of a broken rule of the decisions; else one with the verdict worse; else one of an open rule;
    else the one with the largest drop. Without a baseline, return the lowest scores of all metrics. None if nothing got
    worse, or if all answers have the same scores.
    """
    outcomes = {
        (decision.candidate_experiment_id, rule["metric"]): rule["outcome"]
        for decision in decisions
        for rule in sorted(decision.rules, key=lambda rule: rule["outcome"] == "broken")
    }
    if any(result.baseline_experiment_id for result in results):
        return _drops(store, results, outcomes)
    return _lowest(store, results, outcomes)


def _drops(store: Store, results: Sequence[Result], outcomes: Outcomes) -> Worst | None:
    ranked = sorted(
        (
            (_rank(result, outcomes.get((result.experiment_id, result.metric))), _loss(store, result), place, result)
            for place, result in enumerate(results)
            if result.baseline_experiment_id and _has_examples(result, outcomes)
        ),
        key=lambda ranked: ranked[:3],
    )
    for *_, result in ranked:
        items = worst_items(store, result.experiment_id, result.baseline_experiment_id, result.metric, SHOWN)
        known = [item for item in items if item.value is not None and item.baseline_value is not None]
        if known:
            shown = WorstExamples(metric=result.metric, name=result.target, baseline=result.baseline, items=known)
            return Worst(examples=[shown], command=_drops_command(store, result))
    return None


def _rank(result: Result, outcome: str | None) -> int:
    kinds = (outcome, result.conclusion if outcome != "broken" else None)
    return min((_RANKS.index(kind) for kind in kinds if kind in _RANKS), default=len(_RANKS))


def _has_examples(result: Result, outcomes: Outcomes) -> bool:
    """Whether examples explain a metric: not those of labels, nor measures, unless a rule on one is broken."""
    is_broken = outcomes.get((result.experiment_id, result.metric)) == "broken"
    return result.shares is None and result.scored > 0 and (result.metric not in MEASURES or is_broken)


def _loss(store: Store, result: Result) -> float:
    """How much lower the metric is, in its own direction; negative numbers are drops."""
    sign = 1 if is_higher_better(store, result.experiment_id, base_metric(result.metric)) else -1
    return sign * (result.difference or 0.0)


def _lowest(store: Store, results: Sequence[Result], outcomes: Outcomes) -> Worst | None:
    shown = [result for result in results if _has_examples(result, outcomes)]
    broken = [result for result in shown if outcomes.get((result.experiment_id, result.metric)) == "broken"]
    shown = broken or shown
    by_metric = [[(result, item) for item in _below_mean(store, result)] for result in shown]
    taken = [pair for pair in chain(*zip_longest(*by_metric)) if pair is not None]
    chosen: dict[tuple[str, str], list[Any]] = {}
    for result, item in islice(taken, SHOWN):
        chosen.setdefault((result.metric, result.target), []).append(item)
    examples = [
        WorstExamples(metric=metric, name=name, baseline=None, items=items) for (metric, name), items in chosen.items()
    ]
    return Worst(examples=examples, command=_lowest_command(shown)) if examples else None


def _below_mean(store: Store, result: Result) -> list[WorstItem]:
    if result.mean is None:
        return []
    metric = base_metric(result.metric)
    sign = 1 if is_higher_better(store, result.experiment_id, metric) else -1
    items = worst_items(store, result.experiment_id, None, metric, SHOWN)
    return [item for item in items if item.value is not None and sign * (result.mean - item.value) > 0]


def _drops_command(store: Store, result: Result) -> str:
    """Return a command that lists every example that got worse, worst first."""
    baseline, candidate = sql_text(result.baseline_experiment_id or ""), sql_text(result.experiment_id)
    metric = base_metric(result.metric)
    is_higher = is_higher_better(store, result.experiment_id, metric)
    of = {"was": f"filter (experiment_id = {baseline})", "now": f"filter (experiment_id = {candidate})"}
    texts = (
        f", any_value(inputs) as inputs, any_value(outputs) {of['now']} as answer,"
        f" any_value(outputs) {of['was']} as baseline, any_value(comment) {of['now']} as comment"
    )
    return _command(
        f"select example_id, avg(value) {of['was']} as was, avg(value) {of['now']} as is_now"
        f"{'' if metric in MEASURES else texts}"
        f" from {'run_values' if metric in MEASURES else 'item_scores'} where metric = {sql_text(metric)}"
        f" and experiment_id in ({baseline}, {candidate}) group by example_id"
        f" having is_now {'<' if is_higher else '>'} was order by abs(is_now - was) desc"
    )


def _lowest_command(results: Sequence[Result]) -> str:
    """Return a command that lists all scores of experiments, lowest first."""
    experiments = ", ".join(sql_text(identity) for identity in dict.fromkeys(one.experiment_id for one in results))
    return _command(
        "select metric, target, example_id, value, comment, inputs, outputs from item_scores"
        f" where experiment_id in ({experiments}) and value is not null order by metric, value"
    )


def _command(query: str) -> str:
    return f"evalflows sql {shell_text(query)}"
