"""Panels: the verdicts of several judges on one answer, combined into one in their own unit."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, median
from typing import NamedTuple

from evalflows.evaluators.scales import majority, nearest_to, spread_of
from evalflows.specs.evaluator import PanelCombine
from evalflows.store.records import DataType, JudgementRow


class PanelVerdict(NamedTuple):
    """What a panel says of an answer."""

    value: float | None
    label: str | None
    data_type: DataType | None
    spread: float | None  # the standard deviation of the judges' numbers
    agreement: float | None  # the share of pairs of judges with the same verdict
    nearest: int  # the first judge with this verdict, or closest to it


def panel_verdict(
    verdicts: Sequence[JudgementRow], combine: PanelCombine | None, weights: Sequence[float]
) -> PanelVerdict:
    """Combine the scores of judges; `weights` count with `weighted` only.

    By default yes/no and labels are decided by the majority, and numbers by their median. On a tie the verdict of the
    judge that is listed first counts. `weighted` is the weighted majority, or the weighted mean of numbers. Labels
    without numbers are never averaged. Raise ValueError if some judges gave numbers and others labels.
    """
    numbers = [row.value for row in verdicts if row.value is not None]
    said = [row.value if row.label is None else row.label for row in verdicts]
    pairs = [first == second for first, second in combinations(said, 2)]
    spread, agreement = spread_of(numbers), fmean(pairs) if pairs else None
    has_labels = all(row.label is not None for row in verdicts)
    if len(numbers) < len(verdicts) and not has_labels:
        raise ValueError("some judges gave numbers, others labels; wanted the same of all")
    is_choice = has_labels or all(row.data_type == "BOOLEAN" for row in verdicts)
    if combine == "majority" or (is_choice and (combine in (None, "weighted") or len(numbers) < len(verdicts))):
        chosen = _weighted_majority(said, weights) if combine == "weighted" else majority(said)
        row = verdicts[nearest := said.index(chosen)]
        return PanelVerdict(row.value, row.label, row.data_type, spread, agreement, nearest)
    if combine == "weighted":
        value = fmean(numbers, weights)
    else:
        value = fmean(numbers) if combine == "mean" else median(numbers)
    return PanelVerdict(value, None, "NUMERIC", spread, agreement, nearest_to(value, numbers))


def _weighted_majority(said: Sequence[float | str | None], weights: Sequence[float]) -> float | str | None:
    sums: defaultdict[float | str | None, float] = defaultdict(float)
    for verdict, weight in zip(said, weights, strict=True):
        sums[verdict] += weight
    return max(sums, key=lambda verdict: sums[verdict])  # the first one of equals
