"""Preferences of people and judges as training data."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalflows.specs.errors import InputError
from evalflows.store.queries.progress import work_done
from evalflows.store.records import from_json, to_json
from evalflows.store.sql import ask
from evalflows.store.store import Store

LEFT_OUT = ("ties", "half ties", "flipped", "missing", "failed outputs", "not applicable", "same text")
"""Why a pair gives no preference."""

_PREFERENCE_METRICS = "select distinct metric from comparisons where comparison_id = ? order by metric"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """The preferences of a comparison by one metric."""

    comparison_id: str
    metric: str
    rows: list[dict[str, Any]]  # prompt, chosen, rejected, and their origin
    left_out: dict[str, int]  # numbers of pairs, by LEFT_OUT

    @property
    def in_words(self) -> str:
        """The numbers of preferences and of left-out pairs, in one line."""
        of = f"{len(self.rows)} of {len(self.rows) + sum(self.left_out.values())} pairs by {self.metric}"
        left_out = [f"{count} {why}" for why, count in self.left_out.items() if count]
        return f"{of}; left out: {', '.join(left_out)}" if left_out else of


def preferences_of(store: Store, comparison_id: str, metric: str | None = None) -> Preferences:
    """Return the pairs of a comparison in which one answer is better, in the order of the examples.

    A prompt or answer is the text of its only field, the list of messages if the prompt is a conversation, else JSON
    text. Ties, half ties (a tie in one order, by the rule `strict`), flipped verdicts, missing verdicts, failed runs,
    and identical answers are left out, and counted. Raise InputError for a comparison without judgements, for an
    unknown metric, if no metric is named and there are several, and if two evaluators gave the metric.
    """
    if twice := work_done(store, comparison_id).given_twice:
        raise InputError(f"comparison {comparison_id!r}: {twice}")
    metrics, pairs = ask(store, (_PREFERENCE_METRICS, [comparison_id]), (_PREFERENCE_PAIRS, [comparison_id]))
    chosen = _one_of(comparison_id, [name for (name,) in metrics], metric)
    of_metric = [_Pair(*values) for name, *values in pairs if name == chosen]
    excluded = Counter(pair.why_not for pair in of_metric)
    return Preferences(
        comparison_id=comparison_id,
        metric=chosen,
        rows=[pair.as_row(chosen) for pair in of_metric if pair.why_not is None],
        left_out={why: excluded[why] for why in LEFT_OUT},
    )


def _one_of(comparison_id: str, known: list[str], metric: str | None) -> str:
    if not known:
        raise InputError(f"comparison {comparison_id!r}: got no judgements yet, wanted at least one")
    if metric is None and len(known) > 1:
        raise InputError(f"comparison {comparison_id!r}: got {len(known)} metrics, wanted one of: {', '.join(known)}")
    if metric is not None and metric not in known:
        raise InputError(f"comparison {comparison_id!r}: got the metric {metric!r}, wanted one of: {', '.join(known)}")
    return metric or known[0]


@dataclass(frozen=True, slots=True)
class _Pair:
    """One pair of answers, with its outcome."""

    example_id: str
    status: str
    outcome: str | None
    left_points: float | None
    decided_by: str | None
    inputs: str
    left: str | None
    right: str | None
    left_experiment: str
    right_experiment: str

    @property
    def why_not(self) -> str | None:
        """Why it gives no preference; None if it gives one."""
        if self.status in ("missing", "not_applicable"):
            return self.status.replace("_", " ")
        if self.status == "left_out" or self.decided_by == "failed_output" or self.left is None or self.right is None:
            return "failed outputs"
        if self.left_points == 0.5:
            return {"half": "half ties", "flipped": "flipped"}.get(str(self.outcome), "ties")
        return "same text" if _text(from_json(self.left)) == _text(from_json(self.right)) else None

    def as_row(self, metric: str) -> dict[str, Any]:
        sides = ((self.left, self.left_experiment), (self.right, self.right_experiment))
        (chosen, winner), (rejected, loser) = sides if (self.left_points or 0) > 0.5 else sides[::-1]
        return {
            "prompt": _prompt(from_json(self.inputs)),
            "chosen": _text(from_json(chosen)),
            "rejected": _text(from_json(rejected)),
            "example_id": self.example_id,
            "metric": metric,
            "chosen_experiment": winner,
            "rejected_experiment": loser,
        }


def _prompt(inputs: Mapping[str, Any]) -> Any:
    only = _only(inputs)
    return only if isinstance(only, list) and inputs.keys() == {"messages"} else _text(inputs)


def _text(fields: Mapping[str, Any]) -> str:
    """Return the only field, if it is text; else all fields as JSON, as for the length of an output."""
    only = _only(fields)
    return only if isinstance(only, str) else to_json(fields)


def _only(fields: Mapping[str, Any]) -> Any:
    return next(iter(fields.values())) if len(fields) == 1 else None


_PREFERENCE_PAIRS = """
select metric, example_id, status, outcome, left_points, decided_by, inputs, left_outputs, right_outputs,
       left_experiment, right_experiment
from pair_outcomes where comparison_id = ?
order by position, example_id, repetition, left_experiment_id, right_experiment_id, evaluator_version
"""
