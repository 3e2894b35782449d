"""The process of the local Prefect server: `python -m evalflows.execution.server.process`.

It says at once where it will serve, then loads Prefect. `prefect server start --background` would add the seconds of
Prefect's command, choose no free port, keep no log, and leave a file with a process id that outlives a crash.
"""

import os
import signal
import socket
import sys
import threading
import time
from argparse import ArgumentParser
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from evalflows.execution.server.home import HOST, Home, Server, hold, is_used, new_secret, write_secret
from evalflows.execution.server.settings import SERVER_SETTINGS
from evalflows.specs.errors import InputError

DEFAULT_PORT = 4200
CHECK_INTERVAL_S = 1.0
ANOTHER_SERVES = 3
"""Exit code of a process that found another server."""


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
        with _bound(arguments.port) as listener:
            _serve(home, listener, arguments.end_unused)
    except InputError as error:
        print(error, file=sys.stderr, flush=True)
        sys.exit(2)
    finally:
        home.clear()


def _log_to(home: Home) -> None:
    """Write what this process prints to the log."""
    log = os.open(home.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _bound(port: int | None) -> socket.socket:
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
    )
    _configure(home, server)
    home.write(server)
    if ends_unused:
        threading.Thread(target=_end_unused, args=(home,), daemon=True).start()
    from evalflows.execution.server.database import prepare_database

    prepare_database(home.database)
    home.write(replace(server, state="starting"))
    _run(listener)


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


def _run(listener: socket.socket) -> None:
    import uvicorn
    from prefect.server.api.server import create_app

    config = uvicorn.Config(create_app(final=True), timeout_keep_alive=60, log_level="warning", lifespan="on")
    uvicorn.Server(config).run(sockets=[listener])


def _end_unused(home: Home) -> None:
    """End this process once nobody has used the server for two checks."""
    unused = 0
    while unused < 2:
        time.sleep(CHECK_INTERVAL_S)
        unused = 0 if is_used(home.users) else unused + 1
    with suppress(ProcessLookupError):
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
