"""A PostgreSQL server of Debian's package, which lives as long as a block and listens on a socket in its own folder."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PASSWORD = "pass/word @:%"
ESCAPED_PASSWORD = "pass%2Fword%20%40%3A%25"


def binaries() -> Path | None:
    """Return the folder of the newest PostgreSQL server's programs; None if there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


@contextmanager
def postgres_server(programs: Path) -> Iterator[str]:
    """Yield the URL of a new server's database."""
    # root may not run it; Debian's package has a user for it
    account: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    with TemporaryDirectory(prefix="evalflows-pg-") as name:
        folder, data = Path(name), Path(name) / "data"
        (folder / "password").write_text(PASSWORD)
        if account:
            shutil.chown(folder, "postgres")
            shutil.chown(folder / "password", "postgres")
        options = ["--auth=scram-sha-256", f"--pwfile={folder / 'password'}", "--username=evalflows", "--no-sync"]
        make = [programs / "initdb", "-D", data, *options, "--encoding=UTF8", "--locale=C"]
        subprocess.run(make, check=True, cwd=folder, capture_output=True, **account)
        settings = ["-c", "listen_addresses=", "-c", "fsync=off", "-k", folder]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen([programs / "postgres", "-D", data, *settings], cwd=folder, stderr=log, **account)
        try:
            _wait_until_ready(programs, folder, server)
            yield f"postgresql://evalflows:{ESCAPED_PASSWORD}@/postgres?host={folder}"
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


def _wait_until_ready(programs: Path, folder: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run([programs / "pg_isready", "-q", "-h", folder], check=False).returncode != 0:
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError((folder / "log").read_text())
        time.sleep(0.05)
