-- one row per comparison_id, metric, habit: what a judge's verdicts rest on besides the answers, and whether it may be relied on
select s.comparison_id, s.name as comparison, c.subject_id as metric, c.name as habit, c.passed, c.n_checked as n,
       (c.observed ->> 'share')::double as share,
       (c.observed ->> 'kappa')::double as kappa,  -- of two judges; the interval is then of this
       (c.observed ->> 'low')::double as low,
       (c.observed ->> 'high')::double as high,
       c.message
from checks c join comparison_sets s on s.comparison_id = c.batch_id
where c.subject_kind = 'judge'
