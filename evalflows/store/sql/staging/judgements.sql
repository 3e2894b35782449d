-- one row per judgement_id: one metric of one judgement of an answer, a pair of answers, an experiment or an item of production
select * replace (metadata::json as metadata) from source.judgements
