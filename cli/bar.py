"""A bar that shows how far a run is, where there is a terminal to show it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class HowFar(Protocol):
    """What a run tells every second."""

    @property
    def answers(self) -> int: ...
    @property
    def judgements(self) -> int: ...
    @property
    def planned_answers(self) -> int: ...
    @property
    def planned_judgements(self) -> int: ...
    @property
    def percent(self) -> float: ...


@contextmanager
def progress_bar() -> Iterator[Callable[[HowFar], None]]:
    """A function that moves the bar. It stands on stderr, and is gone when the block ends."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    shown = {"console": console, "transient": True, "disable": not console.is_terminal}
    with Progress(*columns, TimeElapsedColumn(), **shown) as bar:  # type: ignore[arg-type]
        task = bar.add_task("starting", total=100.0)

        def watch(progress: HowFar) -> None:
            said = (
                f"{progress.answers}/{progress.planned_answers} answers, "
                f"{progress.judgements}/{progress.planned_judgements} judgements"
            )
            bar.update(task, completed=progress.percent, description=said)

        yield watch
