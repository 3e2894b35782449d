-- one row per decision_id: the decisions of gates on candidates; is_newest marks the newest of each gate and candidate; earlier_decisions counts those on the same candidate with other rules or another baseline
with looks as (
    -- what makes two decisions on a candidate the same look: baseline, level and rules, whatever the gate's name
    select decision_id, candidate_experiment_id, decided_at, flow_run_id,
           coalesce(baseline_experiment_id, case when starts_with(policy::json->>'baseline', 'production:') then policy::json->>'baseline' end, '') || ' ' || confidence_level || ' '
           || json_merge_patch(policy::json, '{"name": null, "candidate": null, "baseline": null, "approved_by": null, "signers": null}'::json)::varchar as look
    from staging.decisions
), earlier as (
    -- the gates of one run were declared together
    select d.decision_id, count(distinct o.look) as earlier_decisions
    from looks d join looks o using (candidate_experiment_id)
    where o.decided_at < d.decided_at and o.look <> d.look
      and (d.flow_run_id is null or o.flow_run_id is distinct from d.flow_run_id)
    group by d.decision_id
)
select d.decision_id, d.gate, d.conclusion, d.summary,
       d.candidate_experiment_id, c.name as candidate, d.baseline_experiment_id, coalesce(b.name, case when starts_with(d.policy::json->>'baseline', 'production:') then d.policy::json->>'baseline' end) as baseline, d.run_group,
       d.confidence_level, d.n_shared, d.interim_analyses, d.calls_saved, coalesce(l.earlier_decisions, 0) as earlier_decisions, d.decided_at, d.recorded_at as confirmed_at, d.git_commit, d.evalflows_version, d.flow_run_id,
       d.reasons, d.comparability, d.policy,
       row_number() over (
           partition by d.gate, d.candidate_experiment_id order by d.recorded_at desc, d.decision_id desc
       ) = 1 as is_newest
from staging.decisions d
join source.experiments c on c.experiment_id = d.candidate_experiment_id
left join source.experiments b on b.experiment_id = d.baseline_experiment_id
left join earlier l on l.decision_id = d.decision_id
