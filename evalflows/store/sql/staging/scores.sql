-- one row per score_id: one score of one subject
select judgement_id as score_id, subject_kind, subject_id, turn, experiment_id, run_id, example_id, repetition, metric,
       value, label, data_type, comment, status, error, error_kind, error_trace, evaluator, evaluator_version,
       declared_version, config_id, judge_model, prompt_hash, repeats, spread, agreement, decided_by, sampling_rate, attempts,
       tokens_in, tokens_out, cost_usd, calls, calls_cached, latency_s, metadata::json as metadata, subject_at,
       mapper_version, recorded_at
from source.judgements where subject_kind <> 'pair'
