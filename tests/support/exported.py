"""A store to export: the kept one, with people's labels, and an experiment in which everything is hostile."""

from __future__ import annotations  # a type of DuckDB that a function holds on to is reported as a leak at exit

import zipfile
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from full_store import Filler, freeze_questions
from store_rows import make_row

from evalflows.store.files import FORMAT
from evalflows.store.schemas import EXPERIMENT_TABLES
from evalflows.store.sql import connect
from evalflows.store.store import Store

KEPT = Path(__file__).parent.parent / "store" / "kept" / f"format_{FORMAT}.zip"

NAME = '=HYPERLINK("http://evil.test","x"); drop table scores; --'
ESCAPES = "\x1b[2J\x07"
BIDI = "\u202eabc\u2066"
NUL = "a\x00b"
LONG = "y" * 1_000_000
METRIC = 'me"tric; --'
JSON = (
    r'{"nul": "a\u0000b", "escaped": "a\\u0000b", "huge": 1e99999, "nan": "NaN"}',
    "[" * 2_000 + "]" * 2_000,
    '{"number": NaN}',
)
"""JSON that DuckDB reads, and PostgreSQL does not as it is."""


def fill(root: Path) -> Store:
    """Fill a new folder. One of the experiments is not finished."""
    with zipfile.ZipFile(KEPT) as archive:
        archive.extractall(root)
    store = Store(root)
    _label(store)
    _add_hostile(store)
    return store


def _label(store: Store) -> None:
    """Two people's labels of ten runs, of which one differs from the score."""
    query = (
        "select run_id, experiment_id, example_id, value from run_values"
        " where metric = 'contains' and value is not null order by 1 limit 10"
    )
    with connect(store.layout.root) as catalog:
        runs = catalog.execute(query).fetchall()
    labels: list[Any] = []
    for number, (run, experiment, example, value) in enumerate(runs):
        for labeller in ("ann", "ben"):
            said = 1 - value if number == 0 and labeller == "ben" else value
            of = {"subject_kind": "run", "subject_id": run, "experiment_id": experiment, "example_id": example}
            given = {"metric": "contains", "value": said, "labeller": labeller, "batch_id": "labels-1"}
            labels.append(make_row("labels", label_id=f"label-{number}-{labeller}", **of, **given))
    store.append("labels", "labels-1", "p", labels)


def _add_hostile(store: Store) -> None:
    filler, identity = Filler(store, make_row), "exp-hostile"
    snapshot, examples = freeze_questions(store, NAME, 3)
    filler.experiment(identity, snapshot, 3, 1, name=NAME, tags=[NUL, BIDI, "it's"], description=ESCAPES)
    outputs = [filler.output(identity, example, 0, outputs=text) for example, text in zip(examples, JSON, strict=True)]
    said = {"status": "scored", "evaluator_version": "v1", "value": 0.5}
    scores = [
        filler.score(identity, examples[0], 0, METRIC, label=LONG, comment=NUL, **said),
        filler.score(identity, examples[1], 0, METRIC, label=BIDI, comment=LONG, **said),
        filler.score(identity, examples[2], 0, METRIC, label="@SUM(1)", comment="-1+1", **said),
    ]
    store.append("outputs", identity, "p", outputs)
    filler.scores(identity, *scores)
    store.seal(identity, [table for table in EXPERIMENT_TABLES if table != "experiments"])


def comparable(rows: Iterable[Iterable[Any]]) -> list[list[Any]]:
    """Rows whose numbers are equal where they differ in type, or by what summing in another order changes."""
    return [[_comparable(value) for value in row] for row in rows]


def _comparable(value: Any) -> Any:
    if isinstance(value, float | int | Decimal) and not isinstance(value, bool):
        return f"{float(value):.9g}"
    return value.timestamp() if isinstance(value, datetime) else value
