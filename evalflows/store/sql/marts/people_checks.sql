-- one row per evaluator_version, metric: whether a judge agrees with people's labels better than chance, by the newest comparison of the two; the scores of one that does not decide nothing
select observed ->> 'evaluator_version' as evaluator_version, subject_id as metric, batch_id,
       coalesce(observed ->> 'evaluator', subject_id) as evaluator, passed, message,
       case when not passed then
           'its judge agrees with people not significantly better than chance ('
           || coalesce(message, 'compared with human labels') || ')'
       end as rejection, recorded_at
from staging.checks
where starts_with(batch_id, 'people-') and subject_kind = 'judge' and name = 'people' and passed is not null
qualify row_number() over (
    partition by observed ->> 'evaluator_version', subject_id order by recorded_at desc, check_id desc
) = 1
