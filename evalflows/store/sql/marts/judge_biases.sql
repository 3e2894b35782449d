-- one row per comparison_id, metric, bias: the bias checks of each judge, and whether it passed
select s.comparison_id, s.name as comparison, c.subject_id as metric, c.name as bias, c.passed, c.n_checked as n,
       -- a preference for longer or shorter answers, which may be better, excludes no judge: its check does not fail
       case when c.passed is not null then not c.passed
            when c.name = 'length_preference' and (
                (c.observed ->> 'low')::double > 0.5 or (c.observed ->> 'high')::double < 0.5) then true end as found,
       (c.observed ->> 'share')::double as share,
       (c.observed ->> 'kappa')::double as kappa,  -- between two judges; the interval is then that of kappa
       (c.observed ->> 'standard_error')::double as standard_error,
       (c.observed ->> 'low')::double as low,
       (c.observed ->> 'high')::double as high,
       c.observed ->> 'method' as method,
       c.message, c.reason_code
from staging.checks c join source.comparison_sets s on s.comparison_id = c.batch_id
where c.subject_kind = 'judge'
