"""Record the votes of a file as the judgements of a comparison."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.execution.votes import judgements_of, read_votes
from evalflows.store.parquet import Store
from evalflows.store.records import ComparisonSetRow
from evalflows.store.row_specs import comparison_spec


@task(cache_policy=NO_CACHE, persist_result=False)
def record_votes(row: ComparisonSetRow) -> int:
    """Write a row for each vote, and return their number; 0 for a finished comparison, and for one without votes."""
    votes = comparison_spec(row).votes
    if votes is None or row.state != "running":
        return 0
    rows = list(judgements_of(read_votes(votes), row))
    Store().append("comparisons", row.comparison_id, "votes", rows)
    return len(rows)
