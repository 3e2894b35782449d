-- one row per candidate_experiment_id, baseline_experiment_id, metric, evaluator_version, example_id: how one example changed in one metric between the two experiments of a pair
with by_example as (
    select experiment_id, metric, evaluator_version, any_value(evaluator) as evaluator, example_id,
           avg(value) filter (status = 'scored') as value,
           -- repetitions may have several labels
           case when min(label) = max(label) then min(label)
                else array_to_string(list_sort(list_distinct(list(label) filter (label is not null))), ' / ') end as label,
           count(*) filter (status = 'scored') as scored,
           count(*) filter (status = 'failed') as failed,
           count(*) filter (status = 'not_applicable') as not_applicable,
           count(*) filter (status = 'sampled_out') as sampled_out
    from run_values
    group by experiment_id, metric, evaluator_version, example_id
), metrics as (
    select experiment_id, metric, evaluator_version, any_value(evaluator) as evaluator
    from run_values group by experiment_id, metric, evaluator_version
), compared as (
    -- the baseline's evaluator of the same version, else of the same name, else any
    select p.*, c.metric, c.evaluator_version, b.evaluator_version as baseline_evaluator_version,
           case when higher_is_better(p.spec, c.metric) then 1 else -1 end as sign
    from experiment_pairs p
    join metrics c on c.experiment_id = p.candidate_experiment_id
    join metrics b on b.experiment_id = p.baseline_experiment_id and b.metric = c.metric
    qualify row_number() over (
        partition by p.candidate_experiment_id, p.baseline_experiment_id, c.metric, c.evaluator_version
        order by b.evaluator_version = c.evaluator_version desc, b.evaluator = c.evaluator desc, b.evaluator_version
    ) = 1
), shared as (
    select s.snapshot_id, s.baseline_snapshot_id, c.example_id, c.position, c.split, c.cluster
    from (select distinct snapshot_id, baseline_snapshot_id from experiment_pairs) s
    join staging.examples c on c.snapshot_id = s.snapshot_id
    join staging.examples b on b.snapshot_id = s.baseline_snapshot_id and b.example_id = c.example_id
    where s.snapshot_id = s.baseline_snapshot_id
          or (b.inputs::varchar = c.inputs::varchar
              and b.reference_outputs::varchar is not distinct from c.reference_outputs::varchar)
), sides as (
    select m.*, x.example_id, x.position, x.split, x.cluster, c.value, c.label, b.value as baseline_value,
           b.label as baseline_label,
           coalesce(c.scored, 0) as scored, coalesce(b.scored, 0) as baseline_scored,
           m.repetitions - coalesce(c.scored + c.not_applicable + c.sampled_out, 0) as missing,
           m.baseline_repetitions - coalesce(b.scored + b.not_applicable + b.sampled_out, 0) as baseline_missing,
           coalesce(c.failed, 0) as failed, coalesce(b.failed, 0) as baseline_failed,
           coalesce(c.sampled_out, 0) as sampled_out, coalesce(b.sampled_out, 0) as baseline_sampled_out,
           m.same_target_version and m.evaluator_version = m.baseline_evaluator_version as same_version,
           m.sign * (c.value - b.value) as gain
    from compared m
    join shared x on x.snapshot_id = m.snapshot_id and x.baseline_snapshot_id = m.baseline_snapshot_id
    left join by_example c
        on c.experiment_id = m.candidate_experiment_id and c.metric = m.metric
           and c.evaluator_version = m.evaluator_version and c.example_id = x.example_id
    left join by_example b
        on b.experiment_id = m.baseline_experiment_id and b.metric = m.metric
           and b.evaluator_version = m.baseline_evaluator_version and b.example_id = x.example_id
)
select candidate_experiment_id, baseline_experiment_id, metric, evaluator_version, example_id,
       s.candidate, s.baseline, relation, s.snapshot_id, baseline_evaluator_version,
       position, split, cluster, value, baseline_value, gain, label, baseline_label, scored, missing,
       baseline_scored, baseline_missing, sign > 0 as higher_is_better, same_version,
       case when missing > 0 or baseline_missing > 0 then 'missing'
            when scored = 0 or baseline_scored = 0 then 'not_applicable'
            -- means of the same values in another order may differ in the last digit
            when abs(gain) <= 1e-9 * greatest(abs(value), abs(baseline_value)) then 'same'
            when gain is null and label is not distinct from baseline_label then 'same'
            when same_version then 'flipped'
            when gain > 0 then 'improved'
            when gain < 0 then 'regressed'
            else 'changed' end as change,
       case when failed > 0 then 'candidate_failed' when baseline_failed > 0 then 'baseline_failed'
            when missing > 0 then 'candidate_not_attempted' when baseline_missing > 0 then 'baseline_not_attempted'
            when scored = 0 and sampled_out > 0 then 'candidate_sampled_out'
            when scored = 0 then 'candidate_not_applicable'
            when baseline_scored = 0 and baseline_sampled_out > 0 then 'baseline_sampled_out'
            when baseline_scored = 0 then 'baseline_not_applicable' end as reason
from sides s
