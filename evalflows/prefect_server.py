"""The local Prefect server: one per user and Prefect version, shared by all runs on this machine.

Find it, start it if there is none, and stop it; its process is `python -m evalflows.prefect_server`.

The server holds a lock on a file as long as it lives, whatever ends it, so a record without a lock is of a dead server.
"""

# It says at once where it will serve, then loads Prefect. `prefect server start --background` would add the seconds of
# Prefect's command, choose no free port, keep no log, and leave a file with a process id that outlives a crash.
#
# Prefect's API needs no login by default and answers every web page that a browser on this machine shows, and whoever
# may use it can run code. Browsers do not send the secret by themselves, so a page has none, whatever its origin or
# host name (DNS rebinding): every route except /health and /ready is refused. For the same reason CSRF tokens would add
# nothing.

import fcntl
import json
import math
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import urlsplit

from evalflows.specs import hints
from evalflows.specs.dashboard_address import web_address
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.escaping import last_line, print_note
from evalflows.specs.file_locks import hold, is_locked, try_lock
from evalflows.specs.frozen import dataclass
from evalflows.specs.home import home_root

OTHER_DATABASES = ("PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_API_DATABASE_CONNECTION_URL")
"""Environment variables by which a user gives the server another database, which is left to Prefect."""

HOST = "127.0.0.1"
LOOPBACK = (HOST, "localhost", "::1")

PREFECT_CLOUD = ("https://api.prefect.cloud/api", "https://app.prefect.cloud")
"""Where the API of Prefect Cloud is, and its UI."""

SERVER_SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # Record task runs in batches: one by one, the server manages only 30 a second.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "200",
    # What looks for work every 5 to 20 seconds by default does so each minute: it took most of an idle server's time.
    "PREFECT_SERVER_EVENTS_PROACTIVE_GRANULARITY": "PT1M",
    "PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_LOOP_SECONDS": "60",
    "PREFECT_SERVER_SERVICES_CLEANUP_RECONCILER_LOOP_SECONDS": "60",
    "PREFECT_SERVER_SERVICES_FOREMAN_LOOP_SECONDS": "60",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "60",
    "PREFECT_SERVER_SERVICES_PAUSE_EXPIRATIONS_LOOP_SECONDS": "60",
    "PREFECT_SERVER_SERVICES_REPOSSESSOR_LOOP_SECONDS": "60",
    "PREFECT_SERVER_SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS": "30",
}

IDLE_MINUTES = "EVALFLOWS_SERVER_IDLE_MINUTES"
"""The environment variable that says after how many unused minutes a server ends; 0: never."""
DEFAULT_IDLE_MINUTES = 60.0

WORK_FOUND_WITHIN = timedelta(seconds=2)
"""How late the server may find a task of its own whose time has come; what it is asked for, it does at once."""

DEFAULT_PORT = 4200
CHECK_INTERVAL_S = 1.0
ANOTHER_SERVES = 3
"""Exit code of a process that found another server."""

ENDS_UNUSED = ("CI", "PYTEST_VERSION")
"""Environment variables under which the server ends with the last process that uses it."""

SAY_EVERY_S = 10.0
GRACE_S = 15.0
"""Seconds that the server may take to end before it is killed."""

DENIED = (401, 403)
"""HTTP status codes of denied access."""


def prepare_database(path: Path) -> None:
    """Create Prefect's database if there is none. Raise InputError for a file that this Prefect cannot use."""
    if any(os.environ.get(name) for name in OTHER_DATABASES):
        return
    if path.exists():
        _check(path)
    else:
        _create(path)


def _check(path: Path) -> None:
    """Raise InputError for a file that is not a database, or one of another version of Prefect."""
    wanted = "wanted Prefect's database: move the file away, or name another folder in EVALFLOWS_HOME"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
            known = "alembic_version" in tables
            revisions = database.execute("select version_num from alembic_version").fetchall() if known else []
    except sqlite3.Error as error:
        raise InputError(f"{path}: {error}, {wanted}") from error
    if not known:
        raise InputError(f"{path}: got {len(tables)} tables and no revision, {wanted}")
    for (revision,) in revisions:
        if revision not in {script.revision for script in _scripts().walk_revisions()}:
            raise InputError(f"{path}: got the unknown revision {revision!r}, written by a newer Prefect, {wanted}")


