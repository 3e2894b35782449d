"""How far people agree with each other about one metric of an experiment or a comparison."""

from typing import Any

import pandas as pd

from evalflows.analysis.human_labels.judge_agreement import Kind, alpha_among_people
from evalflows.analysis.human_labels.review import token_of
from evalflows.store.queries.review_items import Reviewed


def people_agreement(reviewed: Reviewed, kind: Kind, confidence_level: float = 0.95) -> dict[str, Any] | None:
    """Return Krippendorff's alpha of the labellers, as `labels agreement` computes it; None if there is only one.

    If there is a random sample, it rests on that.
    """
    known = {item.token: item.together for item in reviewed.items}
    labels = [one for one in reviewed.labels if token_of(one) in known]
    counted = [one for one in labels if one.is_fair] or labels
    if len({one.labeller for one in counted}) < 2:
        return None
    frame = pd.DataFrame(
        [(token_of(one), one.labeller, one.value, one.label) for one in counted],
        columns=["unit", "labeller", "value", "label"],
    )
    return alpha_among_people(frame, pd.Series(known), kind, confidence_level)
