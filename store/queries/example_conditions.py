"""The examples for which a SQL condition holds, such as `split = 'hard' and metadata->>'topic' = 'billing'`."""

from functools import partial

import duckdb
import numpy as np
import numpy.typing as npt

from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store
from evalflows.store.restricted import restrict, time_limit
from evalflows.store.views import view_text

TIMEOUT_S = 30.0
"""The time that a condition may take."""

COLUMNS = "example_id, position, split, cluster, inputs, reference_outputs, metadata"
"""The columns that a condition may name; the last three are JSON."""


def places_where(store: Store, snapshot_id: str, condition: str) -> npt.NDArray[np.intp]:
    """Return the positions, in the snapshot's order, of the examples for which a condition holds.

    The condition reads nothing but the store. Raise InputError for anything else than a condition, and for one that
    DuckDB rejects or that takes too long.
    """
    return np.array(store.steady(partial(_read, store, snapshot_id, condition)), dtype=np.intp)


def _read(store: Store, snapshot_id: str, condition: str) -> list[int]:
    store.verify([snapshot_id], {"examples"})
    with store.connect(writes=False) as connection:
        restrict(connection)
        numbered = f"select {COLUMNS}, row_number() over (order by position) - 1 as place"
        examples = connection.sql(
            f"{numbered} from ({view_text('examples')}) where snapshot_id = $1", params=[snapshot_id]
        ).materialize()
        try:
            with time_limit(connection, TIMEOUT_S):
                found = examples.filter(condition).project("place").fetchall()  # filter() parses an expression only
        except duckdb.Error as error:
            wanted = f"wanted a condition on {COLUMNS}, such as metadata->>'topic' = 'billing'"
            first, *_ = str(error).splitlines()  # the others point into a query of ours
            raise InputError(f"where {condition!r}: {first}, {wanted}") from error
    return sorted(place for (place,) in found)
