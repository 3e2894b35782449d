"""Which answers people should label next."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evalflows.stats.agreement import expected_error
from evalflows.stats.arrays import FloatArray
from evalflows.stats.judge_error import MIN_LABELS
from evalflows.stats.label_choice import label_next
from evalflows.store.queries.labels import to_label
from evalflows.store.store import Store

LOT_DIGITS = 13
"""The leading hexadecimal digits of a lot that are used: as many as a float holds exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabellingForm:
    """A form of runs to label."""

    name: str  # of the experiment
    rows: list[dict[str, Any]]
    n_fair: int
    n_unlabelled: int  # judged runs without a label that are not in the form
    n_fair_before: int  # runs with a label that were drawn at random

    @property
    def text(self) -> str:
        """What is in the form, and how many labels will count for agreement once it is filled in."""
        n_unsure, n_counted = len(self.rows) - self.n_fair, self.n_fair_before + self.n_fair
        drawn = f"{self.n_fair} drawn at random, {n_unsure} with an unsure judge; {self.n_unlabelled} more unlabelled"
        counted = f"{n_counted} labels drawn at random will count for agreement"
        if n_counted < MIN_LABELS:
            counted += f", {MIN_LABELS - n_counted} more are needed for the corrected mean (--order random)"
        return f"{drawn}; {counted}"


Order = Literal["mixed", "random", "informative"]
"""How runs are chosen for a form: at random, those of which the judge is least certain, or half of each."""

FAIR_SHARES: dict[Order, float] = {"mixed": 0.5, "random": 1.0, "informative": 0.0}


def next_to_label(experiment: str, metric: str, people_metric: str, n: int, order: Order = "mixed") -> LabellingForm:
    """Return the next `n` runs to label: a random sample first, then those of which the judge is least certain.

    The judge's scores are not among the columns, so that they do not influence the labeller.
    """
    unlabelled = to_label(Store(), experiment, metric, people_metric)
    runs = unlabelled.runs
    lots = [float(int(lot[:LOT_DIGITS], 16)) for lot in runs.lot]
    selection = label_next(
        lots,
        runs.is_labelled.to_numpy(dtype=bool),
        judge_errors(*(runs[name].to_numpy(dtype=float) for name in ("value", "spread", "other"))),
        n,
        fair_share=FAIR_SHARES[order],
    )
    rows = [
        {
            "run_id": runs.run_id[chosen.place],
            "metric": people_metric,
            "drawn": "fair" if chosen.fair else "uncertain",
            "inputs": runs.inputs[chosen.place],
            "outputs": runs.outputs[chosen.place],
            "reference_outputs": text if isinstance(text := runs.reference_outputs[chosen.place], str) else None,
            "value": None,
            "comment": None,
        }
        for chosen in selection
    ]
    n_fair = sum(chosen.fair for chosen in selection)
    return LabellingForm(
        name=unlabelled.name,
        rows=rows,
        n_fair=n_fair,
        n_unlabelled=int((~runs.is_labelled).sum()) - len(rows),
        n_fair_before=int(runs.is_fair.sum()),
    )


def judge_errors(values: FloatArray, spreads: FloatArray, others: FloatArray) -> FloatArray:
    """Return the expected error of each judgement, shape (n,); all the same if the judge gives labels, or one value
    only.

    `values` are the judge's, `spreads` their standard deviations over repeats, `others` those of another version of
    the judge; each has shape (n,), and nan for what is not known.
    """
    known = ~np.isnan(values)
    errors = np.zeros(len(values))
    if known.any():
        low, high = min(0.0, float(values[known].min())), max(1.0, float(values[known].max()))
        errors[known] = expected_error(values[known], low, high, spreads=spreads[known], others=others[known][None, :])
    return errors
