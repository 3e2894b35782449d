"""The test that is running, and what it logs about itself."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from evalflows.compat.langsmith.schemas import Fields
from evalflows.llm.endpoint_errors import MIN_PROVIDER_KEY_CHARS, without_keys
from evalflows.llm.ledger import Recorder, recording
from evalflows.llm.wrapped import plain
from evalflows.specs.errors import InputError, describe
from evalflows.store.records import CallRow, to_json

PASS = "pass"
"""The metric of whether a test passed."""
EXPECTATION = "expectation"
"""The metric of whether all expectations of a test held."""


@dataclass(slots=True, kw_only=True)
class Note:
    """A logged judgement, and the model calls that it took."""

    score: float | bool | None = None
    value: Any = None
    comment: str | None = None
    metadata: Fields | None = None
    higher_is_better: bool = True
    range: tuple[float, float] | None = None
    calls: list[CallRow] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Case:
    """A test that runs, or has run: an example, its answer and its judgements."""

    id: str
    name: str
    suite: str
    version: str = ""  # of the test's code
    inputs: Fields = field(default_factory=dict)
    outputs: Fields = field(default_factory=dict)
    reference_outputs: Fields = field(default_factory=dict)
    metadata: Fields = field(default_factory=dict)
    experiment_metadata: Fields = field(default_factory=dict)
    split: str | None = None
    notes: dict[str, Note] = field(default_factory=dict)
    calls: list[CallRow] = field(default_factory=list)
    steps: list[Fields] = field(default_factory=list)
    latency_s: float = 0.0
    aside: list[CallRow] | None = None  # of a block of judging that is open

    def log(self, key: str, note: Note) -> None:
        """Log a judgement. Raise InputError if the test has one of that key already."""
        if key == PASS:
            raise InputError(f"log_feedback: key: got {PASS!r}, wanted another: the test's own result has it")
        if key in self.notes:
            raise InputError(f"log_feedback: key {key!r}: logged twice in one test, wanted one score for each key")
        self.notes[key] = note
        if self.aside is not None:
            note.calls, self.aside[:] = list(self.aside), []

    def expect(self, held: bool, comment: str) -> None:
        """Log whether an expectation held; the score is that of the first that did not, else 1."""
        before = self.notes.get(EXPECTATION)
        if before is None or before.score:
            comments = [before.comment, comment] if before and held and before.comment else [comment]
            self.notes[EXPECTATION] = Note(score=held, comment="; ".join(comments))

    @property
    def result(self) -> str:
        """Whether it passed, with its feedback and time, or why not."""
        passed, *others = self.notes.items()
        feedback = [f"{key} {note.value if note.score is None else f'{note.score:g}'}" for key, note in others]
        said = ", ".join([*feedback, f"{self.latency_s:.2f} s"])
        return f"{'passed' if passed[1].score else 'failed'}  {self.name}  {said}" + (
            f"  {passed[1].comment}" if passed[1].comment else ""
        )

    def finish(self, error: BaseException | None) -> None:
        """Note whether the test passed, and remove keys of providers from what it logged."""
        self.notes = {PASS: Note(score=error is None, comment=None if error is None else describe(error)), **self.notes}
        for name in ("inputs", "outputs", "reference_outputs", "steps"):
            text = to_json(plain(getattr(self, name)), mend=True)
            setattr(self, name, json.loads(without_keys(text, MIN_PROVIDER_KEY_CHARS)))


_running: list[Case] = []
"""The last is the current one: a test may run pytest itself. Not a context variable: async tests have contexts of their
own."""


def current_case(where: str) -> Case:
    """Return the running test's case. Raise InputError outside of marked tests."""
    if not _running:
        raise InputError(f"{where}: called outside of a test, wanted it in one marked @pytest.mark.langsmith")
    return _running[-1]


def case_or_none() -> Case | None:
    return _running[-1] if _running else None


@contextmanager
def running(case: Case) -> Iterator[Case]:
    """Run the block as this case: its model calls and steps are recorded."""
    recorder = Recorder(keep=case.calls.append, steps=case.steps)
    _running.append(case)
    began = time.perf_counter()
    try:
        with recording(recorder):
            yield case
    finally:
        case.latency_s = time.perf_counter() - began
        _running.remove(case)


@contextmanager
def judging(case: Case) -> Iterator[None]:
    """Run the block apart from the answer: its calls belong to the judgements that it logs."""
    outer, case.aside = case.aside, []
    try:
        with recording(Recorder(keep=case.aside.append)):
            yield
    finally:
        case.calls.extend(case.aside)  # those of no judgement
        case.aside = outer
