-- one row per name: the current snapshot of each dataset
select v.name, v.snapshot_id, s.n_examples, s.splits, v.source, v.description, v.recorded_at as since,
       count(*) over (partition by v.name) as versions
from staging.dataset_versions v join staging.snapshots s using (snapshot_id)
qualify row_number() over (partition by v.name order by v.recorded_at desc) = 1
