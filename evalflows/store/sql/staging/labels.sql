-- one row per label_id: a person's label of a subject
select * replace (metadata::json as metadata), try_cast(metadata::json ->> 'seconds' as double) as seconds,
       try_cast(metadata::json ->> 'cost_usd' as double) as cost_usd
from source.labels where source <> 'machine'
