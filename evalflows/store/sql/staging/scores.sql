-- one row per score_id: one score of one subject
select * replace (metadata::json as metadata) from source.scores
