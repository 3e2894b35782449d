"""Answers that were preferred to others, as training data: a prompt, the chosen answer, and the rejected one."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specs.errors import InputError
from store.catalog import ask
from store.comparisons import given_twice
from store.parquet import Store
from store.records import from_json, to_json

LEFT_OUT = ("ties", "flipped", "missing", "failed outputs", "not applicable", "same text")
"""Why a pair is no preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What a comparison says by one metric."""

    comparison_id: str
    metric: str
    rows: list[dict[str, Any]]  # prompt, chosen, rejected, and where they come from
    left_out: dict[str, int]  # pairs by each of LEFT_OUT

    @property
    def in_words(self) -> str:
        """How many there are, and how many pairs were left out, in one line."""
        of = f"{len(self.rows)} of {len(self.rows) + sum(self.left_out.values())} pairs by {self.metric}"
        lost = [f"{count} {why}" for why, count in self.left_out.items() if count]
        return f"{of}; left out: {', '.join(lost)}" if lost else of


def preferences_of(store: Store, comparison_id: str, metric: str | None = None) -> Preferences:
    """The pairs of a comparison in which one answer is better, in the order of the examples.

    A prompt and an answer are the text of their only field, a prompt that is a conversation its list of messages,
    anything else JSON text. Ties, flips, what is missing, runs that failed, and two answers of the same text are left
    out, and counted. Raises InputError for a comparison without judgements, for a metric that it has not, where it has
    several and none is named, and where two evaluators gave one of the same name.
    """
    if twice := given_twice(store, comparison_id):
        raise InputError(f"comparison {comparison_id!r}: {twice}")
    metrics, pairs = ask(store, (_METRICS, [comparison_id]), (_PAIRS, [comparison_id]))
    named = _one_of(comparison_id, [name for (name,) in metrics], metric)
    found = [_Pair(*values) for of, *values in pairs if of == named]
    lost = Counter(pair.why_not for pair in found)
    return Preferences(
        comparison_id=comparison_id,
        metric=named,
        rows=[pair.as_row(named) for pair in found if pair.why_not is None],
        left_out={why: lost[why] for why in LEFT_OUT},
    )


def _one_of(comparison_id: str, known: list[str], metric: str | None) -> str:
    if not known:
        raise InputError(f"comparison {comparison_id!r}: has no judgements yet, wanted some")
    if metric is None and len(known) > 1:
        raise InputError(f"comparison {comparison_id!r}: has {len(known)} metrics, wanted one of: {', '.join(known)}")
    if metric is not None and metric not in known:
        raise InputError(f"comparison {comparison_id!r}: got the metric {metric!r}, wanted one of: {', '.join(known)}")
    return metric or known[0]


@dataclass(frozen=True, slots=True)
class _Pair:
    """One pair of answers, and what was said of it."""

    example_id: str
    status: str
    outcome: str | None
    decided_by: str | None
    inputs: str
    left: str | None
    right: str | None
    left_experiment: str
    right_experiment: str

    @property
    def why_not(self) -> str | None:
        """Why it is no preference; None if it is one."""
        if self.status in ("missing", "not_applicable"):
            return self.status.replace("_", " ")
        if self.status == "left_out" or self.decided_by == "failed output" or self.left is None or self.right is None:
            return "failed outputs"
        if self.outcome in ("tie", "flipped"):
            return "ties" if self.outcome == "tie" else "flipped"
        return "same text" if _text(from_json(self.left)) == _text(from_json(self.right)) else None

    def as_row(self, metric: str) -> dict[str, Any]:
        sides = ((self.left, self.left_experiment), (self.right, self.right_experiment))
        (chosen, winner), (rejected, loser) = sides if self.outcome == "left" else sides[::-1]
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
    """The only field, where that is a text; else the whole as JSON, as the length of an output is reckoned too."""
    only = _only(fields)
    return only if isinstance(only, str) else to_json(fields)


def _only(fields: Mapping[str, Any]) -> Any:
    return next(iter(fields.values())) if len(fields) == 1 else None


_METRICS = "select distinct metric from comparisons where comparison_id = ? order by metric"

_PAIRS = """
select metric, example_id, status, outcome, decided_by, inputs, left_outputs, right_outputs, left_experiment,
       right_experiment
from pair_outcomes where comparison_id = ?
order by position, example_id, repetition, left_experiment_id, right_experiment_id, evaluator_version
"""
