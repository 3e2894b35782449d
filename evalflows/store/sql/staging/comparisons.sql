-- one row per judgement_id: one pairwise judgement, in one order
select * replace (metadata::json as metadata) from source.comparisons
