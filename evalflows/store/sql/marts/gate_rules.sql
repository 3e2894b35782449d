-- one row per decision_id, rule, metric: the rules of each decision: met, broken or open, and why
select d.decision_id, d.gate, d.candidate, d.baseline, d.conclusion, d.is_newest,
       r.reason ->> 'rule' as rule, r.reason ->> 'metric' as metric, (r.reason ->> 'bound')::double as bound,
       r.reason ->> 'outcome' as outcome, r.reason ->> 'text' as text, r.reason ->> 'reason_code' as reason_code,
       (r.reason ->> 'p_below')::double as p_below, (r.reason ->> 'p_adjusted')::double as p_adjusted,
       v.difference, v.standard_error, v.ci_low, v.ci_high, v.worst_case_ci_low, v.worst_case_ci_high, v.n_pairs, v.method
from gate_decisions d cross join lateral (select unnest(d.reasons::json[]) as reason) r
left join staging.verdicts v on v.decision_id = d.decision_id and v.metric || coalesce('@' || v.slice, '') = r.reason ->> 'metric'
