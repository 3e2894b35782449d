"""Apply the rules of retention."""

import getpass
from contextlib import suppress

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from evalflows.specs.retention import RetentionSpec
from evalflows.store.retention import retain
from evalflows.store.store import Store


@task(cache_policy=NO_CACHE, persist_result=False)
def retain_by_rules(spec: RetentionSpec) -> dict[str, dict[str, int]]:
    """Erase and remove what is too old, and publish the artifact `retention`. Return the numbers of rows by table."""
    from evalflows.prefect_texts import erase_prefect_texts  # late: other steps do without

    by = None
    with suppress(OSError, KeyError):
        by = getpass.getuser()
    done = retain(Store(), spec, by, erase_prefect_texts)
    rows = [{"rule": row.rule, "table": name, "rows": count} for row in done for name, count in row.rows.items()]
    create_table_artifact(key="retention", table=rows, description="Rows that lost texts or were removed")
    return {retained.rule: dict(retained.rows) for retained in done}
