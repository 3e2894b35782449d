"""The message of a failed assertion: the numbers, differences in setup, missing values and the worst items."""

from collections.abc import Iterator

from evalflows.reports.decisions import decisions_named, with_limits
from evalflows.reports.results import results_of
from evalflows.reports.worst import WorstItem, is_higher_better, item_lines, worst_items
from evalflows.specs.escaping import one_line
from evalflows.specs.metric_names import metric_of
from evalflows.store import Store
from evalflows.store.described import rule_outcomes
from evalflows.store.queries.looks import final_ids
from evalflows.store.records import DecisionRow, from_json
from evalflows.store.row_specs import gate_spec

SHOWN = 5
WIDTH = 100
"""Characters of a line."""


def message(metric: str, decision: DecisionRow) -> str:
    """Build the message: the first line is the rule's result, the rest is indented below it."""
    store = Store()
    (stored,) = with_limits(store, decisions_named(store, [decision.decision_id]))
    differences = (note["text"] for note in from_json(decision.comparability) or ())
    lines = [*_experiments(store, decision), *differences, *_missing(store, metric, decision), *stored.where]
    lines = [f"{decision.conclusion}: {decision.summary}", *lines, *_worst(store, metric, decision)]
    return "\n  ".join(map(one_line, lines))


def _experiments(store: Store, decision: DecisionRow) -> Iterator[str]:
    candidate, baseline = decision.candidate_experiment_id, decision.baseline_experiment_id
    against = f" against {_name(store, baseline)}" if baseline else ""
    yield f"{_name(store, candidate)}{against}, at a confidence level of {decision.confidence_level:g}"


def _missing(store: Store, metric: str, decision: DecisionRow) -> Iterator[str]:
    experiments = [decision.candidate_experiment_id, decision.baseline_experiment_id]
    results = results_of(store, [experiment for experiment in experiments if experiment is not None])
    incomplete = [result for result in results if result.metric == metric_of(metric) and result.missing]
    for result in incomplete:
        total = result.missing + result.scored
        yield f"{result.missing} of {total} values of {result.metric} are missing in {result.experiment}"
    (rule,) = rule_outcomes(decision.reasons)
    if rule.outcome == "open" and rule.p_below is not None and not incomplete and not rule.n_missing:
        yield "no values are missing: more examples or a less strict bound would decide"


def _worst(store: Store, metric: str, decision: DecisionRow) -> Iterator[str]:
    candidate, baseline = decision.candidate_experiment_id, decision.baseline_experiment_id
    is_open = decision.conclusion == "NOT ENOUGH EVIDENCE"
    hidden = final_ids(store, [candidate])
    items = worst_items(store, candidate, baseline, metric, SHOWN, missing_first=is_open)
    items = [item for item in items if item.example_id not in hidden]
    if baseline is None:
        higher_is_better = is_higher_better(store, candidate, metric_of(metric))
        gate = gate_spec(decision)
        bound = {**gate.thresholds, **gate.confident_thresholds}[metric]
        items = [item for item in items if _falls_short(item, bound, higher_is_better)]
    if items:
        yield f"the worst items by {metric}:"
    for item in items:
        lines = item_lines(item, metric, compared=baseline is not None, width=WIDTH)
        yield from (f"  {line}" for line in lines)


def _falls_short(item: WorstItem, bound: float, higher_is_better: bool) -> bool:
    """Return whether a single item misses the bound that applies to the mean."""
    if item.value is None or item.missing:
        return True
    return item.value < bound if higher_is_better else item.value > bound


def _name(store: Store, experiment: str) -> str:
    return f"{store.read('experiments', experiment)[0].name} ({experiment})"
