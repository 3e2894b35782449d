"""The rows of a query as a Parquet file."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from evalflows.specs.errors import InputError
from evalflows.store.exports.whole_files import whole_file

BATCH = 10_000
"""Rows of a row group."""


def write_query(relation: duckdb.DuckDBPyRelation, target: Path) -> None:
    """Write the rows of a query to a Parquet file.

    Raise InputError if the file cannot be written, and for a type that Parquet does not have.
    """
    with whole_file(target) as temporary, relation.to_arrow_reader(BATCH) as batches:
        try:
            with pq.ParquetWriter(temporary, batches.schema, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch)
        except pa.ArrowNotImplementedError as error:
            raise InputError(f"sql: {error}; wanted columns of types that Parquet has") from error
