-- one row per comparison_id, metric, bias: the bias checks of each judge, and whether it passed
select s.comparison_id, s.name as comparison, c.subject_id as metric, c.name as bias, c.passed, c.n_checked as n,
       (c.observed ->> 'share')::double as share,
       (c.observed ->> 'kappa')::double as kappa,  -- between two judges; the interval is then that of kappa
       (c.observed ->> 'standard_error')::double as standard_error,
       (c.observed ->> 'low')::double as low,
       (c.observed ->> 'high')::double as high,
       c.observed ->> 'method' as method,
       c.message, c.reason_code
from staging.checks c join source.comparison_sets s on s.comparison_id = c.batch_id
where c.subject_kind = 'judge'
