"""The local server's folder: who it is, its secret, its database and its log.

The server holds a lock on a file as long as it lives, whatever ends it, so a record without a lock is of a dead server.
"""

import fcntl
import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Literal
from urllib.parse import urlsplit

from evalflows.specs.errors import InputError
from evalflows.specs.file_locks import try_lock

HOST = "127.0.0.1"
LOOPBACK = (HOST, "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The local server. `state` is what it does before it answers."""

    pid: int
    port: int
    since: str  # ISO 8601, UTC
    state: Literal["preparing its database", "starting"]
    ends_unused: bool  # whether it ends with the last process that uses it

    @property
    def ui(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def api(self) -> str:
        return f"{self.ui}/api"


def home_root() -> Path:
    """Return the folder in EVALFLOWS_HOME, else ~/.evalflows."""
    return Path(os.environ.get("EVALFLOWS_HOME") or Path.home() / ".evalflows").absolute()


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


def is_locked(path: Path) -> bool:
    """Whether a process holds the exclusive lock on a file."""
    try:
        with path.open("rb") as file:
            return not try_lock(file, shared=True)
    except OSError:
        return False


def is_used(path: Path) -> bool:
    """Whether a process holds a lock of any kind on a file."""
    with path.open("ab") as file:
        return not try_lock(file)


def hold(path: Path) -> IO[bytes] | None:
    """Lock a file exclusively, as long as the returned file is open. Return None if another process has locked it."""
    file = path.open("ab")
    if try_lock(file):
        return file
    file.close()
    return None


def hold_shared(path: Path) -> IO[bytes]:
    """Lock a file together with others, as long as the returned file is open."""
    file = path.open("ab")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file
