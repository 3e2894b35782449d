"""Which answers and traces people should label next."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from typing import Any, Literal

import numpy as np

from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.stats.agreement import expected_error
from evalflows.stats.arrays import FloatArray
from evalflows.stats.judge_error import MIN_LABELS
from evalflows.stats.label_choice import label_next
from evalflows.stats.weights import weight_disagreements
from evalflows.store.queries.labels import texts_to_label, to_label
from evalflows.store.records import from_json
from evalflows.store.store import Store

LOT_DIGITS = 13
"""The leading hexadecimal digits of a lot that are used: as many as a float holds exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabellingForm:
    """A form of runs or traces to label."""

    name: str  # of the experiment or trace evaluation
    item: Literal["run", "trace"]
    rows: list[dict[str, Any]]
    n_fair: int
    n_unlabelled: int  # judged ones without a label that are not in the form
    n_fair_before: int  # those with a label that were drawn at random
    by_weights: bool  # whether the others are those on which the weights of a composite disagree

    @property
    def text(self) -> str:
        """What is in the form, and how many labels will count for agreement once it is filled in."""
        n_unsure, n_counted = len(self.rows) - self.n_fair, self.n_fair_before + self.n_fair
        why = "on which weights disagree" if self.by_weights else "with an unsure judge"
        drawn = f"{self.n_fair} drawn at random, {n_unsure} {why}; {self.n_unlabelled} more unlabelled"
        counted = f"{n_counted} labels drawn at random will count for agreement"
        if n_counted < MIN_LABELS:
            counted += f", {MIN_LABELS - n_counted} more are needed for the corrected mean (--order random)"
        return f"{drawn}; {counted}"


Order = Literal["mixed", "random", "informative", "disagree"]
"""How runs are chosen for a form: at random, those of which the judge is least certain, half of each, or those on which
the weights of a composite disagree."""

FAIR_SHARES: dict[Order, float] = {"mixed": 0.5, "random": 1.0, "informative": 0.0, "disagree": 0.0}


def next_to_label(
    experiment: str, metric: str, people_metric: str, n: int, order: Order = "mixed", since: date | None = None
) -> LabellingForm:
    """Return the next `n` runs, or traces of a trace evaluation `since` a day, to label: a random sample first, then
    those of which the judge is least certain, or on which the weights of the composite `metric` disagree.

    The judge's scores are not among the columns, so that they do not influence the labeller. Raise InputError for
    weights of what is no composite.
    """
    store = Store()
    unlabelled = to_label(store, experiment, metric, people_metric, since)
    items, by_weights = unlabelled.items, order == "disagree"
    if by_weights:
        errors = disagreements_of_weights(metric, items.composed.tolist())
    else:
        errors = judge_errors(*(items[name].to_numpy(dtype=float) for name in ("value", "spread", "other")))
    lots = [float(int(lot[:LOT_DIGITS], 16)) for lot in items.lot]
    selection = label_next(
        lots,
        items.is_labelled.to_numpy(dtype=bool),
        errors,
        n,
        fair_share=FAIR_SHARES[order],
    )
    units = [items.unit[chosen.place] for chosen in selection]
    texts = texts_to_label(store, unlabelled, units)
    drawn_from = unlabelled.drawn_from
    item: Literal["run", "trace"] = "run" if drawn_from is None else "trace"
    rows = [
        {
            f"{item}_id": unit,
            "metric": people_metric,
            "drawn": "fair" if chosen.fair else "uncertain",
            **({} if drawn_from is None else {"drawn_from": drawn_from}),
            **asdict(texts[unit]),
            "value": None,
            "comment": None,
        }
        for chosen, unit in zip(selection, units, strict=True)
    ]
    n_fair = sum(chosen.fair for chosen in selection)
    return LabellingForm(
        name=unlabelled.name,
        item=item,
        rows=rows,
        n_fair=n_fair,
        n_unlabelled=int((~items.is_labelled).sum()) - len(rows),
        n_fair_before=int(items.is_fair.sum()),
        by_weights=by_weights,
    )


def disagreements_of_weights(metric: str, composed: Sequence[str | None]) -> FloatArray:
    """Return how far all possible weights of a composite disagree on each run, shape (n,); `composed` is the metadata
    of its scores. Raise InputError if none is one of a composite of several parts."""
    from evalflows.analysis.robustness import parts_of  # late: specs are slow to import

    known = [place for place, metadata in enumerate(composed) if isinstance(metadata, str)]
    names = dict.fromkeys(name for place in known for name in from_json(composed[place])["parts"])
    if len(names) < 2:
        raise InputError(f"metric {metric!r}: is not a composite of several metrics, wanted one")
    found = np.zeros(len(composed))
    parts = np.array([parts_of(composed[place], [*names]) for place in known])
    has_any = ~np.isnan(parts).all(axis=1)
    found[np.array(known)[has_any]] = weight_disagreements(parts[has_any])
    return found


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
