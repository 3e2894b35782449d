"""What the answers of two experiments to an example have in common."""

from collections.abc import Mapping, Sequence
from typing import Any

from evalflows.store.store import Store


def answers_alike(store: Store, sides: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """Return the labels that evaluators gave the answers of two experiments alike, and the input tokens of both if all
    answers have them: by field, then by example.

    Tokens are the mean of both sides. Those of one side alone would find slices by chance: an agent that lost its way
    has read more, and failed.
    """
    found: dict[str, dict[str, Any]] = {}
    for metric, example, label in store.query(_LABELS, sides):
        found.setdefault(f"label {metric}", {})[example] = label
    if tokens := dict(store.query(_TOKENS, sides)):
        found["input tokens"] = tokens
    return found


_LABELS = """
select metric, example_id, any_value(label) from staging.scores
where experiment_id in ($1, $2) and subject_kind = 'run' and turn is null and label is not null
      and value is null  -- else it says the metric itself
group by metric, example_id having count(distinct label) = 1 and count(distinct experiment_id) = 2
order by metric, example_id
"""

_TOKENS = """
with answers as (
    select example_id, experiment_id, tokens_in from staging.outputs
    where experiment_id in ($1, $2) and status = 'ok'
)
select example_id, avg(tokens) from (
    select example_id, avg(tokens_in) as tokens from answers group by example_id, experiment_id
) where (select bool_and(coalesce(tokens_in, 0) > 0) from answers)
group by example_id having count(*) = 2
"""
