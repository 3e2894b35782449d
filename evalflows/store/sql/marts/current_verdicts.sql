-- one row per candidate_experiment_id, baseline_experiment_id, metric, slice: the verdict that counts: of the gate that decided last on that pair and metric, else of the run; slice is all for whole experiments
select * exclude (is_current) replace (coalesce(slice, 'all') as slice) from all_verdicts where is_current
