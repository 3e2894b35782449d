"""Which calls were made for the item at hand: a context variable that every call finds by itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from specs.protocols import Completion
from store.records import CallRow


@dataclass(slots=True, kw_only=True)
class Recorder:
    """The calls of one item: of one target's answer, or of one evaluator's judgement."""

    keep: Callable[[CallRow], None]  # onto the disk, before the answer is used
    experiment_id: str | None = None
    subject_id: str | None = None
    evaluator: str | None = None
    completions: list[Completion] = field(default_factory=list)
    failed: list[float | None] = field(default_factory=list)  # what each failed call cost
    steps: list[dict[str, Any]] = field(default_factory=list)  # what the user's own code called, in order

    @property
    def attempts(self) -> int:
        return max((completion.attempts for completion in self.completions), default=1)

    def totals(self) -> dict[str, Any]:
        """calls, calls_cached, tokens_in, tokens_out, cost_usd; tokens are null if no call told them,
        the cost is null if any paid call's is not known."""
        paid = [completion for completion in self.completions if not completion.cached]
        costs = [*(completion.cost_usd for completion in paid), *self.failed]
        return {
            "calls": len(paid) + len(self.failed),
            "calls_cached": len(self.completions) - len(paid),
            "tokens_in": _sum([completion.tokens_in for completion in self.completions]),
            "tokens_out": _sum([completion.tokens_out for completion in self.completions]),
            "cost_usd": None if None in costs else sum(cost for cost in costs if cost is not None),
        }


_current: ContextVar[Recorder | None] = ContextVar("evalflows_recorder", default=None)


def current() -> Recorder | None:
    """The recorder of the item at hand, if there is one."""
    return _current.get()


@contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """Calls made in this block, and in what it starts, belong to the recorder."""
    token = _current.set(recorder)
    try:
        yield recorder
    finally:
        _current.reset(token)


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
