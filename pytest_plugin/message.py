"""What a failed assertion says: the numbers, what differed, what is missing, and the worst items."""

import json
from collections.abc import Iterator
from typing import Any

from specs.gate import GateSpec
from store import Store
from store.records import DecisionRow, from_json
from store.results import figure, results_of
from store.worst_items import WorstItem, is_higher_better, worst_items

SHOWN = 5
WIDTH = 100
"""Letters of an answer, or of what was asked, that are shown."""


def message(metric: str, decision: DecisionRow) -> str:
    """The first line is the rule in words; the rest is indented below it."""
    store = Store()
    lines = [*_sides(store, decision), *_notes(decision), *_missing(store, metric, decision)]
    return "\n  ".join([f"{decision.conclusion}: {decision.summary}", *lines, *_worst(store, metric, decision)])


def _sides(store: Store, decision: DecisionRow) -> Iterator[str]:
    candidate, baseline = decision.candidate_experiment_id, decision.baseline_experiment_id
    against = f" against {_name(store, baseline)}" if baseline else ""
    yield f"{_name(store, candidate)}{against}, at a confidence of {decision.level:g}"


def _notes(decision: DecisionRow) -> Iterator[str]:
    """What differed between the sides besides what was changed on purpose."""
    for note in from_json(decision.comparability) or ():
        yield note["text"]


def _missing(store: Store, metric: str, decision: DecisionRow) -> Iterator[str]:
    experiments = [decision.candidate_experiment_id, decision.baseline_experiment_id]
    results = results_of(store, [one for one in experiments if one is not None])
    lacking = [one for one in results if one.metric == metric and one.missing]
    for one in lacking:
        yield f"{one.missing} of {one.missing + one.scored} values of {metric} are missing in {one.experiment}"
    (rule,) = from_json(decision.reasons)
    if rule["outcome"] == "open" and rule["p_below"] is not None and not lacking:
        yield "nothing is missing: more examples would tell, or a bound that asks for less"


def _worst(store: Store, metric: str, decision: DecisionRow) -> Iterator[str]:
    candidate, baseline = decision.candidate_experiment_id, decision.baseline_experiment_id
    is_open = decision.conclusion == "NOT ENOUGH EVIDENCE"
    found = worst_items(store, candidate, baseline, metric, SHOWN, missing_first=is_open)
    if baseline is None:
        up = is_higher_better(store, candidate, metric)
        found = [one for one in found if _falls_short(one, _bound(metric, decision), up)]
    if found:
        yield f"the worst items by {metric}:"
    for item in found:
        yield from (f"  {line}" for line in _item(item, metric, compared=baseline is not None))


def _bound(metric: str, decision: DecisionRow) -> float:
    gate = GateSpec.model_validate_json(decision.policy)
    return {**gate.floors, **gate.sure_floors}[metric]


def _falls_short(item: WorstItem, bound: float, higher_is_better: bool) -> bool:
    """Whether an item by itself does not reach what the mean must reach."""
    if item.value is None or item.missing:
        return True
    return item.value < bound if higher_is_better else item.value > bound


def _item(item: WorstItem, metric: str, *, compared: bool) -> Iterator[str]:
    was = f", was {_value(item.baseline_value, item.baseline_missing, metric)}" if compared else ""
    yield f"{item.example_id}: {_value(item.value, item.missing, metric)}{was}  {_short(item.inputs)}"
    yield f"    answer: {_short(item.outputs)}"
    if compared:
        yield f"    baseline: {_short(item.baseline_outputs)}"
    theirs = None if item.baseline_error == item.error else item.baseline_error
    for what, said in (("comment", item.comment), ("error", item.error), ("baseline's error", theirs)):
        if said:
            yield f"    {what}: {_cut(said)}"


def _value(value: float | None, missing: int, metric: str) -> str:
    if value is None:
        return "missing" if missing else "-"
    return figure(value, metric) + (f" ({missing} missing)" if missing else "")


def _short(text: str | None) -> str:
    """JSON in a line; of an object with one field, that field."""
    if text is None:
        return "-"
    value: Any = json.loads(text)
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _name(store: Store, experiment: str) -> str:
    return f"{store.read('experiments', experiment)[0].name} ({experiment})"
