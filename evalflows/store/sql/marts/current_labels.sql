-- one row per label_id: each labeller's latest label of a subject; is_fair: part of a random sample
with latest as (
    select *,
           metadata ->> 'drawn' as drawn,
           (metadata ->> 'chance')::double as chance,
           md5(subject_id) as lot  -- a random order of runs, derived from their ids; used by `labels next`
    from staging.labels
    qualify row_number() over (
        partition by subject_kind, subject_id, turn, other_run_id, metric, labeller order by recorded_at desc, label_id
    ) = 1
)
select * exclude (lot),
       -- feedback is self-selected, and nobody knows how labels were selected that came with traces, or of a selection of them;
       -- runs chosen because a judge was uncertain count as random once the random order reaches them
       source <> 'feedback' and not starts_with(batch_id, 'feedback-')
       and (metadata ->> 'drawn_from') is distinct from 'selection'
       and (drawn is distinct from 'uncertain'
            or coalesce(lot <= max(lot) filter (drawn = 'fair') over (  -- a trace's order is of what it was drawn from
                partition by experiment_id, metric, (metadata ->> 'drawn_from')), false)) as is_fair
from latest
