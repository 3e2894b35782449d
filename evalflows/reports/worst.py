"""Which examples to show after the figures: those of the metric that got worse, or the lowest scores, and how to list
all of them."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest

from evalflows.reports.decisions import Decision
from evalflows.reports.item_lines import item_lines
from evalflows.reports.names_apart import names_apart
from evalflows.reports.results import Result, results_of
from evalflows.reports.worst_items import WorstItem, is_higher_better, worst_items
from evalflows.specs.errors import InputError
from evalflows.specs.metric_names import MEASURES, base_metric
from evalflows.specs.metric_slices import metric_of
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import run_groups
from evalflows.store.records import ExperimentRow

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
    experiment_id: str
    name: str
    baseline_experiment_id: str | None
    baseline: str | None
    items: Sequence[WorstItem]

    @property
    def heading(self) -> str:
        if self.baseline:
            return f"examples that got worse by {self.metric}: {self.name} against {self.baseline}"
        return f"examples that are lowest by {self.metric}: {self.name}"

    def lines(self, width: int) -> Iterator[str]:
        """Yield a heading, and a few lines for each example, at most `width` characters wide."""
        yield self.heading
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
        (decision.candidate_experiment_id, metric_of(rule["metric"])): rule["outcome"]
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
        if items := _items(store, result, SHOWN):
            return Worst(examples=[_of_result(result, items)], command=drops_command(store, result))
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
    chosen: dict[Result, list[WorstItem]] = {}
    for result, item in islice(taken, SHOWN):
        chosen.setdefault(result, []).append(item)
    examples = [_of_result(result, items) for result, items in chosen.items()]
    return Worst(examples=examples, command=_lowest_command(store, [*chosen])) if examples else None


def _below_mean(store: Store, result: Result) -> list[WorstItem]:
    if result.mean is None:
        return []
    sign = 1 if is_higher_better(store, result.experiment_id, base_metric(result.metric)) else -1
    return [
        item
        for item in _items(store, result, SHOWN)
        if item.value is not None and sign * (result.mean - item.value) > 0
    ]


def all_worst(
    store: Store, experiments: Sequence[str], metrics: Sequence[str], against: str | None = None
) -> list[WorstExamples]:
    """Return all examples that got worse by each of the metrics, worst first.

    Args:
        store: The store.
        experiments: Ids.
        metrics: Names of metrics.
        against: The experiment to compare with. Default: the baseline in the experiments' run. Without one, all scored
            examples are returned, lowest first.

    Raise InputError for a metric that no experiment has.
    """
    results = results_of(store, experiments)
    known = list(dict.fromkeys(result.metric for result in results if result.scored))
    if unknown := [metric for metric in metrics if metric not in known]:
        raise InputError(f"metric: got {unknown[0]!r}, wanted one of {', '.join(known) or 'none, as none is scored'}")
    compared = [_against(store, result, against) for result in results if result.metric in metrics]
    compared = [one for one in compared if one.baseline_experiment_id] or compared
    compared.sort(key=lambda result: metrics.index(result.metric))
    return [_of_result(result, _items(store, result, None)) for result in compared]


def _against(store: Store, result: Result, against: str | None) -> Result:
    if against is None or against == result.experiment_id:
        return result
    names = {row.experiment_id: row.target for row in _rows(store, (result.experiment_id, against))}
    apart = names_apart(store, names)
    return replace(result, target=apart[result.experiment_id], baseline_experiment_id=against, baseline=apart[against])


def _rows(store: Store, experiments: Sequence[str]) -> Iterator[ExperimentRow]:
    for identity in experiments:
        yield from store.read("experiments", identity)


def _of_result(result: Result, items: Sequence[WorstItem]) -> WorstExamples:
    return WorstExamples(
        metric=result.metric,
        experiment_id=result.experiment_id,
        name=result.target,
        baseline_experiment_id=result.baseline_experiment_id,
        baseline=result.baseline,
        items=items,
    )


def _items(store: Store, result: Result, count: int | None) -> list[WorstItem]:
    """Return the worst examples of which all values are known."""
    baseline = result.baseline_experiment_id
    items = worst_items(store, result.experiment_id, baseline, result.metric, count)
    return [item for item in items if item.value is not None and (item.baseline_value is not None or not baseline)]


def drops_command(store: Store, result: Result) -> str:
    """Return the command that lists every example that got worse; `show` knows the baseline of the experiment's run."""
    query = """select baseline_experiment_id from verdicts where candidate_experiment_id = $1 and metric = $2
               and slice is null and decision_id is null and comparison_id is null"""
    (own,) = ask(store, (query, [result.experiment_id, result.metric]))
    is_own = (result.baseline_experiment_id,) in own
    against = "" if is_own else f" --against {result.baseline_experiment_id}"
    return f"{_command(result.experiment_id, [result.metric])}{against}"


def _lowest_command(store: Store, results: Sequence[Result]) -> str:
    """Return the command that lists all scores of experiments, lowest first."""
    experiments = list(dict.fromkeys(result.experiment_id for result in results))
    of_one = len(experiments) == 1
    return _command(experiments[0] if of_one else run_groups(store, experiments)[0], [one.metric for one in results])


def _command(experiments: str, metrics: Sequence[str]) -> str:
    wanted = " ".join(f"--worst {shlex.quote(metric)}" for metric in dict.fromkeys(metrics))
    return f"evalflows show {experiments} {wanted}"
