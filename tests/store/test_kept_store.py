"""Stores of every released format open: tests/store/kept/format_N.zip, made by tests/support/kept_store.py."""

import json
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalflows import decide_again
from evalflows.cli.main import cli
from evalflows.store import connect
from evalflows.store.migration import migrate
from evalflows.store.parquet import Store
from evalflows.store.parquet_files import FORMAT, OLDEST
from evalflows.store.schemas import TABLES

KEPT = Path(__file__).parent / "kept"
FORMATS = [number for number in range(OLDEST, FORMAT + 1) if number != 10]  # 10: of packed stores
MEANS = [
    ("contains", "brief", 1.0, 24, 0),
    ("contains", "long", 1.0, 23, 1),
    ("quality", "brief", 1.0, 24, 0),
    ("quality", "long", 0.5, 23, 1),
    ("short", "brief", 1.0, 24, 0),
    ("short", "long", 0.0, 23, 1),
]


@pytest.fixture(params=FORMATS, ids=lambda number: f"format {number}")
def kept(request: pytest.FixtureRequest, store_root: Path) -> Path:
    """A store of that format, migrated if it is older than the present one."""
    with zipfile.ZipFile(KEPT / f"format_{request.param}.zip") as archive:
        archive.extractall(store_root)
    written, files = migrate()
    assert written == request.param
    assert bool(files) == (request.param < FORMAT)
    return store_root


def test_every_row_is_read_as_a_record(kept: Path) -> None:
    store = Store()
    with connect() as catalog:
        for table in TABLES.values():
            owners = catalog.execute(f"select distinct {table.owner} from {table.name}").fetchall()
            rows = [row for (owner,) in owners for row in store.read(table.name, owner)]
            (count,) = catalog.execute(f"select count(*) from {table.name}").fetchone() or (0,)
            assert len(rows) == count
            assert all(type(row) is table.record for row in rows)


def test_figures_are_as_they_were(kept: Path) -> None:
    with connect() as catalog:
        query = """select metric, target, mean, scored, missing from results
                   where metric in ('contains', 'short', 'quality') order by 1, 2"""
        assert catalog.execute(query).fetchall() == MEANS
        verdicts = catalog.execute("select metric, conclusion, reason_code from results where baseline is not null")
        assert ("contains", "not_enough_evidence", "no_significant_difference") in verdicts.fetchall()
        assert catalog.execute("select wins, losses from win_rates where slice = 'all'").fetchall()[0] == (24, 0)


def test_a_decision_is_made_again_alike(kept: Path) -> None:
    with connect() as catalog:
        (identity, reasons) = catalog.execute("select decision_id, reasons from decisions").fetchall()[0]
    again = decide_again(identity)
    assert again.conclusion == "PASS"
    for rules in (json.loads(reasons), json.loads(again.reasons)):
        assert [(rule["rule"], rule["outcome"]) for rule in rules] == [
            ("non_inferiority", "met"),
            ("superiority", "met"),
        ]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["ls", "show kept", "baseline ls", "explain release"])
def test_commands_read_it(kept: Path, command: str) -> None:
    done = CliRunner().invoke(cli, command.split())
    assert done.exit_code == 0, done.output
