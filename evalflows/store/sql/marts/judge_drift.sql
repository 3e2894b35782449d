-- one row per run_id, metric, evaluator_version: what the anchors of a run said of each of its judges: whether it has drifted, or in production the system
select c.observed ->> 'run_id' as run_id, c.subject_id as evaluator, c.column_name as metric, c.observed ->> 'version' as evaluator_version,
       c.observed ->> 'changed' as changed, (c.observed ->> 'since')::timestamptz as since,
       (c.observed ->> 'seen_at')::timestamptz as seen_at, c.n_checked as n_anchors,
       (c.observed ->> 'n_since')::bigint as n_since, (c.observed ->> 'error_before')::double as error_before,
       (c.observed ->> 'error')::double as error, (c.observed ->> 'error_standard_error')::double as standard_error,
       (c.observed ->> 'score_before')::double as score_before, (c.observed ->> 'score')::double as score,
       (c.observed ->> 'evidence')::double as evidence, c.message, c.recorded_at as checked_at
from staging.checks c where c.subject_kind = 'judge' and c.name = 'drift'