def _create(path: Path) -> None:
    """Run Prefect's migrations in memory, then write the file at once: a half-migrated one never exists.

    In memory and without a thread per statement they take about half of the time that Prefect needs for them.
    """
    import sqlalchemy as sa
    from alembic.runtime.environment import EnvironmentContext
    from prefect.server.database import provide_database_interface

    scripts = _scripts()

    def upgrade(revision: Any, context: Any) -> Any:
        return scripts._upgrade_revs("head", revision)  # as alembic's own command does

    engine = sa.create_engine("sqlite://")
    with (
        warnings.catch_warnings(action="ignore", category=sa.exc.SAWarning),
        engine.connect() as connection,
        EnvironmentContext(_config(), scripts, fn=upgrade, destination_rev="head") as environment,
    ):
        environment.configure(
            connection=connection,
            target_metadata=provide_database_interface().Base.metadata,
            include_schemas=True,
            render_as_batch=True,
            transaction_per_migration=True,
            template_args={"dialect": "sqlite"},
        )
        with environment.begin_transaction():
            environment.run_migrations()
        connection.commit()
        _write(connection.connection.driver_connection, path)
    engine.dispose()


def _write(memory: Any, path: Path) -> None:
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with closing(sqlite3.connect(new)) as file:
        memory.backup(file)
    new.replace(path)


def _config() -> Any:
    from prefect.server.database.alembic_commands import alembic_config

    return alembic_config()


def _scripts() -> Any:
    """Return Prefect's migrations of SQLite."""
    from alembic.script import ScriptDirectory
    from prefect.server.database import provide_database_interface

    scripts = ScriptDirectory.from_config(_config())
    scripts.version_locations = [str(provide_database_interface().orm.versions_dir)]
    return scripts


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The local server. `state` is what it does before it answers."""

    pid: int
    port: int
    since: str  # ISO 8601, UTC
    state: Literal["preparing its database", "starting"]
    ends_unused: bool  # whether it ends with the last process that uses it
    idle_minutes: float = 0.0  # unused minutes after which it ends anyway; 0: it does not

    @property
    def ui(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def api(self) -> str:
        return f"{self.ui}/api"


def results_folder() -> Path:
    """Return where Prefect keeps results of our flows, the exceptions with which they ended: a folder of this user's.

    It may stand beside the folders of several servers, and `evalflows forget` empties it.
    """
    folder = home_root() / "results"
    with suppress(OSError):  # Prefect says so when it needs the folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True, slots=True)
class Home:
    """Paths in the server's folder. Each Prefect version has its own, since its database fits no other."""

    folder: Path

    @classmethod
    def here(cls) -> "Home":
        """Return the folder in EVALFLOWS_HOME, else in ~/.evalflows."""
        return cls(home_root() / f"prefect-{version('prefect')}")

    @property
    def database(self) -> Path:
        return self.folder / "prefect.db"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def secret_file(self) -> Path:
        return self.folder / "auth"

    @property
    def authority(self) -> Path:
        """A file with a certificate authority that no server here uses."""
        return self.folder / "authority.pem"

    @property
    def lock(self) -> Path:
        return self.folder / "server.lock"

    @property
    def users(self) -> Path:
        """A file on which each process that uses the server holds a shared lock."""
        return self.folder / "users.lock"

    @property
    def _record(self) -> Path:
        return self.folder / "server.json"

    def make(self) -> None:
        """Create the folder, for its owner only. Raise InputError if that is not possible."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{self.folder}: cannot be created: {error.strerror}; wanted EVALFLOWS_HOME to name a folder"
            ) from error

    def write(self, server: Server) -> None:
        """Write the server's record."""
        new = self._record.with_suffix(".new")
        new.write_text(json.dumps(asdict(server)), encoding="utf-8")
        new.replace(self._record)

    def clear(self) -> None:
        """Remove the record and the secret."""
        self._record.unlink(missing_ok=True)
        self.secret_file.unlink(missing_ok=True)

    def find(self) -> Server | None:
        """Return the server that lives, or None."""
        if not is_locked(self.lock):
            return None
        with suppress(OSError, ValueError, TypeError):  # not written yet, or just removed
            return Server(**json.loads(self._record.read_text(encoding="utf-8")))
        return None

    def secret(self) -> str | None:
        """Return the secret of the server, which its clients send."""
        with suppress(OSError):
            return self.secret_file.read_text(encoding="utf-8").strip() or None
        return None

    def secret_at(self, url: str) -> str | None:
        """Return the secret if the server that lives is at this URL of this machine."""
        with suppress(ValueError):
            parts, server = urlsplit(url), self.find()
            if server and parts.hostname in LOOPBACK and parts.port == server.port:
                return self.secret()
        return None


