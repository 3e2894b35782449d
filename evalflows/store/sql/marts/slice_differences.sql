-- one row per decision_id, metric, slice: the slices that were searched for a gate's decision, and how their difference departs
select c.batch_id as decision_id, d.gate, c.subject_id as candidate_experiment_id, d.baseline_experiment_id,
       one.metric, one.slice, one."where" as condition, one.n_examples, one.difference, one.difference_elsewhere,
       one.low as ci_low, one.high as ci_high, one.p_adjusted, one.is_worse, one.is_loss, one.stands_out, d.decided_at
from (
    select batch_id, subject_id, unnest(from_json(observed -> 'slices', '[{
        "metric": "VARCHAR", "slice": "VARCHAR", "where": "VARCHAR", "n_examples": "BIGINT", "difference": "DOUBLE",
        "difference_elsewhere": "DOUBLE", "low": "DOUBLE", "high": "DOUBLE", "p_adjusted": "DOUBLE",
        "is_worse": "BOOLEAN", "is_loss": "BOOLEAN", "stands_out": "BOOLEAN"}]')) as one
    from staging.checks where name = 'slices' and subject_kind = 'experiment'
) c
join staging.decisions d on d.decision_id = c.batch_id
