-- one row per score_id: one judgement of one subject
select * replace (metadata::json as metadata) from source.scores
