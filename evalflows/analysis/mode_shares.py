"""How often failure modes hold in production: over the newest days, and by version, tag, model and environment."""

from collections.abc import Sequence

from evalflows.analysis.label_shares import WeightedShare, interval_of
from evalflows.specs.failure_modes import PREFIX
from evalflows.specs.frozen import dataclass
from evalflows.store.sql import ask
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeShare(WeightedShare):
    """The share of the items with a mode among those that a trace evaluation judged."""

    evaluation: str
    mode: str
    field: str  # `all`, `day`, `version`, `tag`, `model` or `environment`
    value: str


def mode_shares(store: Store, days: int, mode: str | None = None) -> list[ModeShare]:
    """Return the shares over each trace evaluation's newest days: of all modes; of one also by day and by slice."""
    (rows,) = ask(store, (_SHARES if mode is None else _BY_SLICE, [PREFIX, days, mode]))
    return [
        ModeShare(
            evaluation=evaluation,
            mode=of,
            field=field,
            value=value,
            n_with=n_with,
            n=n,
            **interval_of(share, effective),
        )
        for evaluation, of, field, value, n_with, n, share, effective in rows
    ]


def slices_of(shares: Sequence[ModeShare]) -> list[ModeShare]:
    """Return the slices of fields with several values."""
    fields = [share.field for share in shares if share.field not in ("all", "day", "version")]
    return [share for share in shares if fields.count(share.field) > 1]


_GIVEN = """
with named as (
    select evaluation_id, arg_max(name, started_at) as evaluation from staging.watermarks group by evaluation_id
), given as (
    select coalesce(n.evaluation, left(s.experiment_id, -11)) as evaluation, substr(s.metric, length($1) + 1) as mode,
           split_part(s.subject_id, '/', 1) as source, s.value > 0 as holds,
           1 / coalesce(s.sampling_rate, 1.0) as weight, right(s.experiment_id, 10) as day
    from staging.scores s left join named n on n.evaluation_id = left(s.experiment_id, -11)
    where starts_with(s.metric, $1) and s.subject_kind <> 'run' and s.status = 'scored' and s.turn is null
      and ($3::varchar is null or s.metric = $1 || $3)
    qualify dense_rank() over (partition by evaluation order by day desc) <= $2
), sliced as (
    select *, 'all' as field, '' as value from given
    {more}
)
select evaluation, mode, field, value, count(*) filter (holds), count(*),
       coalesce(sum(weight) filter (holds), 0) / sum(weight), sum(weight) ** 2 / sum(weight ** 2)
from sliced group by evaluation, mode, field, value
order by evaluation, mode, field, value
"""

_SHARES = _GIVEN.format(more="")

_BY_SLICE = _GIVEN.format(
    more="""
    union all select *, 'day', day from given
    union all select * exclude (slice), slice.field, slice.value from (
        select g.*, unnest(
            [{field: 'version', value: t.version}, {field: 'environment', value: t.environment}]
            || list_transform(coalesce(t.tags, []), lambda tag: {field: 'tag', value: tag})
            || list_transform(coalesce(t.models, []), lambda model: {field: 'model', value: model})
        ) as slice
        from given g join traces t on t.trace_id = g.source
    ) where slice.value is not null
    """
)
