-- one row per label_id: what people say now, of each labeller's labels of one thing the latest; is_fair: part of a fair sample
with latest as (
    select *,
           metadata ->> 'drawn' as drawn,
           (metadata ->> 'chance')::double as chance,
           md5(subject_id) as lot  -- drawn once for each run, by its id; `labels next` goes by it
    from labels
    qualify row_number() over (
        partition by subject_kind, subject_id, turn, other_run_id, metric, labeller order by recorded_at desc, label_id
    ) = 1
)
select * exclude (lot),
       -- whoever gives feedback has chosen to; what was chosen since a judge was unsure is fair once its turn would have come
       source <> 'feedback'
       and (drawn is distinct from 'uncertain'
            or coalesce(lot <= max(lot) filter (drawn = 'fair') over (partition by experiment_id, metric), false)) as is_fair
from latest
