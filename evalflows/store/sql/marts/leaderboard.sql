-- one row per comparison_id, metric, experiment_id, slice: the rank and rating of each experiment in a comparison
select r.comparison_id, s.name as comparison, r.metric, r.experiment_id, coalesce(e.name, r.experiment_id) as experiment, e.target,
       coalesce(r.slice, 'all') as slice,
       r.rank, r.rank_low, r.rank_high, r.rating, r.standard_error, r.ci_low, r.ci_high, r.confidence_level,
       r.settings ->> 'method' as method, (r.settings ->> 'guarded')::boolean as guarded, r.settings ->> 'guard_reason' as guard_reason, r.win_rate, r.win_rate_standard_error, r.win_rate_low, r.win_rate_high,
       r.wins, r.losses, r.ties, r.missing, r.reason, r.reason_code,
       (select list_sort(list_distinct(list(x.dataset_name))) from source.experiments x
        where list_contains(s.experiments, x.experiment_id)) as datasets
from staging.ratings r
join source.comparison_sets s using (comparison_id)
left join source.experiments e using (experiment_id)
where r.method = 'bradley-terry'
