"""`RunTree`: a step of the current run, as an object."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from evalflows.compat.refusal import refusing
from evalflows.llm.wrapped import begin_step, current_step, description, plain, step
from evalflows.specs.errors import InputError

__all__ = ["RunTree", "get_current_run_tree"]

_ELSEWHERE = "a step belongs to the run in which it is made"
_NOT_HERE = {
    "to_headers": "a run is recorded in one process; an application behind HTTP is a target of kind http",
    "from_headers": "a run is recorded in one process; an application behind HTTP is a target of kind http",
    "from_runnable_config": "use trace, or RunTree.create_child",
    "get_url": "there is no web page; `evalflows show` prints an experiment",
}


class RunTree:
    """A step of the current run: `post` begins it, `end` and `patch` complete it. Outside a run it is not recorded.

    Raises InputError for LangSmith's options that place a run elsewhere.
    """

    @refusing(
        session_name=_ELSEWHERE,
        project_name=_ELSEWHERE,
        reference_example_id="the run has its example; a step has none",
        attachments="put what matters of a file in the inputs or outputs",
    )
    def __init__(
        self,
        name: str,
        run_type: str = "chain",
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        parent_run: "RunTree | None" = None,
        tags: Sequence[str] | None = None,
        extra: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        client: Any = None,
        session_name: str | None = None,
        project_name: str | None = None,
        reference_example_id: Any = None,
        attachments: Any = None,
    ) -> None:
        self.name, self.run_type, self.parent_run = name, run_type, parent_run
        self.inputs: dict[str, Any] = dict(inputs or {})
        self.outputs: dict[str, Any] | None = None if outputs is None else dict(outputs)
        self.error: str | None = None
        self.tags: list[str] = list(tags or ())
        self.metadata: dict[str, Any] = dict((extra or {}).get("metadata") or {}) | dict(metadata or {})
        self.child_runs: list[RunTree] = []
        self._note: dict[str, Any] | None = None
        self._began = 0.0

    def __getattr__(self, name: str) -> Any:
        if name in _NOT_HERE:
            raise AttributeError(f"RunTree.{name}: not supported here: {_NOT_HERE[name]}")
        raise AttributeError(f"RunTree has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<RunTree {self.name!r}, {self.run_type}>"

    @property
    def id(self) -> str | None:
        """The step's id; None before it has begun."""
        return None if self._note is None else self._note["id"]

    @property
    def parent_run_id(self) -> str | None:
        return None if self._note is None else self._note["parent"]

    @property
    def start_time(self) -> datetime | None:
        return None if self._note is None else datetime.fromisoformat(self._note["started_at"])

    @property
    def end_time(self) -> datetime | None:
        latency_s = None if self._note is None else self._note["latency_s"]
        return None if latency_s is None or self.start_time is None else self.start_time + timedelta(seconds=latency_s)

    def post(self, exclude_child_runs: bool = True) -> None:
        """Begin the step; a second call has no effect. Raise InputError if its parent has not begun."""
        if self._note is not None:
            return
        parent = current_step() if self.parent_run is None else self.parent_run.id
        if self.parent_run is not None and parent is None:
            raise InputError(f"RunTree {self.name!r}: its parent {self.parent_run.name!r} has not begun, wanted post()")
        self._note, self._began = begin_step(self.run_type, self.name, self.inputs, parent), time.perf_counter()
        self.write()

    def end(
        self,
        *,
        outputs: Mapping[str, Any] | None = None,
        error: str | None = None,
        end_time: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Complete the step with its outputs or error, now or at `end_time`."""
        self.post()
        assert self._note is not None
        self.outputs = self.outputs if outputs is None else dict(outputs)
        self.error = error or self.error
        self.add_metadata(metadata or {})
        began = self.start_time
        elapsed = time.perf_counter() - self._began
        self._note["latency_s"] = elapsed if end_time is None or began is None else (end_time - began).total_seconds()
        self.write()

    def patch(self, *, exclude_inputs: bool | None = None) -> None:
        """Record what has changed since the step began."""
        self.post()
        self.write()

    def create_child(
        self,
        name: str,
        run_type: str = "chain",
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> "RunTree":
        """Make a step inside this one; it begins with its own `post`."""
        child = RunTree(name, run_type, inputs=inputs, outputs=outputs, parent_run=self, tags=tags, extra=extra)
        self.child_runs.append(child)
        return child

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        self.metadata.update(metadata)

    def add_tags(self, tags: Sequence[str] | str) -> None:
        self.tags.extend([tags] if isinstance(tags, str) else tags)

    def add_inputs(self, inputs: Mapping[str, Any]) -> None:
        self.inputs.update(inputs)
        if self._note is not None:
            self._note["inputs"] = {**self._note["inputs"], **plain(inputs)}

    def add_outputs(self, outputs: Mapping[str, Any]) -> None:
        self.outputs = {**(self.outputs or {}), **outputs}

    def write(self) -> None:
        """Write the step's values into the record of the run."""
        if self._note is not None:
            own = {"outputs": self.outputs, "metadata": self.metadata, "tags": self.tags}  # inputs as they were given
            self._note |= {name: plain(value) for name, value in own.items()}
            self._note["error"] = self.error or self._note["error"]

    def begun_by(self, note: dict[str, Any]) -> "RunTree":
        """Take a step that a block of code has begun as this one."""
        self._note, self._began = note, time.perf_counter()
        if self.parent_run is not None:
            note["parent"] = self.parent_run.id
        return self


def get_current_run_tree() -> RunTree | None:
    """Return the innermost step that `traceable` or `trace` made; None outside of them, as in the target itself."""
    tree: RunTree | None = description()
    return tree


@contextmanager
def stepping(tree: RunTree) -> Iterator[RunTree]:
    """Record the block as the step that a tree describes."""
    with step(tree.run_type, tree.name, tree.inputs, tree) as note:
        try:
            yield tree.begun_by(note)
        finally:
            tree.write()
