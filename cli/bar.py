"""A bar that shows how far a run is, where there is a terminal to show it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import progress
from rich.console import Console

if TYPE_CHECKING:
    from flows import Progress


@contextmanager
def progress_bar() -> Iterator[Callable[["Progress"], None]]:
    """A function that moves the bar. It stands on stderr, and is gone when the block ends."""
    console = Console(stderr=True)
    text, share = progress.TextColumn("{task.description}"), progress.TextColumn("{task.percentage:>3.0f} %")
    columns = (text, progress.BarColumn(), share, progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=100.0)

        def watch(far: "Progress") -> None:
            said = f"{far.answers}/{far.planned_answers} answers, {far.judgements}/{far.planned_judgements} judgements"
            bar.update(task, completed=far.percent, description=said)

        yield watch
