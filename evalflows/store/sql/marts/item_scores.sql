-- one row per run_id, metric, evaluator_version: every score of a run, with its inputs and outputs
select s.experiment_id, e.name as experiment, e.target, e.started_at, e.dataset_name, e.snapshot_id, e.tags, s.example_id, s.repetition, s.run_id,
       s.metric, s.value, s.label, s.data_type, s.status, s.comment, s.metadata as score_metadata, s.error, s.error_kind,
       s.evaluator, s.evaluator_version, s.judge_model, s.decided_by, s.sampling_rate, s.cost_usd,
       x.position, x.split, x.cluster, x.metadata, x.inputs, x.reference_outputs, o.outputs, o.status as output_status
from staging.scores s
join staging.experiments e using (experiment_id)
join staging.outputs o using (experiment_id, run_id)
join staging.examples x on x.snapshot_id = e.snapshot_id and x.example_id = o.example_id
where s.subject_kind = 'run' and s.turn is null
