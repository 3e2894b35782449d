"""The earlier runs that an experiment can be held against."""

from collections.abc import Mapping, Sequence

from evalflows.specs.metric_names import TRIAL
from evalflows.store.store import Store


def earlier_runs(store: Store, experiments: Sequence[str]) -> Mapping[str, str]:
    """Return the newest complete experiment before each of these, by id, if there is one.

    It has the same name, else the same target of a spec of the same name. Trials, experiments of the same run, and
    those without any answer do not count.
    """
    rows = store.query(_EARLIER, [list(experiments), TRIAL])
    return {str(identity): str(earlier) for identity, earlier in rows if earlier is not None}


_EARLIER = """
select e.experiment_id,
       arg_max(b.experiment_id, (b.name = e.name, b.started_at, b.experiment_id))
from source.experiments e join source.experiments b
    on b.started_at < e.started_at and b.run_group <> e.run_group and b.state = 'completed'
       and not list_contains(b.tags, $2)
       and b.experiment_id not in (select experiment_id from source.estimates group by all having count(mean) = 0)
       and (b.name = e.name or (b.target = e.target and b.spec ->> 'name' = e.spec ->> 'name'))
where is_one_of(e.experiment_id, $1) and e.state = 'completed'
group by e.experiment_id
"""
