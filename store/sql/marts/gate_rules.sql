-- one row per decision_id, rule, metric: each rule of a decision, whether it was met, broken or stayed open, and why
select d.decision_id, d.gate, d.candidate, d.baseline, d.conclusion, d.is_newest,
       r.reason ->> 'rule' as rule, r.reason ->> 'metric' as metric, (r.reason ->> 'bound')::double as bound,
       r.reason ->> 'outcome' as outcome, r.reason ->> 'text' as text,
       (r.reason ->> 'p_below')::double as p_below, (r.reason ->> 'p_adjusted')::double as p_adjusted,
       v.difference, v.ci_low, v.ci_high, v.worst_ci_low, v.worst_ci_high, v.n_pairs, v.method
from gate_decisions d, lateral (select unnest(d.reasons::json[]) as reason) r
left join verdicts v on v.decision_id = d.decision_id and v.metric = r.reason ->> 'metric'
