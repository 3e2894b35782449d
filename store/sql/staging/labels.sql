-- one row per label_id: what a person said of a subject
select * replace (metadata::json as metadata) from source.labels
