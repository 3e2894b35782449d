-- one row per run_id, metric, evaluator_version: every value of a run: scores of evaluators and built-in measures
select experiment_id, run_id, example_id, repetition, metric, evaluator, evaluator_version, value, label, data_type, status,
       error, comment, sampling_rate, calls, calls_cached, cost_usd
from source.judgements where subject_kind = 'run' and turn is null
union all
select experiment_id, run_id, example_id, repetition, metric, 'measured', 'measured', value, null, 'NUMERIC', status,
       null, null, null, 0, 0, 0.0
from measures