def new_secret() -> str:
    """Return an auth string as Prefect wants it: `user:password`."""
    return f"evalflows:{secrets.token_urlsafe(32)}"


def write_secret(path: Path, secret: str) -> None:
    """Write a secret to a new file that only its owner can read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(f"{secret}\n")


def is_used(path: Path) -> bool:
    """Return whether a process holds a lock of any kind on a file; nobody can find one whose folder is gone."""
    try:
        with path.open("ab") as file:
            return not try_lock(file)
    except OSError:
        return False


def hold_shared(path: Path) -> IO[bytes]:
    """Lock a file together with others, as long as the returned file is open."""
    file = path.open("ab")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def prefect_ui() -> str | None:
    """Return the address of Prefect's UI: from PREFECT_UI_URL or PREFECT_API_URL, else that of the local server."""
    if given := os.environ.get("PREFECT_UI_URL"):
        return web_address(given)
    if api := os.environ.get("PREFECT_API_URL"):
        return web_address(_ui_of(api))
    server = Home.here().find()
    return server.ui if server else None


def _ui_of(api: str) -> str:
    """Return the UI's address as Prefect derives it from its API's."""
    cloud_api, cloud_ui = PREFECT_CLOUD
    if api.startswith(f"{cloud_api}/"):
        return (
            api.replace(cloud_api, cloud_ui).replace("/accounts/", "/account/").replace("/workspaces/", "/workspace/")
        )
    return api.rstrip("/").removesuffix("/api")


def main() -> None:
    """Serve until SIGTERM, or until nobody uses the server. Exit with 2 if it cannot start, and say why in the log."""
    parser = ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--end-unused", action="store_true")
    arguments = parser.parse_args()
    home = Home.here()
    home.make()
    lock = hold(home.lock)  # as long as this process lives
    if lock is None:
        sys.exit(ANOTHER_SERVES)
    _log_to(home)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again after it has stopped serving
    try:
        with _listen(arguments.port) as listener:
            _serve(home, listener, arguments.end_unused)
    except InputError as error:
        print(error, file=sys.stderr, flush=True)
        sys.exit(2)
    finally:
        home.clear()


def _log_to(home: Home) -> None:
    """Write what this process prints to the log."""
    log = os.open(home.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _listen(port: int | None) -> socket.socket:
    """Return a listening socket: at the port if given, else at Prefect's own, else at a free one.

    Raise InputError if the given port is in use.
    """
    for candidate in (DEFAULT_PORT, 0) if port is None else (port,):
        # With its protocol: otherwise asyncio would not send each part of an answer at once.
        listener = socket.socket(proto=socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, candidate))
            listener.listen(2048)
            return listener
        except OSError:
            listener.close()
    raise InputError(f"--port {port}: in use by another program, wanted a free port (0: any)")


def _serve(home: Home, listener: socket.socket, ends_unused: bool) -> None:
    port = int(listener.getsockname()[1])
    server = Server(
        pid=os.getpid(),
        port=port,
        since=datetime.now(UTC).isoformat(timespec="seconds"),
        state="starting" if home.database.exists() else "preparing its database",
        ends_unused=ends_unused,
        idle_minutes=idle_minutes(),
    )
    _configure(home, server)
    home.write(server)
    if ends_unused:
        _end_unused(lambda: is_used(home.users), 2 * CHECK_INTERVAL_S)

    prepare_database(home.database)
    home.write(replace(server, state="starting"))
    _run(listener, home, server.idle_minutes)


