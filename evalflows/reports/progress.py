"""Show the progress of a run: a bar in a terminal or a notebook, else a line at each stage and every 15 seconds."""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING

from evalflows.specs.escaping import print_note
from evalflows.specs.frozen import dataclass

if TYPE_CHECKING:
    from rich.console import Console


LINE_EVERY_S = 15.0

STARTING = "starting Prefect"
"""The stage before a flow names its first one."""

SOON_S = 3.0
"""Seconds for which a stage waits before its first line: a resumed run finds out what is done already, and a stage
without items is over."""

LONG_WAIT_S = 4.0
"""Seconds until failed items are tried again from which on a line says so at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The stage of a run, and in a stage with items the answers and judgements done, and the totals planned."""

    stage: str
    answers: int = 0
    judgements: int = 0
    lost_answers: int = 0  # of those done: failed, or not attempted
    lost_judgements: int = 0
    planned_answers: int = 0
    planned_judgements: int = 0
    calls: int = 0  # made by this process for the run
    cost_usd: float | None = None  # of these calls; None if that of a call is unknown
    failed: int = 0  # items, or calls in place, that failed and are tried again
    again_in_s: float = 0.0  # seconds until the first of them is

    @property
    def done(self) -> int:
        return self.answers + self.judgements

    @property
    def planned(self) -> int:
        return self.planned_answers + self.planned_judgements

    @property
    def percent(self) -> float:
        return 100.0 * self.done / self.planned if self.planned else 100.0


Watch = Callable[[Progress], None]
"""Called at each stage, and every second with the current progress."""


@contextmanager
def show_progress(out: "Console") -> Iterator[Watch]:
    """Yield a function that shows each state it is given: a bar, or lines if nothing can draw one.

    A bar disappears when the block ends. That of a notebook is an output of its cell.
    """
    if in_notebook() and "IPython" in sys.modules:
        with _bar_of_notebook() as watch:
            yield watch
    elif out.is_terminal and not out.is_jupyter and not in_command_of_cell():
        with _bar(out) as watch:
            yield watch
    else:
        lines = Lines()
        with lines.repeated():
            yield lines


def in_notebook() -> bool:
    return "ipykernel" in sys.modules


def in_command_of_cell() -> bool:
    """Return whether a cell of a notebook has called this command by `!`: in a terminal whose lines stay as printed."""
    return "JPY_PARENT_PID" in os.environ and not in_notebook()


@contextmanager
def _bar_of_notebook() -> Iterator[Watch]:
    from IPython.display import HTML, display

    bar = display(HTML(STARTING), display_id=True)

    def watch(state: Progress) -> None:
        bar.update(HTML(f'<progress max="100" value="{state.percent:.0f}"></progress> {escape(counts(state))}'))

    try:
        yield watch
    finally:
        bar.update(HTML(""))


@contextmanager
def _bar(out: "Console") -> Iterator[Watch]:
    from rich import progress

    text, share = progress.TextColumn("{task.description}"), progress.TextColumn("{task.percentage:>3.0f} %")
    columns = (text, progress.BarColumn(), share, progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task(STARTING, total=100.0)

        def watch(state: Progress) -> None:
            bar.update(task, completed=state.percent if state.planned else 0.0, description=counts(state))

        yield watch


def counts(state: Progress) -> str:
    """Return the stage with what is done of all, such as `answering and judging: 3/8 answers, 2/16 judgements`.

    If items failed and are tried again, also how many and when: `1 failed, again in 4 s`.
    """
    parts = [
        f"{done}/{of} {what}"
        for done, of, what in (
            (state.answers - state.lost_answers, state.planned_answers, "answers"),
            (state.judgements - state.lost_judgements, state.planned_judgements, "judgements"),
        )
        if of
    ]
    if state.failed:
        soon = max(1, math.ceil(state.again_in_s))
        parts.append(f"{state.failed} failed, again in {soon} s")
    return f"{state.stage}: {', '.join(parts)}" if parts else state.stage


class Lines:
    """Prints states as lines on standard error: the first and the last one of each stage, and one every 15 seconds.

    A stage without items has no last one, and none at all if it is over soon.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._last = Progress(stage=STARTING)
        self._printed = counts(self._last)
        self._first: Progress | None = self._last  # of the stage, from which its pace counts; None until it is printed
        self._stage_at = self._first_at = self._printed_at = clock()

    def __call__(self, state: Progress) -> None:
        with self._lock:
            if state.stage != self._last.stage:
                self._finish()
                self._stage_at, self._first = self._clock(), None
            if self._first is None:
                self._begin_if_due(state)
            elif state.failed and not self._last.failed and state.again_in_s >= LONG_WAIT_S:
                self._print(state)
            self._last = state
            self._repeat()

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Print a line every 15 seconds in this block, also while no state comes."""
        ended = threading.Event()

        def repeat() -> None:
            while not ended.wait(1.0):
                with self._lock:
                    self._repeat()

        thread = threading.Thread(target=repeat, name="evalflows-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            with self._lock:
                self._finish()

    def _begin_if_due(self, state: Progress) -> None:
        if state.done or self._clock() - self._stage_at >= SOON_S:
            self._first, self._first_at = state, self._clock()
            self._print(state)

    def _repeat(self) -> None:
        is_done = self._last.planned and self._last.done >= self._last.planned
        if self._first is None:
            self._begin_if_due(self._last)
        elif self._clock() - self._printed_at >= LINE_EVERY_S and not (is_done and counts(self._last) == self._printed):
            self._print(self._last)

    def _finish(self) -> None:
        """Print the last state of a stage with items, unless it has been printed."""
        if self._last.planned and counts(self._last) != self._printed:
            self._print(self._last)

    def _print(self, state: Progress) -> None:
        self._printed, self._printed_at = counts(state), self._clock()
        parts = [counts(state), *self._pace(state)]
        if state.calls:
            parts.append("cost unknown" if state.cost_usd is None else f"{state.cost_usd:.4f} USD")
        print_note(", ".join(parts))

    def _pace(self, state: Progress) -> Iterator[str]:
        """Yield the rate and the time left; the time taken in a stage that is done, or without items.

        What is left of answers, and of judgements, goes on at its own pace: rules take no time, and calls do. The rate
        is that of what takes longer, without what was done before the first line.
        """
        taken, first = self._printed_at - self._stage_at, self._first or state
        elapsed = self._printed_at - self._first_at
        if not state.planned and taken >= 1.0:
            yield _duration(taken)
        elif state.done >= state.planned > 0 and taken >= 1.0:
            yield f"done in {_duration(taken)}"
        kinds = (
            (state.answers - first.answers, state.planned_answers - state.answers, "answers"),
            (state.judgements - first.judgements, state.planned_judgements - state.judgements, "judgements"),
        )
        going_on = [(left * elapsed / done, done, what) for done, left, what in kinds if done and left]
        if going_on and elapsed >= 1.0:
            left_s, done, what = max(going_on)
            yield f"{done / elapsed:.1f} {what} per s"
            yield f"about {_duration(left_s)} left"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 7200 else f"{whole / 3600:.1f} h"
