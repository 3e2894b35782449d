-- one row per classified_id: the label of an answer and of its reference
select * from source.classified