def idle_minutes() -> float:
    """Return after how many unused minutes a server ends; 0: never. Raise InputError for what is no such number."""
    given = os.environ.get(IDLE_MINUTES, "")
    with suppress(ValueError):
        if 0 <= (minutes := float(given or DEFAULT_IDLE_MINUTES)) < math.inf:
            return minutes
    raise InputError(f"{IDLE_MINUTES}: got {given!r}, wanted minutes, or 0 for a server that stays")


def _configure(home: Home, server: Server) -> None:
    """Set what Prefect reads: its home, its address, and the secret, which only the environment and a file hold."""
    secret = os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or new_secret()
    write_secret(home.secret_file, secret)
    os.environ.update(
        SERVER_SETTINGS
        | {
            "PREFECT_HOME": str(home.folder),
            "PREFECT_API_URL": server.api,
            "PREFECT_SERVER_API_AUTH_STRING": secret,
            "PREFECT_API_AUTH_STRING": secret,
            # Only the UI, under both of its addresses, may read answers from another origin.
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"{server.ui},http://localhost:{server.port}",
            "PREFECT__SERVER_FINAL": "1",
        }
    )
    os.environ.pop("PREFECT_PROFILE", None)


def _run(listener: socket.socket, home: Home, minutes: float) -> None:
    import uvicorn
    from prefect.server.api.server import create_app

    adapt_prefect()
    app = _Asked(create_app(final=True))
    if minutes:
        _end_unused(lambda: app.was_asked() or is_used(home.users) or _has_schedule(home.database), 60 * minutes)
    config = uvicorn.Config(app, timeout_keep_alive=60, log_level="warning", lifespan="on")
    uvicorn.Server(config).run(sockets=[listener])


def adapt_prefect() -> None:
    """Let Prefect's server in this process do less while it is idle, and answer two requests that write at once."""
    from docket import Worker
    from prefect.server.api import background_workers
    from prefect.server.database.configurations import AioSqliteConfiguration

    class QuietWorker(Worker):
        async def _cancellation_listener(self) -> None:
            """Wait for the end. Docket asks ten times a second whether a task is cancelled, and Prefect cancels none of
            the server's own: that took a third of what an idle server takes."""
            if (session := self._processing_session) is not None:
                session.cancellation_ready.set()
                await session.stopping.wait()

    vars(background_workers)["Worker"] = partial(  # by default it looks four times a second
        QuietWorker, minimum_check_interval=WORK_FOUND_WITHIN, scheduling_resolution=WORK_FOUND_WITHIN
    )
    # Each transaction waits for SQLite's lock when it begins. One that reads first would fail if another has written
    # meanwhile, and its client wait for two seconds, as up to every second run did that began just after another one.
    begin = AioSqliteConfiguration.begin_transaction
    AioSqliteConfiguration.begin_transaction = (  # type: ignore[method-assign]
        lambda self, session, with_for_update=False: begin(self, session, with_for_update=True)
    )


class _Asked:
    """An ASGI application that knows whether it was asked for anything but whether it is there."""

    def __init__(self, app: Any) -> None:
        self._app, self._open, self._asked = app, 0, True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or scope["path"].endswith(("/health", "/ready")):
            await self._app(scope, receive, send)
            return
        self._open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open, self._asked = self._open - 1, True

    def was_asked(self) -> bool:
        """Return whether it is being asked, or was since this was called before."""
        asked, self._asked = self._asked, False
        return asked or self._open > 0


def _has_schedule(database: Path) -> bool:
    """Return whether a deployment has a schedule; a database that cannot be read may have one."""
    if any(os.environ.get(name) for name in OTHER_DATABASES):
        return True
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return bool(connection.execute("select count(*) from deployment_schedule where active").fetchone()[0])
    return database.exists()


def _end_unused(is_used: Callable[[], bool], after_s: float) -> None:
    """End this process, from a thread, once it has been unused for so long."""

    def watch() -> None:
        used = time.monotonic()
        while time.monotonic() - used < after_s:
            time.sleep(min(after_s / 2, 60.0))
            if is_used():
                used = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


