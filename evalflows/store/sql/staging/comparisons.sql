-- one row per judgement_id: one pairwise judgement, in one order
select judgement_id, experiment_id as comparison_id, metric, example_id, repetition, left_experiment_id,
       right_experiment_id, left_run_id, right_run_id, shown_first, order_status, weight, winner, left_score,
       right_score, comment, status, error, error_kind, error_trace, evaluator, evaluator_version, declared_version,
       judge_model, prompt_hash, repeats, agreement, decided_by, attempts, tokens_in, tokens_out, cost_usd, calls,
       calls_cached, latency_s, metadata::json as metadata, recorded_at
from source.judgements where subject_kind = 'pair'
