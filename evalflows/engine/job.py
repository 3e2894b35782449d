"""A job: subjects of one kind that evaluators judge in chunks, within a budget.

An experiment judges answers, a comparison pairs of answers, a trace evaluation items of production. What differs
between them are the methods of `Job`; `judge_chunk.py` judges them all. A job is made once per run and process, from
what is stored, and shared by the chunks that this process works on.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from evalflows.engine.anchors import Anchors, Stretch
from evalflows.engine.results import Columns, EvaluationResult, one_row
from evalflows.engine.run_context import RunContext
from evalflows.engine.running import RunnableEvaluator, limit_rows
from evalflows.engine.workers import Workers
from evalflows.llm.budget import Budget
from evalflows.llm.calls import Endpoint
from evalflows.llm.ledger import Ledger
from evalflows.specs.errors import UNREACHABLE
from evalflows.specs.frozen import dataclass
from evalflows.store.records import JudgementRow, LimitRow, now
from evalflows.store.spool import Spool
from evalflows.store.store import Store

Subject = TypeVar("Subject")
Drawn = tuple[list[int], list[int]]
"""Numbers of subjects: those that an evaluator judges, and those that get a row with the status sampled_out."""


class Loaded(NamedTuple, Generic[Subject]):
    """A chunk as it is judged: its subjects, as they are read, and the judgements that they have already."""

    subjects: Iterable[Subject]
    n_subjects: int
    before: Sequence[JudgementRow]
    others: Sequence[JudgementRow] = ()  # stored rows that are not judgements of its evaluators
    tried: Collection[str] = ()  # ids of those among both that an earlier attempt at the chunk made
    n_done: int = 0  # judgements of subjects that are not among these, since they have all


@dataclass(frozen=True, kw_only=True)
class Job(ABC, Generic[Subject]):
    """What the chunks of one job share in this process, and what judging needs to know of its subjects."""

    called: ClassVar[str]
    """What its subjects are called, in the plural."""
    keeps_rows: ClassVar[bool] = False
    """Whether all judgements of a chunk are needed as rows at its end."""
    shares_metrics: ClassVar[bool] = False
    """Whether two evaluators may give one metric: its end says so."""

    run: RunContext[Any]
    evaluators: Sequence[RunnableEvaluator]
    judging: Workers
    judging_on: Sequence[Endpoint]  # endpoints of the evaluators
    ledger: Ledger
    budget: Budget
    made_at: datetime = field(default_factory=now)
    judged: dict[str, Any] = field(default_factory=dict)
    """By part, what became of chunks that were judged before their turn, as their answers were looked up."""
    given: dict[str, str] = field(default_factory=dict)
    """By metric, the evaluator that gives it."""
    anchors: Sequence[Anchors] = ()

    @property
    def store(self) -> Store:
        return self.run.store

    @property
    @abstractmethod
    def n_chunks(self) -> int:
        """How many chunks share the slots of a provider's limit."""

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """All endpoints that it calls."""
        return self.judging_on

    @abstractmethod
    def check_code(self, *, in_cluster: bool = True) -> None:
        """Raise InputError if its code is another here than where it was started.

        The error says what to do about a process of a cluster, or of the run's machine.
        """

    @abstractmethod
    def stretch(self, chunk: Any) -> Stretch:
        """Return which of its subjects are those of a chunk."""

    @abstractmethod
    def load(self, chunk: Any) -> Loaded[Subject]:
        """Return the subjects of a chunk, and their judgements."""

    @abstractmethod
    def size_of(self, subject: Subject) -> int:
        """Return about how many bytes a subject takes in memory."""

    @abstractmethod
    def id_of(self, subject: Subject) -> str:
        """Return the id of a subject, which its judgements and the model calls made for it have."""

    @abstractmethod
    def owner_of(self, subject: Subject) -> str:
        """Return the id of the experiment, comparison or trace evaluation of a day that a subject belongs to."""

    def is_final(self, row: JudgementRow) -> bool:
        """Return whether a judgement made before stands."""
        return is_final(row)

    @abstractmethod
    def settled(self, evaluator: RunnableEvaluator, subject: Subject) -> list[EvaluationResult]:
        """Return the results of a subject that nobody needs to judge, such as a failed answer; none if it is judged."""

    @abstractmethod
    def arguments(self, requested: frozenset[str], subject: Subject, before: Sequence[JudgementRow]) -> dict[str, Any]:
        """Return the arguments of an evaluator. All objects are new, so that it may modify them."""

    def checked(
        self, evaluator: RunnableEvaluator, subject: Subject, results: list[EvaluationResult]
    ) -> list[EvaluationResult]:
        """Return the results of an evaluator as they count for this kind of subject."""
        return results

    def sampled(self, evaluator: RunnableEvaluator, subjects: Sequence[Subject], numbers: list[int]) -> Drawn:
        """Divide the numbers of subjects by whether the evaluator judges them; by default it judges all."""
        return numbers, []

    @abstractmethod
    def columns(
        self, evaluator: RunnableEvaluator, subjects: Sequence[Subject], results: Sequence[EvaluationResult]
    ) -> Columns:
        """Return the columns of the rows of an evaluator's results, each with its subject."""

    def row_of(self, evaluator: RunnableEvaluator, subject: Subject, result: EvaluationResult) -> JudgementRow:
        """Return the row of one result."""
        return one_row(self.columns(evaluator, [subject], [result]))

    def combined(
        self, chunk: Any, loaded: Loaded[Subject], rows_of: Callable[[str], list[JudgementRow]], spool: Spool
    ) -> Any:
        """Combine the judgements of a chunk that has been judged, and return it, with what became of its subjects.

        `rows_of` returns all judgements of a subject, if the job keeps rows.
        """
        return chunk

    def close(self) -> None:
        """End the processes of its isolated evaluators."""
        for judge in (judge for evaluator in self.evaluators for judge in evaluator.all):
            if judge.isolated is not None:
                judge.isolated.close()

    def limit_rows(self, owner: str) -> list[LimitRow]:
        """Return the history of its endpoints' limiters in this process."""
        unique = {endpoint.name: endpoint for endpoint in self.endpoints}.values()
        return [row for endpoint in unique for row in limit_rows(owner, endpoint, self.made_at)]


def is_final(row: JudgementRow) -> bool:
    """Return whether a judgement is final. That of a missing answer is not: the answer may still arrive."""
    if row.status == "failed":
        return row.error_kind not in UNREACHABLE and row.error_kind != "no_output"
    return row.status != "not_attempted"