@dataclass(slots=True)
class _Use:
    """How this process uses the local server."""

    started: "subprocess.Popen[bytes] | None" = None  # the one that it started last
    is_announced: bool = False
    held: dict[str, IO[bytes]] = field(default_factory=dict)  # by folder, the locks that show that it uses a server
    settings: dict[Any, Any] = field(default_factory=dict)  # Prefect's for it, once it is used
    lock: threading.Lock = field(default_factory=threading.Lock)


_here = _Use()


def begin(port: int | None = None) -> None:
    """Start the local server if there is none, without waiting for it.

    Several processes may do so at once: only one server gets the lock, and the others end.
    """
    home = Home.here()
    home.make()
    _use(home)
    if not is_locked(home.lock) and (_here.started is None or _here.started.poll() is not None):
        _here.started, _here.is_announced = _spawn(port), False


def begin_early() -> None:
    """Start the local server while modules load and the spec is checked, unless another API may be configured.

    Prefect, which knows for certain, takes seconds to load.
    """
    if not _api_of_calling_run() and not may_use_another():
        begin()


def may_use_another() -> bool:
    """Return whether another API than that of the local server may be configured; only Prefect knows for certain."""
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    files = [home / "profiles.toml", Path("prefect.toml"), Path("pyproject.toml"), Path(".env")]
    return bool(os.environ.get("PREFECT_API_URL")) or any(map(_mentions_prefect, files))


def _mentions_prefect(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "tool.prefect" in text or "PREFECT_API_URL" in text or path.name == "prefect.toml"


def local_server(port: int | None = None) -> Server:
    """Return the local server, started if there is none, as soon as it answers. Wait as long as it lives.

    Raise InputError if it cannot start, with the reason.
    """
    home = Home.here()
    begin(port)
    told = time.monotonic()
    while True:
        server = home.find()
        if server and is_serving(server):
            _announce(server)
            return server
        if server is None and _has_ended(home):
            begin(port)  # another process's server has ended
        if time.monotonic() - told > SAY_EVERY_S:
            told = time.monotonic()
            print_note(f"waiting for Prefect's server: {server.state if server else 'starting'}")
        time.sleep(0.05)


def stop() -> Server | None:
    """End the local server. Return it, or None if there is none."""
    home = Home.here()
    server = home.find()
    if server is None:
        return None
    deadline = time.monotonic() + GRACE_S
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(server.pid, number)
        while is_locked(home.lock) and (number == signal.SIGKILL or time.monotonic() < deadline):
            time.sleep(0.05)
    home.clear()
    return server


def _spawn(port: int | None) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "evalflows.prefect_server"]
    if port is not None:
        command += ["--port", str(port)]
    if any(os.environ.get(name) for name in ENDS_UNUSED):
        command.append("--end-unused")
    nothing = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True, cwd="/")


def _use(home: Home) -> None:
    """Show, as long as this process lives, that it uses the server."""
    if str(home.folder) not in _here.held:
        _here.held[str(home.folder)] = hold_shared(home.users)


def _has_ended(home: Home) -> bool:
    """Return whether no server lives or starts. Raise InputError if the one that this process started gave up."""
    if is_locked(home.lock) or _here.started is None:
        return not is_locked(home.lock)
    code = _here.started.poll()
    if code == 2:
        raise InputError(last_line(home.log.read_text(errors="replace")))
    if code is not None and code not in (0, ANOTHER_SERVES):
        last = last_line(home.log.read_text(errors="replace"))
        raise IncompleteError(f"Prefect's server ended, exit code {code}: {last} (log: {home.log})")
    return code is not None


def is_serving(server: Server) -> bool:
    """Return whether the server is ready. Any configured proxy is bypassed."""
    import urllib.request  # late: who only prints where the dashboard is asks no server

    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{server.api}/health", timeout=5) as it:
            return bool(it.read(10) == b"true")
    except OSError:
        return False


def _announce(server: Server) -> None:
    """Say where the server is, once, in the process that started it."""
    if not _here.is_announced and _here.started is not None and _here.started.pid == server.pid:
        lasts = "it ends with this session" if server.ends_unused else f"{hints.stop_server().code} stops it"
        print_note(f"started Prefect's server, with its UI at {server.ui}; {lasts}")
        _here.is_announced = True


