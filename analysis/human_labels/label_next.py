"""The runs of an experiment to label next, as a form to fill in."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from evalflows.stats.rater_agreement.label_next import expected_error, label_next
from evalflows.store.parquet import Store
from evalflows.store.queries.human_labels import to_label

LOT_DIGITS = 13
"""The leading hexadecimal digits of a lot that are used: as many as a float holds exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabellingForm:
    """A form of runs to label."""

    name: str  # of the experiment
    rows: list[dict[str, Any]]
    n_fair: int
    n_unlabelled: int  # judged runs without a label that are not in the form


def next_to_label(experiment: str, metric: str, people_metric: str, n: int) -> LabellingForm:
    """The next `n` runs to label: a random sample first, then those of which the judge is least certain.

    The judge's scores are not among the columns, so that they do not influence the labeller.
    """
    unlabelled = to_label(Store(), experiment, metric, people_metric)
    runs = unlabelled.runs
    lots = [float(int(lot[:LOT_DIGITS], 16)) for lot in runs.lot]
    selection = label_next(lots, runs.is_labelled.to_numpy(dtype=bool), _errors(runs), n)
    rows = [
        {
            "run_id": runs.run_id[chosen.place],
            "metric": people_metric,
            "drawn": "fair" if chosen.fair else "uncertain",
            "inputs": runs.inputs[chosen.place],
            "outputs": runs.outputs[chosen.place],
            "reference_outputs": _or_none(runs.reference_outputs[chosen.place]),
            "value": None,
            "comment": None,
        }
        for chosen in selection
    ]
    n_fair = sum(chosen.fair for chosen in selection)
    return LabellingForm(
        name=unlabelled.name, rows=rows, n_fair=n_fair, n_unlabelled=int((~runs.is_labelled).sum()) - len(rows)
    )


def _errors(runs: Any) -> Any:
    """The expected error of each judgement; all the same if the judge gives labels, or one value only."""
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


__all__ = ["LabellingForm", "next_to_label"]
