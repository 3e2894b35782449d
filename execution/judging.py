"""Judging: every evaluator judges every answer of a chunk, those that ask for scores last."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from evalflows.execution.cascade import decided_by, is_undecided, with_earlier_cost
from evalflows.execution.evaluation_result import EvaluationResult, run_score
from evalflows.execution.run_evaluator import judge_with, not_sampled, unanswered
from evalflows.execution.running_experiment import RunnableEvaluator
from evalflows.execution.views import evaluator_inputs
from evalflows.execution.workers import Workers
from evalflows.specs.errors import RETRIED_LATER, UNREACHABLE
from evalflows.store.records import ExampleRow, OutputRow, ScoreRow
from evalflows.store.spool import FLUSH_AFTER_S, Spool

Run = tuple[ExampleRow, OutputRow]
"""An answer with its example; of production, an item in the same form."""


def is_final(row: ScoreRow) -> bool:
    """Whether a judgement is final. The score of a missing answer is not: the answer may still arrive."""
    if row.status == "failed":
        return row.error_kind not in UNREACHABLE and row.error_kind != "no_output"
    return row.status != "not_attempted"


class Judging:
    """The judgements of one chunk of an experiment, old and new."""

    def __init__(
        self,
        evaluators: Sequence[RunnableEvaluator],
        workers: Workers,
        spool: Spool,
        before: Iterable[ScoreRow],
        count: Callable[[int], None],
    ) -> None:
        """Take up the judgements that were made before; `count` is told how many are done."""
        self._evaluators, self._workers, self._spool, self._count = evaluators, workers, spool, count
        self._of_run: defaultdict[str, list[ScoreRow]] = defaultdict(list)
        for row in before:
            if is_final(row):
                self._of_run[row.subject_id].append(row)
        self._retryable: list[RunnableEvaluator] = []  # the evaluator of each judgement that a retry may bring

    @property
    def transient(self) -> int:
        """Number of judgements that a retry may bring; evaluators whose breaker gave up do not count."""
        return sum(not evaluator.breaker.gave_up for evaluator in self._retryable)

    async def judge(self, runs: list[Run]) -> None:
        last = [e for e in self._evaluators if e.asks_for_scores]
        for evaluators in ([e for e in self._evaluators if e not in last], last):
            await asyncio.gather(*(self._judge_with(evaluator, runs) for evaluator in evaluators))

    def scores_of(self, run_id: str) -> list[ScoreRow]:
        """Return all judgements of a run so far."""
        return self._of_run[run_id]

    async def _judge_with(self, evaluator: RunnableEvaluator, runs: list[Run]) -> None:
        pending = [run for run in runs if not self._is_judged(run[1], evaluator)]
        self._count(len(runs) - len(pending))
        pending = self._sampled(evaluator, pending)
        tiers = evaluator.tiers or (evaluator,)
        spent: dict[str, EvaluationResult] = {}  # by run: the cost of the tiers that did not decide it
        for tier in tiers:
            undecided: list[Run] | None = None if tier is tiers[-1] else []
            work = self._work(evaluator, tier, spent, undecided)
            # If the breaker is open, try one judgement before all others.
            first = 1 if tier.breaker.is_open else 0
            for batch in (pending[:first], pending[first:]):
                await self._workers.run(work, batch, is_async=tier.bound.is_async)
            pending = undecided or []

    def _is_judged(self, output: OutputRow, evaluator: RunnableEvaluator) -> bool:
        return any(row.evaluator == evaluator.bound.name for row in self._of_run[output.run_id])

    def _sampled(self, evaluator: RunnableEvaluator, runs: list[Run]) -> list[Run]:
        """Return the runs in the evaluator's sample; the others get rows with status sampled_out."""
        if evaluator.sample is None:
            return runs
        for _, output in runs:
            if output.example_id not in evaluator.sample.drawn:
                self._keep(evaluator, self._score(evaluator, output, not_sampled(evaluator)), 0.0)
                self._count(1)
        return [run for run in runs if run[0].example_id in evaluator.sample.drawn]

    def _work(
        self,
        evaluator: RunnableEvaluator,
        tier: RunnableEvaluator,
        spent: dict[str, EvaluationResult],
        undecided: list[Run] | None,
    ) -> Callable[[Run], Coroutine[Any, Any, None]]:
        """Return a function that judges a run with a tier: its rows are stored, or the run is added to `undecided`."""
        requested = tier.requested

        async def work(run: Run) -> None:
            example, output = run
            began = time.perf_counter()
            if output.status != "ok":
                results = unanswered(evaluator, output)
            else:
                results = await self._judged(tier, requested, example, output)
                results = with_earlier_cost(results, spent.get(output.run_id))
                if undecided is not None and is_undecided(tier, results):
                    spent[output.run_id] = results[0]
                    undecided.append(run)
                    return
                results = results if tier is evaluator else decided_by(tier, results)
            for result in results:
                self._keep(tier, self._score(evaluator, output, result), time.perf_counter() - began)
            self._count(1)

        return work

    async def _judged(
        self, evaluator: RunnableEvaluator, requested: frozenset[str], example: ExampleRow, output: OutputRow
    ) -> list[EvaluationResult]:
        available = evaluator_inputs(requested, example, output, self._of_run[output.run_id])
        owner, run = output.experiment_id, output.run_id
        return await judge_with(evaluator, available, spool=self._spool, experiment_id=owner, subject_id=run)

    def _keep(self, evaluator: RunnableEvaluator, row: ScoreRow, elapsed: float) -> None:
        self._retryable += [evaluator] if row.error_kind in RETRIED_LATER else []
        self._of_run[row.subject_id].append(row)
        self._spool.add("scores", row, flush=elapsed > FLUSH_AFTER_S)

    def _score(self, evaluator: RunnableEvaluator, output: OutputRow, result: EvaluationResult) -> ScoreRow:
        return run_score(
            output,
            result,
            evaluator=evaluator.bound.name,
            version=evaluator.version,
            declared_version=evaluator.spec.version,
            sampling_rate=evaluator.sample.rates[output.example_id] if evaluator.sample else None,
        )
