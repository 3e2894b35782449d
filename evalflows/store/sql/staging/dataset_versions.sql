-- one row per dataset_version_id: from recorded_at on, the name refers to the snapshot; without one it was deleted
select * replace (metadata::json as metadata) from source.dataset_versions
