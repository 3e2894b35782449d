-- one row per label_id: a person's label of a subject
select * replace (metadata::json as metadata) from source.labels where source <> 'machine'
