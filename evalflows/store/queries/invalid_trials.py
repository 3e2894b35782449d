"""Trials of conversations that did not count, since the simulated user did not keep to its goal."""

from collections.abc import Sequence

from evalflows.specs.frozen import dataclass
from evalflows.store.sql import ask_records
from evalflows.store.store import Store

_TRIALS = """
with counted as (
    select experiment_id, target,
           case when error_kind = 'invalid_trial' then 2
                else coalesce(json_array_length(outputs -> '$.invalid_trials'), 0) end as invalid,
           case when status = 'ok' then 1 else 0 end as valid
    from source.outputs join source.experiments using (experiment_id)
    where is_one_of(experiment_id, $1) and target_kind = 'conversation'
          and (status = 'ok' or error_kind = 'invalid_trial')
)
select experiment_id, target, sum(invalid)::integer as invalid, sum(invalid + valid)::integer as trials
from counted group by all having sum(invalid) > 0 order by target
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidTrials:
    """The trials of an experiment that did not count."""

    experiment_id: str
    target: str
    invalid: int
    trials: int

    @property
    def share(self) -> float:
        return self.invalid / self.trials

    @property
    def text(self) -> str:
        counted = f"{self.invalid} of {self.trials} trials ({self.share:.0%}) of {self.target}"
        return f"{counted} are invalid: the simulated user did not keep to its goal"


def invalid_trials(store: Store, experiments: Sequence[str]) -> list[InvalidTrials]:
    """Return the invalid trials of those of these experiments that have some."""
    with store.reading(only={"experiment_id": experiments}):
        return ask_records(store, InvalidTrials, _TRIALS, [sorted(experiments)])