def access_denied(url: str | None) -> InputError:
    """Return the error for an API that refuses our requests (401 or 403)."""
    wanted = f"PREFECT_API_AUTH_STRING as {hints.server_status().code} prints it, or PREFECT_API_KEY"
    return InputError(f"PREFECT_API_URL={url}: access denied, wanted {wanted}")


@contextmanager
def server_access() -> Iterator[None]:
    """Give the code in this block access to the configured Prefect API, or to the local server if there is none.

    Raise InputError if the local server cannot start.
    """
    from evalflows.server_watch import change_settings  # late: loading Prefect takes seconds

    access = _access()
    defaults = _derived(access) | _few_authorities(access)
    with change_settings(access, set_defaults=defaults) if access or defaults else nullcontext():
        yield


def _access() -> Mapping[Any, Any]:
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, get_current_settings
    from pydantic import SecretStr

    api = get_current_settings().api
    with _here.lock:
        if api.url and api.url != _here.settings.get(PREFECT_API_URL):
            secret = None if api.auth_string else Home.here().secret_at(api.url)
            return {PREFECT_API_AUTH_STRING: SecretStr(secret)} if secret else {}
        if (calling := _api_of_calling_run()) and calling != _here.settings.get(PREFECT_API_URL):
            return {PREFECT_API_URL: calling}
        server = local_server()
        _pass_proxies_by()
        secret = Home.here().secret()
        found = {PREFECT_API_URL: server.api, PREFECT_API_AUTH_STRING: SecretStr(secret) if secret else None}
        if found != _here.settings:
            _here.settings.update(found)
            _set_for_all_flows(found)
        api = get_current_settings().api
        return {} if found == {PREFECT_API_URL: api.url, PREFECT_API_AUTH_STRING: api.auth_string} else found


def _derived(access: Mapping[Any, Any]) -> dict[Any, str]:
    """Return the setting of the UI's address, which Prefect would derive from the API's."""
    from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL

    return (
        {PREFECT_UI_URL: access[PREFECT_API_URL].rstrip("/").removesuffix("/api")} if PREFECT_API_URL in access else {}
    )


def _few_authorities(access: Mapping[Any, Any]) -> dict[Any, str]:
    """Return the setting of a file with one certificate authority, for the local server.

    Each of Prefect's clients, four in a first run, would load all authorities, in 18 ms, though this server has no TLS.
    """
    import certifi
    from prefect.settings import PREFECT_API_SSL_CERT_FILE, PREFECT_API_URL, get_current_settings

    if access.get(PREFECT_API_URL, get_current_settings().api.url) != _here.settings.get(PREFECT_API_URL, ""):
        return {}
    home = Home.here()
    if not home.authority.exists():
        first, end, _ = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----")
        new = home.authority.with_suffix(f".{os.getpid()}.new")
        new.write_text(f"{first}{end}\n", encoding="utf-8")
        new.replace(home.authority)
    return {PREFECT_API_SSL_CERT_FILE: str(home.authority)}


def _api_of_calling_run() -> str | None:
    """Return the API of the flow or task of the user's that calls us; None without one.

    Without a configured API, Prefect starts a server for it. Only there is the run to which ours belongs.
    """
    context = sys.modules.get("prefect.context")
    run = context and (context.TaskRunContext.get() or context.FlowRunContext.get())
    return str(run.client.api_url) if run else None


def _pass_proxies_by() -> None:
    """Reach the local server directly, also where the environment names a proxy: Prefect's client would ask that."""
    for name in ("NO_PROXY", "no_proxy"):  # some libraries read one, some the other
        hosts = [host for host in os.environ.get(name, "").split(",") if host]
        if HOST not in hosts:
            os.environ[name] = ",".join([*hosts, HOST])


def _set_for_all_flows(settings: Mapping[Any, Any]) -> None:
    """Use the settings in the whole process from now on: Prefect's own threads send logs and events after the block."""
    import prefect.context

    from evalflows.server_watch import with_changes

    context = prefect.context.GLOBAL_SETTINGS_CONTEXT
    prefect.context.GLOBAL_SETTINGS_CONTEXT = prefect.context.SettingsContext(
        profile=context.profile, settings=with_changes(context.settings, settings, set_defaults=_derived(settings))
    )


if __name__ == "__main__":
    main()
