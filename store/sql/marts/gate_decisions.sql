-- one row per decision_id: the decisions of gates on candidates; is_newest marks the newest of each gate and candidate
select d.decision_id, d.gate, d.conclusion, d.summary,
       d.candidate_experiment_id, c.name as candidate, d.baseline_experiment_id, b.name as baseline, d.run_group,
       d.confidence_level, d.n_shared, d.interim_analyses, d.calls_saved, d.decided_at, d.recorded_at as confirmed_at, d.git_commit, d.evalflows_version, d.flow_run_id,
       d.reasons, d.comparability, d.policy,
       row_number() over (
           partition by d.gate, d.candidate_experiment_id order by d.recorded_at desc, d.decision_id desc
       ) = 1 as is_newest
from decisions d
join experiments c on c.experiment_id = d.candidate_experiment_id
left join experiments b on b.experiment_id = d.baseline_experiment_id
