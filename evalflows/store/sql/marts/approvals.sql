-- one row per baseline_id: who approved which experiment as baseline, and whether the approval is current
select b.baseline_id, b.name, b.experiment_id, e.name as experiment, b.approved_by,
       c.observed ->> 'through' as approved_through, c.observed ->> 'started_by' as started_by, b.reason, b.recorded_at,
       row_number() over (partition by b.name order by b.recorded_at desc, b.baseline_id desc) = 1 as holds
from source.baselines b
left join source.experiments e using (experiment_id)
left join staging.checks c on c.name = 'approved_through' and c.subject_id = b.baseline_id
