-- one row per decision_id
select * replace (reasons::json as reasons, policy::json as policy, comparability::json as comparability)
from source.decisions
