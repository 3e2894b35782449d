-- one row per label_id: a program's label of a subject, which counts nowhere as a person's
select * replace (metadata::json as metadata) from source.labels where source = 'machine'
