"""The same hostile conditions at every door that takes SQL of others: no file is read or written, the process that
serves stays small, and answers afterwards. Commands and the API run conditions of their own user: files are safe there,
and time and memory are limited.
"""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner
from dashboards import started
from gated import drawn, gated
from production import produce, trace

import evalflows.analysis.trace_datasets
import evalflows.cli.traces
import evalflows.store.query_process
from evalflows import diff, run
from evalflows.cli.main import cli
from evalflows.specs import ExperimentSpec, InputError
from evalflows.store.query_process import OF_COMMANDS, QueryProcesses
from evalflows.store.store import Store

pytest.importorskip("mcp")
ROOMS = (evalflows.store.query_process, evalflows.analysis.trace_datasets, evalflows.cli.traces)
MOST_KB = 700_000
"""Resident memory of a process that serves."""
SECRET = "the-secret-of-a-file"
OF_MEMORY = "repeat('a', 4000000000) = 'b'"
SECONDS, MEMORY = 5.0, 256 << 20
SERVE = f"""from evalflows.store.query_process import QueryLimits
defaults = QueryLimits.__init__.__defaults__
QueryLimits.__init__.__defaults__ = ({SECONDS}, {MEMORY}, *defaults[2:])  # instead of half a minute, and of 1 GB
from evalflows.cli.main import main
main()"""
NOT_SQL = ("diff", "traces", "from-traces")  # `sql` would end this process
OF_TIME = "(select sum(a.range * b.range) from range(10000000) a, range(10000000) b where a.range + b.range > 5) > 0"


def of_files(folder: Path) -> list[str]:
    """Return conditions that read or write a file, or that are more than a condition."""
    secret, new = folder / "secret.csv", folder / "new"
    return [
        f"(select count(*) from read_text('{secret}') where content like '%s%') > 0",
        f"(select any_value(column0)::int from '{secret}') > 0",
        f"(select any_value(c)::int from read_csv('{secret}') t(c)) > 0",
        f"(select getenv('HOME')::int from query('select 1')) = 1 or (from glob('{folder}/*')) is null",
        f"true; copy (select 1) to '{new}'",
        f"true) to '{new}' --",
        f"true; attach '{new}' as x; create table x.t as select 1",
        "true; install httpfs; load httpfs",
        "true; set enable_external_access = true",
        "true group by all having error('x')",
    ]


@pytest.fixture
def experiments(store: Store, tmp_path: Path, without_prefect: None) -> tuple[str, str]:
    """Two experiments, and traces, in a store beside a file that nobody may read."""
    (tmp_path / "secret.csv").write_text(f"{SECRET}\n{SECRET}\n")
    produce(store, trace("a", input="in", output="out"))
    old, new = run(ExperimentSpec.model_validate(gated(tmp_path, [], old=drawn(30, 0.8), new=drawn(30, 0.7))))
    return str(old), str(new)


def answer(url: str, *, call: dict[str, Any] | None = None) -> str:
    """Return what a page or a tool says, whatever its status."""
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    try:
        with urlopen(Request(url, json.dumps(asked).encode() if call else None, headers), timeout=100) as response:
            return str(response.read().decode())
    except HTTPError as error:
        return f"{error.code} {error.read().decode()}"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_serves_others_stays_small_and_answers(store: Store, experiments: tuple[str, str], tmp_path: Path) -> None:
    old, new = experiments
    before = sorted(tmp_path.iterdir())
    with started(Path(store.layout.root), program=["-c", SERVE]) as (process, url):
        form = answer(f"{url}/production/traces").partition('name="proof" value="')[2].partition('"')[0]

        def page(where: str) -> str:
            return answer(f"{url}/production/traces?where={quote(where)}&proof={form}")

        def tool(name: str, **arguments: str) -> Callable[[str], str]:
            def ask(where: str) -> str:
                given = {key: value.replace("WHERE", where) for key, value in arguments.items()}
                return answer(f"{url}/mcp", call={"name": name, "arguments": given})

            return ask

        doors = {
            "page": page,
            "diff": tool("diff", baseline=old, candidate=new, where="WHERE"),
            "traces": tool("traces", where="WHERE"),
            "sql": tool("sql", query="select trace_id from traces where WHERE"),
        }
        for name, door in doors.items():
            for condition in of_files(tmp_path):
                said = door(condition)
                assert re.search('^400 |"isError":true', said) and SECRET not in said, (name, condition, said)
            # on a busy machine, the time is up before
            assert re.search("memory|Memory|stopped after", door(OF_MEMORY)), name
        assert f"stopped after {SECONDS:g} s" in doors["diff"](OF_TIME)
        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
        assert peak and int(peak[1]) < MOST_KB, peak
        assert "1 traces" in doors["traces"]("true") and "30 are compared" not in doors["diff"]("position < 9")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_commands_and_the_api_open_no_file_for_a_condition(
    store: Store, experiments: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = experiments
    before = sorted(tmp_path.iterdir())
    shared = QueryProcesses(store.layout.root, OF_COMMANDS)  # it takes longer to start one than to ask it
    for room in ROOMS:
        monkeypatch.setattr(room, "QueryProcesses", lambda *_: SimpleNamespace(rows=shared.rows, close=lambda: None))
    spec = tmp_path / "spec.yaml"
    commands = {
        "diff": ["diff", old, new, "--where", "WHERE"],
        "traces": ["traces", "ls", "--where", "WHERE"],
        "from-traces": ["dataset", "from-traces", "--name", "made", "--where", "WHERE"],
        "sql": ["sql", "select trace_id from traces where WHERE"],
        "evaluate-traces": ["evaluate-traces", str(spec)],
    }
    for condition in of_files(tmp_path):
        spec.write_text(json.dumps({"name": "judged", "filter": condition, "evaluators": ["json_valid"]}))
        for name, command in commands.items():
            done = CliRunner().invoke(cli, [word.replace("WHERE", condition) for word in command])
            assert done.exit_code == 2 and done.stderr.count("\n") == 1, (name, condition, done.output)
            assert SECRET not in done.output, (name, condition)
        with pytest.raises(InputError) as refused:
            diff(old, new, where=condition)
        assert SECRET not in str(refused.value)
    shared.close()
    for room in ROOMS:
        monkeypatch.setattr(room, "QueryProcesses", QueryProcesses)
    for limits, condition, said, asked in (
        (replace(OF_COMMANDS, seconds=120, memory_bytes=MEMORY), OF_MEMORY, "at 256 MB of memory", NOT_SQL),
        (replace(OF_COMMANDS, seconds=1), OF_TIME, "stopped after 1 s", NOT_SQL[:1]),
    ):
        for room in ROOMS:
            monkeypatch.setattr(room, "OF_COMMANDS", limits)
        for name in asked:
            done = CliRunner().invoke(cli, [word.replace("WHERE", condition) for word in commands[name]])
            assert done.exit_code == 2 and said in done.stderr, (name, condition, done.output)
    spec.unlink()
    assert sorted(tmp_path.iterdir()) == before
