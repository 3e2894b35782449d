-- one row per baseline_id: an approval
select * from source.baselines
