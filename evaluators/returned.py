"""What an evaluator returned, as what it is kept as: by whether it judges runs or compares two."""

from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.call import Bound
from evaluators.preference import Preference, preferences
from evaluators.score import Judgement, normalise


def read_returned(
    bound: Bound, returned: object, offered: Mapping[str, Any]
) -> Sequence[Judgement] | Sequence[Preference]:
    """Judgements, or of a pairwise evaluator preferences, by the `runs` that it was offered.

    Raises TypeError and ValueError for what cannot be kept.
    """
    if bound.level != "pair":
        return normalise(returned, bound.name)
    return preferences(returned, bound.name, [run.id for run in offered["runs"]])
