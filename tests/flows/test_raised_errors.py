"""What a program gets of a fault: one exception without Prefect's frames, nothing beside it on stderr, the user's place
in the rows."""

import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from catalog_rows import rows
from click.testing import CliRunner
from prefect import flow
from prefect.settings import PREFECT_API_URL

from evalflows import evaluate
from evalflows.cli.main import cli
from evalflows.server_watch import change_settings
from evalflows.specs import IncompleteError, InputError

pytestmark = pytest.mark.usefixtures("prefect_api")

ROWS = [{"inputs": {"question": f"q{i}"}} for i in range(3)]


def broken(question: str) -> str:
    return parse(question)


def parse(question: str) -> str:
    try:
        return str({}[question])
    except KeyError as error:
        raise ValueError("cannot parse") from error


def fine(question: str) -> str:
    return question


def fussy(outputs: dict[str, Any]) -> float:
    return float(outputs["missing"])


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """Records that a handler of the program's own gets, such as the one that Prefect adds."""
    records: list[logging.LogRecord] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Handler()
    logging.getLogger().addHandler(handler)
    yield records
    logging.getLogger().removeHandler(handler)


def printed(error: BaseException) -> str:
    """The exception as Python prints it."""
    return "".join(traceback.format_exception(error))


def here(function: Any, offset: int) -> str:
    """Where a line of a function stands, as messages show it."""
    path = Path(__file__).relative_to(Path.cwd())
    return f"{path}:{function.__code__.co_firstlineno + offset} in {function.__name__}"


@pytest.mark.slow
def test_a_target_that_raises_is_one_exception_with_the_users_file_and_line(logged: list[logging.LogRecord]) -> None:
    with pytest.raises(IncompleteError) as caught:
        evaluate(broken, ROWS[:1])
    text = printed(caught.value)
    assert text.count("Traceback (most recent call last)") == 1
    assert "prefect" not in text
    assert len(text.splitlines()) < 12
    assert f"ValueError: cannot parse ({here(parse, 4)}, from {here(broken, 1)})" in text
    assert f"caused by KeyError: 'q0' ({here(parse, 2)})" in text
    assert [record.getMessage() for record in logged if record.levelno >= logging.ERROR] == []


@pytest.mark.slow
def test_a_row_has_the_users_place_and_their_frames_with_the_source_inside_a_flow_too() -> None:
    evaluators: list[Any] = [fussy, {"use": fussy, "name": "isolated", "timeout_s": 30}]

    @flow
    def users_own() -> str | None:
        with change_settings({PREFECT_API_URL: None}):  # as where Prefect has started a server for this flow
            return evaluate(fine, ROWS[:1], evaluators).experiment_id

    identity = users_own()
    assert identity is not None
    place = here(fussy, 1)
    assert rows("select evaluator, error, error_trace from scores order by 1") == [
        (name, f"KeyError: 'missing' ({place})", f'  {place}\n    return float(outputs["missing"])')
        for name in ("fussy", "isolated")
    ]
    shown = CliRunner().invoke(cli, ["show", identity, "--all"]).output
    assert f"fussy: KeyError: 'missing' ({place})" in shown
    assert '\n        return float(outputs["missing"])\n' in shown


def test_a_module_that_cannot_be_imported_is_shown_with_its_own_line_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module.py").write_text("x = 1\ny = x / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        evaluate(fine, ROWS, ["broken_module:judge"])
    assert str(caught.value).endswith("ZeroDivisionError: division by zero (broken_module.py:2 in <module>)")
    text = printed(caught.value)
    assert "importlib" not in text
    assert "    y = x / 0\n" in text


@pytest.mark.slow
def test_a_program_prints_one_traceback_and_nothing_else(tmp_path: Path, prefect_api: dict[str, str]) -> None:
    (tmp_path / "program.py").write_text(
        "from evalflows import evaluate\nfrom evalflows.store import connect\ndb = connect()\n"
        "def answer(question):\n    raise ValueError('no')\nevaluate(answer, [{'inputs': {'question': 'q'}}])\n"
    )
    own = os.environ | prefect_api
    own.pop("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", None)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=own, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == ""
    first, place, line, last = done.stderr.splitlines()
    assert (first, place) == (
        "Traceback (most recent call last):",
        f'  File "{tmp_path}/program.py", line 6, in <module>',
    )
    assert line.startswith("    evaluate(answer")
    assert last.endswith("none of 1 answered: ValueError: no (program.py:5 in answer)")
