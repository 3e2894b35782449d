"""The local server: started once, found by everybody, and what happens when it or its users die."""

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from local_servers import living
from running_up import EVALFLOWS, until

from evalflows import prefect_server
from evalflows.prefect_server import Home, hold_shared, idle_minutes, is_used
from evalflows.specs.errors import InputError
from evalflows.specs.file_locks import is_locked

SHARED = """
import sys, time
from evalflows.prefect_server import local_server
server = local_server(*map(int, sys.argv[1:]))
print(server.pid, server.api, flush=True)
time.sleep(60)
"""
SLOW = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """An empty folder, as on a machine that never ran Prefect. Nothing of the server is left after the test."""
    monkeypatch.setenv("EVALFLOWS_HOME", str(tmp_path / "home"))
    here = Home.here()
    yield here
    if server := here.find():
        os.kill(server.pid, signal.SIGKILL)


def started(*arguments: object, lasting: bool = True) -> "subprocess.Popen[str]":
    """A process that uses the local server. A lasting server does not end with its users."""
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_VERSION")}
    command = [sys.executable, "-c", SHARED, *map(str, arguments)]
    own = environment if lasting else os.environ
    return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def used_by(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """The server that a process uses."""
    assert process.stdout is not None
    assert process.stderr is not None
    pid, api = (process.stdout.readline() or process.stderr.read()).split()
    return int(pid), api


def is_alive(pid: int) -> bool:
    """Whether a process lives; one that has ended may wait for its parent."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def end(*processes: "subprocess.Popen[str]") -> None:
    for process in processes:
        process.kill()
        process.communicate()


def command(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([EVALFLOWS, *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@SLOW
def test_two_first_runs_at_once_share_a_server_that_outlives_them_and_another_follows_it(home: Home) -> None:
    first, second = started(), started()
    pid, api = used_by(first)
    assert used_by(second) == (pid, api)
    end(first, second)  # by SIGKILL
    with urllib.request.urlopen(f"{api}/health") as answer:
        assert answer.read() == b"true"
    third = started()
    assert used_by(third) == (pid, api)
    end(third)
    code, printed = command("status")
    assert (code, printed.startswith(f"serving at {api.removesuffix('/api')}, since ")) == (0, True), printed
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_locked(home.lock), 10)
    assert command("status") == (0, "no local server is running; the next run starts it\n")
    again = started(0)
    pid, api = used_by(again)
    end(again)
    assert command("down") == (0, f"stopped the server at {api.removesuffix('/api')}\n")
    assert not is_locked(home.lock)
    until(lambda: not is_alive(pid), 10)
    assert home.find() is None
    assert home.secret() is None
    assert command("down") == (0, "no local server is running\n")


@pytest.mark.soak
def test_the_database_is_as_prefects_own_migrations_make_it(home: Home, tmp_path: Path) -> None:
    process = started(0, lasting=False)
    used_by(process)
    end(process)
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path / "theirs"), "PREFECT_API_URL": ""}
    upgrade = [sys.executable, "-m", "prefect", "--no-prompt", "server", "database", "upgrade", "-y"]
    subprocess.run(upgrade, env=environment, check=True, capture_output=True)
    assert schema(home.database) == schema(tmp_path / "theirs" / "prefect.db")


def schema(path: Path) -> dict[tuple[str, str, str], list[object]]:
    """Tables and indexes with their columns, whose order is that of the migrations; constraints have none."""
    with sqlite3.connect(path) as database:
        named = database.execute("select type, name from sqlite_master where name not like 'sqlite_%'").fetchall()
        found: dict[tuple[str, str, str], list[object]] = {}
        for kind, name in named:
            parts = ("table_info", "foreign_key_list", "index_list") if kind == "table" else ("index_xinfo",)
            for part in parts:
                skipped = {"foreign_key_list": 2, "index_xinfo": 0}.get(part, 1)
                rows = database.execute(f"pragma {part}('{name}')").fetchall()
                found[kind, name, part] = sorted((row[skipped:] for row in rows), key=repr)
        found["rows", "alembic_version", ""] = database.execute("select * from alembic_version").fetchall()
    return found


@SLOW
def test_two_requests_that_write_at_once_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that began with reading would fail as soon as another one has written."""
    import sqlalchemy as sa
    from prefect.server.api import background_workers
    from prefect.server.database.configurations import AioSqliteConfiguration

    file = tmp_path / "prefect.db"
    monkeypatch.setattr(background_workers, "Worker", vars(background_workers)["Worker"])
    monkeypatch.setattr(AioSqliteConfiguration, "begin_transaction", AioSqliteConfiguration.begin_transaction)
    prefect_server.adapt_prefect()

    async def read_and_let_another_begin() -> None:
        database = AioSqliteConfiguration(connection_url=f"sqlite+aiosqlite:///{file}")
        engine = await database.engine()
        async with await database.session(engine) as session, database.begin_transaction(session):
            await session.execute(sa.text("select 1"))
            with closing(sqlite3.connect(file, timeout=0)) as other, pytest.raises(sqlite3.OperationalError):
                other.execute("begin immediate")
        await engine.dispose()

    asyncio.run(read_and_let_another_begin())


def test_a_port_of_another_program_is_told_in_a_line(home: Home) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        process = started(port)
        _, errors = process.communicate(timeout=60)
    assert f"--port {port}: in use by another program, wanted a free port (0: any)" in errors.splitlines()[-1]


@pytest.mark.slow
def test_a_database_that_prefect_cannot_use_is_told_in_a_line(home: Home) -> None:
    home.make()
    for is_newer in (True, False):
        if is_newer:
            with sqlite3.connect(home.database) as database:
                database.execute("create table alembic_version (version_num)")
                database.execute("insert into alembic_version values ('ffff')")
        else:
            home.database.write_text("not a database, but long enough to be looked at" * 100)
        _, errors = started(0).communicate(timeout=120)
        last = errors.splitlines()[-1]
        assert f"{home.database}: " in last
        assert "move the file away, or name another folder in EVALFLOWS_HOME" in last
        assert not is_locked(home.lock)


def test_a_folder_that_cannot_be_made_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").touch()
    monkeypatch.setenv("EVALFLOWS_HOME", str(tmp_path / "home"))
    _, errors = started().communicate(timeout=60)
    assert "cannot be created: Not a directory; wanted EVALFLOWS_HOME to name a folder" in errors.splitlines()[-1]


def test_a_server_is_found_while_it_lives_and_users_while_they_hold_the_lock(home: Home) -> None:
    assert home.find() is None
    with living(home, port=4200, secret="evalflows:x") as server:
        assert home.find() == server
        assert (server.ui, server.api) == ("http://127.0.0.1:4200", "http://127.0.0.1:4200/api")
        home._record.unlink()
        assert home.find() is None, "it has not said yet where it is"
    home.write(server)
    assert home.find() is None, "a record of a dead server counts"
    with hold_shared(home.users), hold_shared(home.users):
        assert is_used(home.users)
    assert not is_used(home.users)
    assert not is_used(home.users / "gone" / "users"), "a server whose folder is gone ends too"


def test_a_server_without_a_run_a_page_or_a_schedule_ends(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert idle_minutes() == 60
    for wrong in ("soon", "-1", "inf", "nan"):
        monkeypatch.setenv("EVALFLOWS_SERVER_IDLE_MINUTES", wrong)
        with pytest.raises(InputError, match=f"^EVALFLOWS_SERVER_IDLE_MINUTES: got '{wrong}', wanted minutes, or 0"):
            idle_minutes()

    async def answer(scope: object, receive: object, send: object) -> None:
        was_asked.append(app.was_asked())

    was_asked: list[bool] = []
    app = prefect_server._Asked(answer)
    assert app.was_asked(), "it has just begun"
    for path in ("/api/health", "/api/ready"):
        asyncio.run(app({"type": "http", "path": path}, None, None))
    asyncio.run(app({"type": "lifespan"}, None, None))
    assert not app.was_asked(), "who looks whether it is there does not use it"
    asyncio.run(app({"type": "websocket", "path": "/api/events/out"}, None, None))
    assert was_asked == [False, False, False, True], "it is asked while a connection is open"
    assert [app.was_asked(), app.was_asked()] == [True, False]

    home.make()
    assert not prefect_server._has_schedule(home.database)
    with sqlite3.connect(home.database) as database:
        assert prefect_server._has_schedule(home.database), "a database that cannot be read may have one"
        database.execute("create table deployment_schedule (active)")
        database.execute("insert into deployment_schedule values (0)")
        database.commit()
        assert not prefect_server._has_schedule(home.database)
        database.execute("insert into deployment_schedule values (1)")
        database.commit()
        assert prefect_server._has_schedule(home.database)

    answers, ended = iter([True, False, True, False]), threading.Event()
    monkeypatch.setattr(prefect_server.os, "kill", lambda pid, number: ended.set())
    prefect_server._end_unused(lambda: next(answers, False), 0.2)
    assert not ended.wait(0.45), "it ended although it had been used"
    assert ended.wait(10)
