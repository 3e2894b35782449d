-- one row per name: the current snapshot of each dataset that is not deleted
select v.name, v.snapshot_id, s.n_examples, s.splits, v.source, v.description, v.recorded_at as since,
       count(nullif(v.snapshot_id, '')) over (partition by v.name) as versions
from staging.dataset_versions v left join staging.snapshots s using (snapshot_id)
where s.n_examples is not null or v.snapshot_id = ''
qualify row_number() over (partition by v.name order by v.recorded_at desc) = 1 and v.snapshot_id <> ''
