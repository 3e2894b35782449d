"""Summaries of packed files: their rows of the view `metric_summary`, so that SQL about results reads no scores.

`summaries/<name>.parquet` has those of one packed file, of judgements or of answers, and is named by its content and by
the view's SQL: of another state of either it is never read. A query itself sums up what has no summary.
"""

from __future__ import annotations  # types of libraries that are imported when first used

import hashlib
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from evalflows.specs.errors import StorageError
from evalflows.store.arrow import duckdb, pa, with_relations
from evalflows.store.checksums import file_damage, written_checksum
from evalflows.store.file_states import files_in, packed_states
from evalflows.store.file_systems import storage_errors
from evalflows.store.files import write_file
from evalflows.store.layout import SUMMARIES, Layout, StoredFile, files, quoted, rows_in
from evalflows.store.views import view_text

VIEW, SUMMED = "metric_summary", ("judgements", "outputs")
"""The view, and the tables whose rows it sums up: each by itself."""


def keep_summaries(layout: Layout, fs: Any) -> None:
    """Write the summaries of sound packed files that have none, and remove those of files that are gone.

    Raise StorageError if that cannot be done.
    """
    if not layout.is_local:
        return
    wanted = set[str]()
    for table in SUMMED:
        for pack, state in packed_states(layout, fs, table).items():
            wanted.add(path := _summary_of(layout, pack))
            if not fs.exists(path) and file_damage(fs, pack, state) is None:
                rows = _rows(_summed(layout, table, pack), pack)
                with storage_errors(path):
                    write_file(layout, fs, path, rows.schema, [rows])
    for path in {*files_in(f"{layout.root}/{SUMMARIES}")} - wanted:
        fs.rm_file(path)


def _rows(sql: str, pack: str) -> pa.Table:
    try:
        with duckdb.connect() as connection:
            return with_relations(connection).sql(sql).to_arrow_table()
    except duckdb.Error as error:  # such as a lack of memory
        first, *_ = str(error).splitlines()
        raise StorageError(f"{pack}: cannot be summed up: {first}") from error


def remove_summary(layout: Layout, fs: Any, pack: str) -> None:
    """Remove the summary of a packed file, if it has one."""
    if layout.is_local and fs.exists(path := _summary_of(layout, pack)):
        fs.rm_file(path)


def summary_view(layout: Layout, known: Mapping[str, Collection[StoredFile]], prefix: str) -> str | None:
    """Return SQL of the view that reads the summaries of packed files, and the rows of all other files.

    `known` has all files of the tables, whose paths get a prefix. None if no file has a summary.
    """
    there, summed, rest, n_others = {*files_in(f"{layout.root}/{SUMMARIES}")}, list[str](), dict[str, str](), 0
    for table in SUMMED:
        summaries = {file.path: _summary_of(layout, file.path) for file in known[table] if file.is_packed}
        others = [file for file in known[table] if summaries.get(file.path) not in there]
        rest[f"source.{table}"] = f"({rows_in(layout, table, others, prefix)})"
        n_others += len(others)
        if found := [prefix + path for path in summaries.values() if path in there]:
            own = ", ".join(sorted({quoted(file.owner) for file in others if not file.is_packed}))
            summed.append(f"from {files(found)}{f' where experiment_id not in ({own})' if own else ''}")
    if not summed:
        return None
    view = f"""
        select s.experiment_id, e.name as experiment, e.target, s.* exclude (experiment_id)
        from ({" union all ".join(summed)}) s join source.experiments e using (experiment_id)"""
    return f"{view} union all ({_with_rows(rest)})" if n_others else view


def _summed(layout: Layout, table: str, pack: str) -> str:
    """Return SQL of the rows of the view that one packed file gives, without what is read of the experiments."""
    rows = {f"source.{name}": files([pack if name == table else layout.empty(name)]) for name in SUMMED}
    owners = f"(select distinct experiment_id, null as name, null as target from {rows[f'source.{table}']})"
    return f"select * exclude (experiment, target) from ({_with_rows({**rows, 'source.experiments': owners})})"


def _with_rows(rows: Mapping[str, str]) -> str:
    """Return the SQL of the view over other rows of some tables."""
    return re.sub("|".join(rows), lambda name: rows[name[0]], view_text(VIEW))


def _summary_of(layout: Layout, pack: str) -> str:
    """Return the path of the summary of a packed file, whether there is one or not."""
    with suppress(FileNotFoundError), Path(pack).open("rb") as file:  # a query notices that it has gone
        what = f"{written_checksum(file)} {view_text(VIEW)}"
        return f"{layout.root}/{SUMMARIES}/{hashlib.sha256(what.encode()).hexdigest()}.parquet"
    return ""
