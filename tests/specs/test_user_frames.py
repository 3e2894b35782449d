"""Where the user's code raised: file, line and function in one line, the source beside it, and no cause lost."""

import asyncio
import json
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evalflows.llm.endpoint_errors import fault_of, remember_key, without_keys
from evalflows.specs.code_versions import fault_text, trace_of
from evalflows.specs.errors import CallError

APP = """import json

def parse(text):
    if not text.isdigit():
        raise ValueError(f"no digits in {text!r}")
    return int(text)

def answer(text):
    return parse(text)

def caused(text):
    try:
        return {}[text]
    except KeyError as error:
        raise RuntimeError("cannot answer") from error

def handled(text):
    try:
        return {}[text]
    except KeyError:
        raise RuntimeError("cannot answer")

def hidden(text):
    try:
        return {}[text]
    except KeyError:
        raise RuntimeError("cannot answer") from None

def through_a_library(text):
    return json.loads(text)

def deep(text, n=20):
    return deep(text, n - 1) if n else parse(text)

async def grouped(text):
    import asyncio
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(parse, text))

def noted(text):
    error = ValueError("no")
    error.add_note("seen in June")
    raise error

def circular(text):
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first

def authorized(text):
    return send({"Authorization": "Bearer sk-abcdefghijklmnop1234567890"})

def send(headers):
    raise OSError("refused")

class Agent:
    def __call__(self, text):
        return parse(text)
"""


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that a test remembers are no secrets of the others."""
    monkeypatch.setattr("evalflows.llm.endpoint_errors._keys", set())


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], BaseException]]:
    """Raise in a function of the user's module `app.py`, in the working folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "app"}
    (tmp_path / "app.py").write_text(APP)
    exec(compile(APP, str(tmp_path / "app.py"), "exec"), names)

    def raised(name: str) -> BaseException:
        with pytest.raises(Exception) as caught:
            called = names[name]("abc")
            if asyncio.iscoroutine(called):
                asyncio.run(called)
        error = caught.value
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this test's own frame
        return error

    yield raised
    linecache.clearcache()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("answer", "ValueError: no digits in 'abc' (app.py:5 in parse, from app.py:9 in answer)"),
        (
            "caused",
            "RuntimeError: cannot answer (app.py:15 in caused); caused by KeyError: 'abc' (app.py:13 in caused)",
        ),
        (
            "handled",
            "RuntimeError: cannot answer (app.py:21 in handled); while handling KeyError: 'abc' (app.py:19 in handled)",
        ),
        ("hidden", "RuntimeError: cannot answer (app.py:27 in hidden)"),
        (
            "through_a_library",
            "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (app.py:30 in through_a_library)",
        ),
        ("deep", "ValueError: no digits in 'abc' (app.py:5 in parse, from app.py:33 in deep, from app.py:33 in deep)"),
        ("noted", "ValueError: no; seen in June (app.py:43 in noted)"),
        ("circular", "ValueError: first (app.py:48 in circular); caused by ValueError: second"),
    ],
)
def test_an_exception_is_one_line_with_the_users_frames_and_its_causes(
    app: Callable[[str], BaseException], name: str, text: str
) -> None:
    assert fault_text(app(name)) == text


def test_a_cell_of_a_notebook_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython compiles each cell under a file name of its own, and knows its number."""
    path, names = "/tmp/ipykernel_7/42.py", dict[str, Any](__name__="__main__")
    cell = "def answer(text):\n    return int(text)\n"
    linecache.cache[path] = (len(cell), None, cell.splitlines(keepends=True), path)
    known = {path: ("Cell", "In[3]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=known.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    exec(compile(cell, path, "exec"), names)
    with pytest.raises(ValueError) as caught:
        names["answer"]("abc")
    assert "'abc' (In[3]:2 in answer, from " in fault_text(caught.value)
    assert (trace_of(caught.value) or "").endswith("  In[3]:2 in answer\n    return int(text)")


def test_a_trace_has_the_source_of_each_frame_and_of_the_cause(app: Callable[[str], BaseException]) -> None:
    assert trace_of(app("answer")) == (
        "  app.py:9 in answer\n    return parse(text)\n"
        """  app.py:5 in parse\n    raise ValueError(f"no digits in {text!r}")"""
    )
    assert trace_of(app("caused")) == (
        '  app.py:15 in caused\n    raise RuntimeError("cannot answer") from error\n'
        "caused by KeyError: 'abc'\n  app.py:13 in caused\n    return {}[text]"
    )


def test_a_long_trace_keeps_its_ends(app: Callable[[str], BaseException]) -> None:
    lines = (trace_of(app("deep")) or "").splitlines()
    assert lines[2] == "  … 17 more"
    assert lines[-2] == "  app.py:5 in parse"
    assert len(lines) == 11


def test_a_trace_shows_no_key_that_stands_in_the_source(app: Callable[[str], BaseException]) -> None:
    trace = trace_of(app("authorized")) or ""
    assert '"Bearer …"' in trace
    assert "sk-abc" not in trace


def test_a_failed_call_is_named_by_its_kind_and_what_caused_it_is_not_shown() -> None:
    """The provider's own error may quote the key, and the message of a CallError is complete."""
    error = RuntimeError("cannot answer")
    error.__cause__ = CallError("bad_request", "HTTP 400: no such model")
    error.__cause__.__cause__ = OSError("sk-quoted")
    assert fault_text(error) == "RuntimeError: cannot answer; caused by bad_request: HTTP 400: no such model"


def test_a_key_of_the_users_own_client_is_redacted_in_text_and_trace() -> None:
    key = "abcdefgh-own-key"
    remember_key(key)
    try:
        raise ValueError("abcdefgh-own-key")
    except ValueError as error:
        fault = fault_of(error)
    assert key not in str(fault)
    assert "ValueError: … (" in str(fault)
    assert fault.trace is not None
    assert key not in fault.trace


def test_nothing_remains_of_a_key_that_begins_with_another() -> None:
    keys = [f"longer-own-key-{'x' * length}" for length in range(20)]  # so many that a set's order does not pass
    for key in keys:
        remember_key(key)
    assert without_keys(f"<{keys[-1]}>") == "<…>"


def test_an_exception_that_passed_no_code_of_the_users_has_no_places() -> None:
    try:
        json.loads("abc")
    except ValueError as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this test's own frame
        assert fault_text(error) == "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
        assert trace_of(error) is None
