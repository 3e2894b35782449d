-- one row per snapshot_id, example_id
select * replace (
    inputs::json as inputs,
    reference_outputs::json as reference_outputs,
    metadata::json as metadata,
    attachments::json as attachments
)
from source.examples
