"""A key is sent to whom it is for, and stands nowhere else: not in the store, the server's database, or a log."""

import json
import logging
import os
import random
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pyarrow.parquet
import pytest
import yaml
from command import command, with_support
from endpoint import Endpoint, Reply, Request, completion, error, serving
from pairwise_runs import answered

from evalflows import compare, run
from evalflows.llm import endpoint_errors, loop, wrap
from evalflows.llm.connect import completer
from evalflows.llm.ledger import Ledger
from evalflows.specs import EndpointConnection, ExperimentSpec, IncompleteError
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.reference import refer
from evalflows.store import Store

KEY = f"sk-test-{random.Random(17).randbytes(24).hex()}"
PIECES = (KEY[8:24], KEY[24:40], KEY[-16:])
"""Of a key that was cut, each piece of this length is too much."""
VARIABLE = "NO_KEY_ANYWHERE"
MARK = "as-quoted-by-the-provider"
"""Stands beside the key wherever that is quoted: where this is found, the key would be found."""
CUT_AT = 500
"""Characters of an error that are kept: one quotes the key across this border."""
LONG = f"{MARK} ".ljust(CUT_AT - len(KEY) // 2 - len("HTTP 400: "), "x")

ERRORS = (
    error(401, f"Incorrect API key provided: {KEY}. {MARK}", code="invalid_api_key"),
    error(400, f"{LONG}{KEY}{KEY} is not allowed"),
    error(403, f"{MARK}: {{'authorization': 'Bearer {KEY}'}}"),
    error(429, f"{MARK} {KEY} has no money left", code="insufficient_quota"),
    Reply(f"<html>{MARK} {KEY}</html>", 502),
    Reply({"detail": [{"msg": f"{MARK} {KEY}", KEY: KEY}]}, 422),
    Reply({"error": f"{MARK} {KEY}"}, 404),
    Reply(f"{MARK} {KEY} is no JSON"),
)
N = len(ERRORS) + 4
ROWS = [{"id": f"q{i}", "inputs": {"question": f"q{i}"}, "outputs": {"answer": f"Q{i}"}} for i in range(N)]


def question_of(request: Request) -> int:
    """Which of the questions it is about, whoever asks."""
    asked = json.dumps(request)
    return next(i for i in reversed(range(N)) if f"q{i}" in asked or f"Q{i}" in asked)


def quoting(request: Request) -> Reply:
    """The first questions are answered; others get an error that quotes the key, and the last an answer that does."""
    number = question_of(request)
    if number < 2:
        return answer(request)
    return ERRORS[number - 2] if number - 2 < len(ERRORS) else answer(request, f"CORRECT {MARK} {KEY}")


def answer(request: Request, text: str = "CORRECT") -> Reply:
    if "messages" in request:
        return completion(text)
    if "input" in request:
        return Reply({"data": [{"embedding": [1.0, 2.0]}], "model": "e-1", "usage": {"prompt_tokens": 2}})
    return Reply({"text": text})


# What is searched


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """Every file below a folder as text: what is packed, unpacked."""
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        yield str(path), path.read_bytes().decode(errors="replace")
        if path.suffix == ".parquet":
            yield str(path), str(pyarrow.parquet.read_table(path, partitioning=None).to_pylist())
        if path.suffix == ".db":
            yield str(path), "\n".join(rows_of(path))


def rows_of(path: Path) -> Iterator[str]:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        for (table,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
            for row in database.execute(f'select * from "{table}"'):
                yield str(row)
    finally:
        database.close()


def found(what: tuple[str, ...], *folders: Path, **said: str) -> set[str]:
    """The files, and the texts by their names, in which any of these stands."""
    every = [*said.items(), *(named for folder in folders for named in texts(folder))]
    return {name for name, text in every if any(piece in text for piece in what)}


def test_the_search_finds_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text(KEY)
    table = pyarrow.table({"text": ["x" * 1000 + KEY] * 1000})
    pyarrow.parquet.write_table(table, tmp_path / "packed.parquet", compression="zstd")
    with sqlite3.connect(tmp_path / "some.db") as database:
        database.execute("create table texts (text)")
        database.executemany("insert into texts values (?)", [("x" * 4000 + KEY,)] * 10)
    wanted = {str(tmp_path / name) for name in ("plain.txt", "packed.parquet", "some.db")}
    assert found(PIECES, tmp_path, said=f"a {KEY[8:30]}") == wanted | {"said"}
    assert found((MARK,), tmp_path, said=KEY) == set()


# The doors by which a key goes out


def connection(endpoint: Endpoint) -> dict[str, Any]:
    fields = {"kind": "endpoint", "base_url": endpoint.base_url, "model": "m", "embedding_model": "e", "attempts": 1}
    return fields | {"api_key_env": VARIABLE}


def http(endpoint: Endpoint) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer ${{{VARIABLE}}}"}
    where = {"url": endpoint.base_url, "answer": "text", "headers": headers, "attempts": 1}
    return {"kind": "http", "name": "http"} | where


CHAT = {"kind": "chat", "name": "chat", "connection": "keyed", "user": "{question}"}
RECORDED = {"kind": "recorded", "name": "recorded", "column": "answer"}
JUDGE = {"use": "judges:says_correct", "connection": "keyed"}
SIMILAR = {"use": "semantic_similarity", "connection": "keyed"}


def spec(endpoint: Endpoint, **changes: Any) -> ExperimentSpec:
    fields: dict[str, Any] = {
        "name": "no-key",
        "dataset": {"rows": [row | {"metadata": {"answer": row["inputs"]["question"]}} for row in ROWS]},
        "targets": [RECORDED],
        "evaluators": ["contains"],
        "connections": {"keyed": connection(endpoint)},
        "chunk_retries": 0,
        "breaker_window": 4 * N,
    }
    return ExperimentSpec.model_validate(fields | changes)


def client_of(endpoint: Endpoint, kind: type[Any]) -> Any:
    return wrap(kind(base_url=endpoint.base_url, api_key=os.environ[VARIABLE], max_retries=0))


def wrapped(endpoint: Endpoint) -> list[dict[str, Any]]:
    """Targets that ask by a client of the user's own."""
    client, async_client = client_of(endpoint, openai.OpenAI), client_of(endpoint, openai.AsyncOpenAI)

    def plain(question: str) -> str:
        asked = client.chat.completions.create(model="m", messages=[{"role": "user", "content": question}])
        return str(asked.choices[0].message.content)

    async def awaited(question: str) -> str:
        asked = await async_client.chat.completions.create(model="m", messages=[{"role": "user", "content": question}])
        return str(asked.choices[0].message.content)

    return [{"kind": "python", "name": f.__name__, "function": refer(f)} for f in (plain, awaited)]


def judging(endpoint: Endpoint) -> list[dict[str, Any]]:
    """A judge that asks by a client of the user's own, and says what it was told."""
    client = client_of(endpoint, openai.OpenAI)

    def own(outputs: dict[str, Any]) -> dict[str, Any]:
        content = str(outputs["output"])
        asked = client.chat.completions.create(model="m", messages=[{"role": "user", "content": content}])
        said = asked.choices[0].message.content
        return {"key": "own", "score": 1, "comment": said, "metadata": {"said": said}}

    return [{"use": refer(own), "name": "own"}]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setattr(endpoint_errors, "_keys", set())  # what another door's test has seen helps none


@pytest.fixture
def logs(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


DOORS = ("a chat target", "a judge", "embeddings", "an http target", "the user's own client", "a judge's own client")


def through(door: str, endpoint: Endpoint) -> ExperimentSpec:
    changes: dict[str, dict[str, Any]] = {
        "a chat target": {"targets": [CHAT]},
        "a judge": {"evaluators": [JUDGE]},
        "embeddings": {"evaluators": [SIMILAR]},
        "an http target": {"targets": [http(endpoint)]},
        "the user's own client": {"targets": wrapped(endpoint)},
        "a judge's own client": {"evaluators": judging(endpoint)},
    }
    return spec(endpoint, **changes[door])


def preferring(request: Request) -> Reply:
    """One pair gets an error that quotes the key, the others a verdict that does."""
    if "q01" in json.dumps(request):
        return ERRORS[0]
    return completion(json.dumps({"reasoning": f"{MARK} {KEY}", "preference": 1}))


def comparison(endpoint: Endpoint) -> ComparisonSpec:
    judges = [{"use": "pairwise_preference", "connection": "keyed"}]
    connections = {"keyed": connection(endpoint)}
    fields = {"experiments": answered("old", "new"), "evaluators": judges, "connections": connections}
    return ComparisonSpec.model_validate(fields | {"both_orders": True, "chunk_retries": 0})


def ended(start: Callable[[Any], object], asked: Any) -> str:
    """What is said at the end of a run or a comparison, if anything."""
    try:
        start(asked)
    except IncompleteError as said:
        return str(said)
    return ""


@pytest.mark.slow
def test_a_key_that_errors_and_answers_quote_is_found_nowhere(
    tmp_path: Path,
    prefect_api: dict[str, str],
    capfd: pytest.CaptureFixture[str],
    logs: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = {}
    for door in DOORS:
        monkeypatch.setattr(endpoint_errors, "_keys", set())  # what another door has seen helps none
        monkeypatch.setenv("EVALFLOWS_STORE", str(tmp_path / door))
        with serving(Endpoint(answer=quoting)) as endpoint:
            said[door] = ended(run, through(door, endpoint))
        assert f"bearer {KEY}" in endpoint.keys, f"{door}: the key was sent"
        assert found((MARK,), tmp_path / door), f"{door}: what was quoted is kept"
    monkeypatch.setattr(endpoint_errors, "_keys", set())
    monkeypatch.setenv("EVALFLOWS_STORE", str(tmp_path / "a comparison"))
    with serving(Endpoint(answer=preferring)) as endpoint:
        said["a comparison"] = ended(compare, comparison(endpoint))
    assert f"bearer {KEY}" in endpoint.keys and found((MARK,), tmp_path / "a comparison")
    written = capfd.readouterr()
    everywhere = {**said, "out": written.out, "err": written.err, "log": logs.text}
    assert found(PIECES, tmp_path, Path(prefect_api["PREFECT_HOME"]), **everywhere) == set()


@pytest.mark.parametrize("word", ["EMPTY", "choices"])
def test_a_key_that_is_a_word_as_local_servers_have_them_changes_no_answer(word: str) -> None:
    text = f"To {word} it, ask for {word}s."
    with serving(Endpoint(answer=lambda request: answer(request, text))) as endpoint:
        keyed = EndpointConnection(base_url=endpoint.base_url, model="m", attempts=1)
        complete = completer("keyed", keyed, Ledger(Store(), "exp-1"), key=word)

        async def ask() -> str:
            return (await complete("hello")).text

        assert loop.run(ask()) == text


# With every log there is


MODULE = f'''
import os

import openai

from evalflows.llm import wrap

client = wrap(openai.OpenAI(base_url=os.environ["BASE_URL"], api_key=os.environ["{VARIABLE}"], max_retries=0))


def ask(question):
    asked = client.chat.completions.create(model="m", messages=[{{"role": "user", "content": question}}])
    return asked.choices[0].message.content
'''


@pytest.mark.soak
def test_a_key_is_not_in_any_log_of_the_command_line_either(
    tmp_path: Path, prefect_environment: dict[str, str]
) -> None:
    name = f"no-key-{os.getpid()}-{time.time_ns()}"
    with serving(Endpoint(answer=quoting)) as endpoint:
        own = {"kind": "python", "name": "own", "function": "mine:ask"}
        every = spec(endpoint, targets=[CHAT, http(endpoint), own], evaluators=[JUDGE, SIMILAR, "contains"], name=name)
        (tmp_path / "mine.py").write_text(MODULE)
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(every.model_dump(mode="json", exclude_unset=True)))
        done = evalflows("run", "spec.yaml", "--verbose", cwd=tmp_path, environment=loud(prefect_environment, endpoint))
        shown = evalflows("show", f"{name}-chat", cwd=tmp_path, environment=prefect_environment)
        again = evalflows(
            "resume", f"{name}-chat", "--verbose", cwd=tmp_path, environment=loud(prefect_environment, endpoint)
        )
    assert done.returncode in (0, 4), done.stderr
    assert again.returncode in (0, 4), again.stderr
    assert shown.returncode == 0, shown.stderr
    assert f"bearer {KEY}" in endpoint.keys, "the key was sent"
    said = {
        f"{one.args[1]} {what}": getattr(one, what) for one in (done, shown, again) for what in ("stdout", "stderr")
    }
    home = Path(prefect_environment["PREFECT_HOME"])
    wait_for(name, home)
    assert "DEBUG" in done.stdout + done.stderr
    assert found((MARK,), tmp_path), "what was quoted is kept"
    assert found(PIECES, tmp_path, home, **said) == set()


def loud(environment: dict[str, str], endpoint: Endpoint) -> dict[str, str]:
    """The environment with every log at its loudest."""
    levels = {"PREFECT_LOGGING_LEVEL": "DEBUG", "PREFECT_LOGGING_ROOT_LEVEL": "DEBUG", "OPENAI_LOG": "debug"}
    console = {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "DEBUG", "PREFECT_LOGGING_TO_API_ENABLED": "true"}
    return environment | levels | console | {"BASE_URL": endpoint.base_url}


def evalflows(*arguments: str, cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    own = with_support(environment)
    return subprocess.run(command(*arguments), cwd=cwd, env=own, capture_output=True, text=True, timeout=120)


def wait_for(name: str, home: Path) -> None:
    """Until the server has written down what it heard of a run: that is a little later than it happened."""
    database = home / "prefect.db"
    for _ in range(100):
        if any(name in row for row in rows_of(database)):
            return
        time.sleep(0.1)
    raise AssertionError(f"the server knows nothing of {name}")
