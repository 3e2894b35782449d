"""The runs of an experiment to label next, as a form to fill in."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from evalflows.stats.rater_agreement.label_next import expected_error, label_next
from evalflows.store.parquet import Store
from evalflows.store.queries.human_labels import to_label

LOT_DIGITS = 13
"""Hexadecimal digits of a lot that are drawn from: as many as a float holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToLabel:
    """A labelling form: its rows, and how many other runs have no label."""

    name: str  # of the experiment
    rows: list[dict[str, Any]]
    n_fair: int
    left: int


def next_to_label(experiment: str, metric: str, people_metric: str, n: int) -> ToLabel:
    """The next `n` runs to label: a random sample first, then those of which the judge is least certain.

    The judge's scores are not among the columns, so that they do not influence the labeller.
    """
    found = to_label(Store(), experiment, metric, people_metric)
    runs = found.runs
    lots = [float(int(lot[:LOT_DIGITS], 16)) for lot in runs.lot]
    drawn = label_next(lots, runs.is_labelled.to_numpy(dtype=bool), _errors(runs), n)
    rows = [
        {
            "run_id": runs.run_id[one.place],
            "metric": people_metric,
            "drawn": "fair" if one.fair else "uncertain",
            "inputs": runs.inputs[one.place],
            "outputs": runs.outputs[one.place],
            "reference_outputs": _or_none(runs.reference_outputs[one.place]),
            "value": None,
            "comment": None,
        }
        for one in drawn
    ]
    n_fair = sum(one.fair for one in drawn)
    return ToLabel(name=found.name, rows=rows, n_fair=n_fair, left=int((~runs.is_labelled).sum()) - len(rows))


def _errors(runs: Any) -> Any:
    """How far each judgement may be from the truth; all alike where the judge gives labels, or one value only."""
    values = runs.value.to_numpy(dtype=float)
    known = ~np.isnan(values)
    errors = np.zeros(len(values))
    if not known.any():
        return errors
    low, high = min(0.0, float(values[known].min())), max(1.0, float(values[known].max()))
    spreads, others = (runs[name].to_numpy(dtype=float)[known] for name in ("spread", "other"))
    errors[known] = expected_error(values[known], low, high, spreads=spreads, others=others[None, :])
    return errors


def _or_none(value: Any) -> Any:
    return value if isinstance(value, str) else None


__all__ = ["ToLabel", "next_to_label"]
