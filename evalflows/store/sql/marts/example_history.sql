-- one row per dataset_name, example_id, metric: one example over all experiments on its dataset, as the example is now: how often it is right, whether it flips by chance, and whether it tells systems apart
with runs as materialized (
    select experiment_id, coalesce(dataset_name, snapshot_id) as dataset, snapshot_id, started_at, spec,
           concat_ws(' ', target, target_version, application_version) as system
    from staging.experiments
), contents as (
    select r.dataset, x.snapshot_id, x.example_id, x.position, x.split, x.cluster, r.last_used,
           hash(x.inputs::varchar, x.reference_outputs::varchar) as content
    from staging.examples x
    join (select dataset, snapshot_id, max(started_at) as last_used from runs group by all) r using (snapshot_id)
), examples_now as (
    select dataset, snapshot_id, example_id, position, split, cluster
    from contents
    qualify content = last_value(content) over (
        partition by dataset, example_id order by last_used, snapshot_id
        rows between unbounded preceding and unbounded following
    )
), by_experiment as (
    select experiment_id, metric, example_id,
           avg(value) filter (status = 'scored') as value, min(label) as label,
           min(evaluator_version) as first_version, max(evaluator_version) as last_version,
           sum(value) filter (status = 'scored') as total, count(value) filter (status = 'scored') as numbers,
           count(*) filter (status = 'scored') as scored,
           count(*) filter (status in ('failed', 'not_attempted')) as missing,
           min(value) <> max(value) or min(label) <> max(label) as repetitions_differ,
           bool_and(data_type = 'BOOLEAN') as is_yes_no
    from staging.scores
    where subject_kind = 'run' and turn is null
    group by experiment_id, metric, example_id
), several_labels as (
    -- few examples have different labels in their repetitions: a list for each of all would take most of the time
    select experiment_id, metric, example_id, string_agg(distinct label, ' / ' order by label) as label
    from staging.scores
    where subject_kind = 'run' and turn is null and label is not null
    group by experiment_id, metric, example_id
    having min(label) <> max(label)
), in_total as materialized (
    -- the window below sorts a million rows by numbers several times faster than by texts
    select t.*, r.dataset, r.snapshot_id, r.started_at, r.system, higher_is_better(r.spec, t.metric) as higher_is_better,
           dense_rank() over (order by r.dataset, t.metric, r.system) as line,
           row_number() over (order by r.started_at, r.experiment_id) as place
    from (
        select experiment_id, metric, sum(value) filter (status = 'scored') as total,
               count(value) filter (status = 'scored') as numbers,
               min(value) filter (status = 'scored') as lowest, max(value) filter (status = 'scored') as highest
        from staging.scores
        where subject_kind = 'run' and turn is null
        group by experiment_id, metric
    ) t
    join runs r using (experiment_id)
), scales as (
    select dataset, metric, min(lowest) >= 0 and max(highest) <= 1 as is_share from in_total group by all
), points as (
    select t.dataset, b.* replace (coalesce(l.label, b.label) as label), x.position, x.split, x.cluster,
           t.started_at, t.system, t.higher_is_better, t.line, t.place,
           case when t.numbers > b.numbers then (t.total - b.total) / (t.numbers - b.numbers) end as rest
    from by_experiment b
    join in_total t on t.experiment_id = b.experiment_id and t.metric = b.metric
    join examples_now x on x.dataset = t.dataset and x.snapshot_id = t.snapshot_id and x.example_id = b.example_id
    left join several_labels l
        on l.experiment_id = b.experiment_id and l.metric = b.metric and l.example_id = b.example_id
    where b.scored > 0 or b.missing > 0
), beside as (
    select *, lag(place) over unchanged as place_before, lag(value) over unchanged as value_before,
           lag(label) over unchanged as label_before
    from points
    -- labels and values are compared with the experiment before of the same system, judged by the same versions
    window unchanged as (partition by line, example_id, first_version, last_version, scored > 0 order by place)
), summed as (
    select dataset, example_id, metric,
           arg_max(position, started_at) as position, arg_max(split, started_at) as split,
           arg_max(cluster, started_at) as cluster, bool_and(is_yes_no) as is_yes_no,
           arg_max(higher_is_better, started_at) as higher_is_better,
           count(*) filter (scored > 0) as n_experiments, count(distinct system) filter (scored > 0) as n_targets,
           sum(scored)::bigint as scored, sum(missing)::bigint as missing, avg(value) as mean, stddev_samp(value) as sd,
           min(value) as lowest, max(value) as highest,
           arg_max(value, started_at) filter (scored > 0) as last_value,
           arg_max(label, started_at) filter (scored > 0) as last_label,
           max(started_at) as last_started_at,
           count(place_before) filter (scored > 0) as unchanged_pairs,
           count(*) filter (scored > 0 and place_before is not null
               and (value_before is distinct from value or label_before is distinct from label)) as flips,
           count(*) filter (repetitions_differ) as experiments_with_differing_repetitions,
           regr_count(value, rest) as n_correlated,
           stddev_samp(value) filter (rest is not null) > 1e-12 and stddev_samp(rest) filter (value is not null) > 1e-12 as has_variance,
           corr(value, rest) as raw_correlation
    from beside
    group by dataset, example_id, metric
), correlated as (
    select s.*, c.is_share,
           case when s.n_correlated >= 4 and s.has_variance then greatest(-1, least(1, s.raw_correlation)) end as correlation
    from summed s left join scales c on c.dataset = s.dataset and c.metric = s.metric
)
select dataset as dataset_name, example_id, metric, position, split, cluster, n_experiments, n_targets, scored, missing, is_yes_no,
       higher_is_better, mean, sd, lowest, highest, last_value, last_label, last_started_at,
       case when mean is not null then null when scored > 0 then 'has_labels' else 'all_missing' end as mean_reason,
       unchanged_pairs, flips, case when unchanged_pairs > 0 then flips / unchanged_pairs end as flip_share,
       experiments_with_differing_repetitions,
       case when unchanged_pairs = 0 then 'no_unchanged_versions' end as flip_reason,
       case when unchanged_pairs > 0 then flips / unchanged_pairs >= 0.2 end as noisy,
       correlation as item_rest_correlation,
       -- Fisher's z: atanh(r) has about a normal distribution with standard error 1 / sqrt(n - 3)
       case when abs(correlation) < 1 then tanh(atanh(correlation) - 1.959963984540054 / sqrt(n_correlated - 3)) end as correlation_low,
       case when abs(correlation) < 1 then tanh(atanh(correlation) + 1.959963984540054 / sqrt(n_correlated - 3)) end as correlation_high,
       n_correlated,
       case when n_correlated < 4 then 'fewer_than_4_experiments' when not has_variance then 'no_variance'
            when abs(correlation) = 1 then 'no_interval' end as correlation_reason,
       case when n_targets < 2 or not is_share then null
            when lowest = highest and lowest = case when higher_is_better then 1 else 0 end then 'right'
            when lowest = highest and lowest = case when higher_is_better then 0 else 1 end then 'wrong'
            else 'no' end as saturated,
       case when mean is null then case when scored > 0 then 'has_labels' else 'all_missing' end
            when n_targets < 2 then 'fewer_than_2_targets' when not is_share then 'not_from_0_to_1' end as saturated_reason
from correlated
