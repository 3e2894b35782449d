"""Judges ranked by their agreement with people."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from evalflows.analysis.labels import JudgeAndLabels, both_labels, join_labels, sampling_weights
from evalflows.specs.errors import InputError
from evalflows.stats.agreement import agreement
from evalflows.stats.judge_error import judge_error
from evalflows.store.queries.labels import JudgeOfLabels, labelled_items
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedJudge:
    """One judge's agreement with human labels, over all experiments; several labels of an item count once."""

    evaluator: str
    evaluator_version: str
    judge_model: str
    metric: str
    people_metric: str
    n_items: int  # without those on which people are evenly split, unless they gave numbers
    n_labels: int
    agreement: float | None  # the share of items; None of numbers
    kappa: float | None
    bias: float | None
    correlation: float | None
    from_feedback: bool


def judge_standings(store: Store, evaluator: str | None = None) -> list[RankedJudge]:
    """Return all judges with human labels, or one, by the labelled metric, best first."""
    joined: dict[JudgeOfLabels, list[JudgeAndLabels]] = {}
    for items in labelled_items(store, evaluator):
        try:
            both = join_labels(items.judgements, items.labels, is_pairs=items.is_pairs)
        except InputError:  # numbers on one side and labels on the other cannot be compared
            continue
        joined.setdefault(items.judge, []).append(both)
    return sorted((_standing(judge, some) for judge, some in joined.items()), key=_place)


def _standing(judge: JudgeOfLabels, joined: Sequence[JudgeAndLabels]) -> RankedJudge:
    """Return the figures over all items of experiments in which the judge gave the same kind of values."""
    kind = "numbers" if any(both.kind == "numbers" for both in joined) else joined[0].kind
    people = pd.concat([both.people for both in joined])
    counted = pd.concat([both.labels for both in joined])
    found = None if kind == "numbers" else agreement(*both_labels(people, kind))
    error = None
    if kind in ("yes_no", "numbers"):
        error = judge_error(people.value_judge, people.value, weights=sampling_weights(people))
    return RankedJudge(
        **judge._asdict(),
        n_items=len(people) if found is None else found.n,
        n_labels=len(counted),
        agreement=None if found is None else found.share,
        kappa=None if found is None else found.kappa,
        bias=None if error is None else error.bias,
        correlation=None if error is None else error.correlation,
        from_feedback=not counted.is_fair.all(),
    )


def _place(judge: RankedJudge) -> tuple[object, ...]:
    """Return the best of each labelled metric first."""
    by_rank = judge.correlation if judge.kappa is None else judge.kappa
    ranks = [(value is None, -(value or 0.0)) for value in (by_rank, judge.agreement)]
    return judge.people_metric, *ranks, judge.evaluator, judge.evaluator_version
