"""Convert an evaluator's return value to judgements or, for a pairwise evaluator, to preferences."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalflows.evaluators.call import Bound
from evalflows.evaluators.explained import with_comment
from evalflows.evaluators.preference import Preference, preferences
from evalflows.evaluators.score import Judgement, normalise
from evalflows.specs.metric_names import MEASURES, kept_apart


def read_returned(
    bound: Bound, returned: object, available: Mapping[str, Any]
) -> Sequence[Judgement] | Sequence[Preference]:
    """Return judgements, or for a pairwise evaluator preferences between the `runs` that it was given.

    A rule's false gets its comment, and a score called like a measure of every run a name of its own. Raise TypeError
    or ValueError for a return value that cannot be converted.
    """
    if bound.scope != "pair":
        judgements = normalise(with_comment(bound, returned, available), bound.name)
        return [
            replace(judgement, metric=kept_apart(judgement.metric)) if judgement.metric in MEASURES else judgement
            for judgement in judgements
        ]
    return preferences(returned, bound.name, [run.id for run in available["runs"]])
