-- one row per snapshot_id: a frozen dataset, by its content
select * replace (splits::json as splits) from source.snapshots
