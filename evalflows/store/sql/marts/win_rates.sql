-- one row per comparison_id, metric, candidate_experiment_id, baseline_experiment_id, slice, length_controlled: the win rate of each candidate, and the verdict
select v.comparison_id, s.name as comparison, v.metric, v.candidate_experiment_id, v.baseline_experiment_id,
       coalesce(c.name, v.candidate_experiment_id) as candidate, coalesce(b.name, v.baseline_experiment_id) as baseline,
       coalesce(v.slice, 'all') as slice,
       v.length_controlled,
       v.candidate_mean as win_rate,
       v.standard_error / 2 as standard_error,
       -- the difference is the win rate minus the baseline's, which is 1 minus the win rate
       (1 + v.ci_low) / 2 as win_rate_low,
       (1 + v.ci_high) / 2 as win_rate_high,
       v.confidence_level, v.p_value, v.p_adjusted, v.adjustment, v.n_pairs, v.n_clusters,
       (v.settings ->> 'wins')::bigint as wins,
       (v.settings ->> 'losses')::bigint as losses,
       (v.settings ->> 'ties')::bigint as ties,
       (v.settings ->> 'half')::bigint as half,  -- a tie in one order and a win in the other
       (v.settings ->> 'flipped')::bigint as flipped,
       (v.settings ->> 'missing')::bigint as missing,
       (v.settings ->> 'left_out')::bigint as left_out,
       (v.settings ->> 'decided_without_judge')::bigint as decided_without_judge,  -- pairs decided by a failed run
       -- graded verdicts, counted as wins, losses and ties
       (v.settings ->> 'discrete')::double as discrete_win_rate,
       (v.settings ->> 'discrete_standard_error')::double as discrete_standard_error,
       (v.settings ->> 'discrete_low')::double as discrete_low,
       (v.settings ->> 'discrete_high')::double as discrete_high,
       v.conclusion, v.reason, v.reason_code, v.warning, v.method
from staging.verdicts v
join source.comparison_sets s using (comparison_id)
left join source.experiments c on c.experiment_id = v.candidate_experiment_id
left join source.experiments b on b.experiment_id = v.baseline_experiment_id
where v.decision_id is null
