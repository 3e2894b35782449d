"""What a run says of its progress where there is no terminal, and where there is one."""

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
from rich.console import Console

from evalflows.api.calling import call_flow
from evalflows.engine.run_context import RunContext
from evalflows.reports.progress import LINE_EVERY_S, Lines, Progress, show_progress
from evalflows.tasks.progress import enter_stage


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], list[str]]]:
    """The lines that were printed since the last call, all of evalflows and on standard error."""

    def lines() -> list[str]:
        out, err = capsys.readouterr()
        assert out == ""
        assert all(line.startswith("evalflows: ") for line in err.splitlines())
        return [line.removeprefix("evalflows: ") for line in err.splitlines()]

    yield lines


def at_work(done: int, *, calls: int = 0, cost: float | None = None) -> Progress:
    settings = {"planned_answers": 100, "planned_judgements": 200, "calls": calls, "cost_usd": cost}
    return Progress(stage="answering and judging", answers=done, judgements=done, **settings)


def test_a_line_at_each_stage_and_every_fifteen_seconds(clock: Clock, printed: Callable[[], list[str]]) -> None:
    lines = Lines(clock)
    assert printed() == []
    lines(at_work(0))
    assert printed() == [], "a resumed run is about to find out what is done"
    lines(at_work(10))
    assert printed() == ["answering and judging: 10/100 answers, 10/200 judgements"]
    for _ in range(14):
        clock.now += 1.0
        lines(at_work(10))
    assert printed() == []
    clock.now += 1.0
    lines(at_work(30, calls=60, cost=0.0123))
    slow = replace(at_work(25), judgements=10)
    assert [*lines._pace(slow)] == ["1.0 answers per s", "about 75 s left"], "rules that follow take no time"
    rate = "1.3 judgements per s, about 2 min 8 s left"
    assert printed() == [f"answering and judging: 30/100 answers, 30/200 judgements, {rate}, 0.0123 USD"]
    clock.now += 5.0
    lines(at_work(100, calls=200))
    lines(Progress(stage="computing differences"))
    rate = "4.5 judgements per s, about 22 s left"
    assert printed() == [f"answering and judging: 100/100 answers, 100/200 judgements, {rate}, cost unknown"]
    lines(replace(at_work(100), judgements=200))
    clock.now += 2 * LINE_EVERY_S
    lines._repeat()
    assert printed() == ["answering and judging: 100/100 answers, 200/200 judgements"], "done is said once"


def test_a_stage_without_items_says_that_it_goes_on(clock: Clock, printed: Callable[[], list[str]]) -> None:
    lines = Lines(clock)
    clock.now += 3 * LINE_EVERY_S
    lines._repeat()
    assert printed() == ["starting Prefect, 45 s"]
    lines(Progress(stage="resuming"))
    lines(Progress(stage="computing differences"))
    clock.now += 3
    lines._repeat()
    clock.now += 147
    lines._repeat()
    assert printed() == ["computing differences, 3 s", "computing differences, 2 min 30 s"]


def test_a_terminal_shows_a_bar_with_the_stage_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, printed: Callable[[], list[str]]
) -> None:
    screen = io.StringIO()
    with show_progress(Console(file=screen, force_terminal=True, width=100)) as watch:
        watch(at_work(7))
    assert "answering and judging: 7/100 answers, 7/200 judgements" in screen.getvalue()
    assert printed() == []
    monkeypatch.setenv("JPY_PARENT_PID", "1")  # a command that a cell of a notebook calls by `!`
    before = screen.getvalue()
    with show_progress(Console(file=screen, force_terminal=True, width=100)) as watch:
        watch(at_work(7))
    assert screen.getvalue() == before, "no bar, of which each state would stay in the cell"


def test_a_notebook_shows_progress_without_being_asked(
    monkeypatch: pytest.MonkeyPatch, printed: Callable[[], list[str]]
) -> None:
    monkeypatch.setattr("evalflows.reports.progress.SOON_S", 0.0)
    with call_flow(None):
        enter_stage(RunContext(), "computing differences")
    assert printed() == []
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    with call_flow(None):
        enter_stage(RunContext(), "computing differences")
    assert printed() == ["computing differences"]


def test_the_bar_of_a_notebook_is_an_output_of_its_cell(
    monkeypatch: pytest.MonkeyPatch, printed: Callable[[], list[str]]
) -> None:
    shown: list[str] = []
    cell = ModuleType("IPython.display")
    handle = SimpleNamespace(update=shown.append)
    cell.HTML, cell.display = str, lambda html, display_id: handle  # type: ignore[attr-defined]
    for name, module in (("ipykernel", object()), ("IPython", object()), ("IPython.display", cell)):
        monkeypatch.setitem(sys.modules, name, module)
    with call_flow(None):
        enter_stage(RunContext(), "computing differences")
    assert shown == ['<progress max="100" value="100"></progress> computing differences', ""] and printed() == []


def test_a_line_says_at_once_that_failed_items_wait_long(clock: Clock, printed: Callable[[], list[str]]) -> None:
    lines = Lines(clock)
    lines(at_work(10))
    printed()
    clock.now += 1.0
    waiting = replace(at_work(10), failed=1, again_in_s=19.2)
    lines(waiting)
    assert printed() == ["answering and judging: 10/100 answers, 10/200 judgements, 1 failed, again in 20 s"]
    clock.now += 1.0
    lines(replace(waiting, again_in_s=18.2))
    lines(at_work(11))
    lines(replace(at_work(11), failed=1, again_in_s=1.5))
    assert printed() == [], "said once, and a short wait is said with the next line"
