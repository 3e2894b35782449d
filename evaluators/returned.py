"""Convert an evaluator's return value to judgements or, for a pairwise evaluator, to preferences."""

from collections.abc import Mapping, Sequence
from typing import Any

from evalflows.evaluators.call import Bound
from evalflows.evaluators.explained import with_comment
from evalflows.evaluators.preference import Preference, preferences
from evalflows.evaluators.score import Judgement, normalise
from evalflows.specs.metric_names import MEASURES, RETURNED_AS, kept_apart


def read_returned(
    bound: Bound, returned: object, available: Mapping[str, Any]
) -> Sequence[Judgement] | Sequence[Preference]:
    """Return judgements, or for a pairwise evaluator preferences between the `runs` that it was given.

    A rule's false gets its comment, and a score called like a measure of every run a name of its own. Raise TypeError
    or ValueError for a return value that cannot be converted.
    """
    if bound.scope == "pair":
        return preferences(returned, bound.name, [run.id for run in available["runs"]])
    judgements = normalise(with_comment(bound, returned, available), bound.name)
    if bound.names_stand or not any(judgement.metric in MEASURES for judgement in judgements):
        return judgements
    return [_kept_apart(judgement) for judgement in judgements]


def _kept_apart(judgement: Judgement) -> Judgement:
    """Give a score that is called like a measure a name of its own; other evaluators still see it by the first."""
    if judgement.metric not in MEASURES:
        return judgement
    metadata = {**(judgement.metadata or {}), RETURNED_AS: judgement.metric}
    return judgement._replace(metric=kept_apart(judgement.metric), metadata=metadata)
