"""Experiments on a real S3 server: the same rows as in a folder, killed and resumed, and a server that goes away."""

import subprocess
from pathlib import Path

import pytest
from command import command, with_support
from endpoint import Endpoint, serving
from interrupted_runs import IN_FLIGHT, ITEMS, PER_ITEM, finish, output_of, start, when_called, write_spec
from progress_lines import without_progress
from s3_server import S3Server

from evalflows.store import connect
from evalflows.store.schemas import TABLES

pytestmark = pytest.mark.slow


def contents(store: str | Path) -> dict[str, list[str]]:
    """Return the rows of all tables but the limiter's, without times and ids, nor what is about latency."""
    with connect(store) as catalog:
        found = {}
        for table in TABLES.keys() - {"limits", "observations"}:
            described = catalog.execute(f"describe from staging.{table}").fetchall()
            kept = [f'"{name}"' for name, kind, *_ in described if "TIME" not in kind and not _is_drawn(name)]
            rows = catalog.execute(f"select {', '.join(kept)} from staging.{table}").fetchall()
            found[table] = sorted(row for row in map(repr, rows) if "latency" not in row)
        return found


def _is_drawn(name: str) -> bool:
    return name.endswith(("_id", "_s", "_key", "run_group", "metadata")) or name in {"request", "evaluators", "spec"}


COMMANDS = [
    ["run", "spec.yaml"],
    ["ls"],
    ["show", "killed"],
    [
        "sql",
        "select metric, mean, scored, missing from metric_summary where metric <> 'latency' order by 1",
        "--format",
        "csv",
    ],
    ["doctor"],
    ["compact"],
    ["sql", "select count(*) from results"],
    ["export", "parquet", "exported"],
    ["report", "killed", "-o", "report.html"],
    ["traces", "ls"],
    ["resume", "killed"],
    ["doctor"],
]
"""What works on a store in a folder, in this order."""


@pytest.mark.soak
def test_commands_say_the_same_as_in_a_folder(
    tmp_path: Path, prefect_environment: dict[str, str], s3_root: str
) -> None:
    with serving(Endpoint()) as endpoint:
        said = []
        for name, root in (("s3", s3_root), ("folder", str(tmp_path / "folder"))):
            of_root = prefect_environment | {"EVALFLOWS_STORE": root, "EVALFLOWS_SPOOL": f"{tmp_path}/spool-{name}"}
            (folder := tmp_path / f"in-{name}").mkdir()
            write_spec(folder, endpoint.base_url)
            said.append([_said(folder, of_root, root, *command) for command in COMMANDS])
    on_s3, in_folder = contents(s3_root), contents(tmp_path / "folder")
    for table, rows in on_s3.items():
        assert rows == in_folder[table], table
    assert len(on_s3["outputs"]) == ITEMS and len(on_s3["scores"]) == 2 * ITEMS
    for asked, on_s3_said, in_folder_said in zip(COMMANDS, *said, strict=True):
        print(asked, on_s3_said, sep="\n")
        assert on_s3_said[0] == in_folder_said[0] == 0, (asked, on_s3_said, in_folder_said)
        if asked[0] in ("sql", "doctor", "compact", "export"):
            assert on_s3_said == in_folder_said, asked


def _said(folder: Path, environment: dict[str, str], root: str, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        command(*arguments), cwd=folder, env=with_support(environment), capture_output=True, text=True, timeout=120
    )
    return done.returncode, (done.stdout + without_progress(done.stderr)).replace(root, "ROOT")


@pytest.mark.soak
def test_a_server_that_goes_away_ends_the_run_in_one_line_and_nothing_is_lost(
    tmp_path: Path, prefect_environment: dict[str, str], s3_root: str, s3_service: S3Server
) -> None:
    environment = prefect_environment | {"EVALFLOWS_SPOOL": str(tmp_path / "spool")}
    with serving(Endpoint(latency_s=0.05)) as endpoint:
        spec = write_spec(tmp_path, endpoint.base_url)
        process = start(tmp_path, environment, None, "run", str(spec))
        when_called(process, endpoint, 100)
        s3_service.kill()
        try:
            said = output_of(process, within=150)
        finally:
            s3_service.start()
        print(said)
        assert process.returncode == 4, said
        assert "Traceback" not in said and s3_root in said
        paid = endpoint.calls
        finish(start(tmp_path, environment, None, "resume", "killed"))
    assert endpoint.repeated() <= IN_FLIGHT
    assert endpoint.calls - endpoint.repeated() == ITEMS * PER_ITEM, paid
    assert len(contents(s3_root)["scores"]) == 2 * ITEMS
