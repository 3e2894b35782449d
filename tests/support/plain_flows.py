"""Flows without Prefect: a flow and its tasks are called as the functions that they are, its chunks on threads.

For tests of what flows do. Those with the fixture `prefect_api` test how Prefect runs and shows them: retries of
chunks, artifacts, events, ids of flow runs.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from importlib import import_module
from logging import getLogger
from types import SimpleNamespace
from typing import Any

import pytest

SETTINGS = [f"api.{module}.flow_settings" for module in ("calling", "running", "comparisons", "traces")]
NOTHING = (
    *("api.running.begin_early", "api.traces.begin_early", "cli.running.begin_early"),
    *(f"tasks.{module}.create_markdown_artifact" for module in ("test_and_decide", "compare", "snapshot", "announce")),
    *(
        "tasks.weights.create_table_artifact",
        "tasks.retention.create_table_artifact",
        "tasks.progress.create_progress_artifact",
    ),
    *("tasks.progress.update_progress_artifact", "tasks.announce.emit_event", "tasks.watch.emit_event"),
)
"""What prepares a server, and what tells it something."""


class Step:
    """A task that was submitted, in place of Prefect's future."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    def wait(self, timeout: float | None = None) -> None:
        wait([self.future], timeout)

    def result(self) -> Any:
        return self.future.result()

    @property
    def state(self) -> Any:
        has_failed = self.future.exception() is not None
        return SimpleNamespace(is_failed=lambda: has_failed, is_crashed=lambda: False)


@contextmanager
def plain_flows() -> Iterator[None]:
    """Call flows and tasks without Prefect in this block."""
    from prefect import Flow, State, Task
    from prefect.utilities.annotations import quote

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        made = self.fn(*arguments, **named)
        return made.data if isinstance(made, State) else made

    def submit(self: Any, *arguments: Any, wait_for: Any = (), **_: Any) -> Step:
        def run() -> Any:
            for step in wait_for:
                step.wait()
            return self.fn(*[one.unquote() if isinstance(one, quote) else one for one in arguments])

        return Step(threads.submit(copy_context().run, run))

    def wait_for_all(steps: list[Step], timeout: float) -> Any:
        return wait([step.future for step in steps], timeout)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(64) as threads:
        replaced = {**dict.fromkeys(SETTINGS, nullcontext), **dict.fromkeys(NOTHING, lambda *_, **__: None)}
        for name in replaced:  # before anything is replaced that a module would import
            import_module(f"evalflows.{name.rpartition('.')[0]}")
        others = {"tasks.engines.wait": wait_for_all, "tasks.announce.get_run_logger": getLogger}
        for name, instead in (replaced | others).items():
            patch.setattr(f"evalflows.{name}", instead)
        patch.setattr(Flow, "__call__", call)
        patch.setattr(Task, "__call__", call)
        patch.setattr(Task, "submit", submit)
        yield
