"""Judging: every evaluator judges every answer of a chunk, those that ask for scores last.

Rules judge an answer one after another on one thread. Their scores become columns, written once per block, except those
that took long, which are rows on disk at once, like those of judges.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from evalflows.execution.cascade import decided_by, is_undecided, with_earlier_cost
from evalflows.execution.evaluation_result import EvaluationResult, run_score, run_scores
from evalflows.execution.run_evaluator import judge_by_rule, judge_with, not_sampled, unanswered
from evalflows.execution.running_experiment import RunnableEvaluator
from evalflows.execution.views import evaluator_inputs
from evalflows.execution.workers import Workers
from evalflows.specs.errors import RETRIED_LATER, UNREACHABLE
from evalflows.store.records import ExampleRow, OutputRow, ScoreRow
from evalflows.store.spool import FLUSH_AFTER_S, Spool

Work = Callable[["Run"], Coroutine[Any, Any, int]]
"""Judges a run, and returns the number of judgements made: 0 if it is left to the next tier."""

Run = tuple[ExampleRow, OutputRow]
"""An answer with its example; of production, an item in the same form."""


def is_final(row: ScoreRow) -> bool:
    """Whether a judgement is final. The score of a missing answer is not: the answer may still arrive."""
    if row.status == "failed":
        return row.error_kind not in UNREACHABLE and row.error_kind != "no_output"
    return row.status != "not_attempted"


class Judging:
    """The judgements of one chunk of an experiment, old and new."""

    keeps_rows = False
    """Whether all judgements are needed as rows afterwards."""

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
        self._keeps_rows = self.keeps_rows or any(evaluator.asks_for_scores for evaluator in evaluators)
        self._quick: defaultdict[str, list[tuple[OutputRow, EvaluationResult]]] = defaultdict(list)  # by evaluator
        self._retryable: list[RunnableEvaluator] = []  # the evaluator of each judgement that a retry may bring

    @property
    def transient(self) -> int:
        """Number of judgements that a retry may bring; evaluators whose breaker gave up do not count."""
        return sum(not evaluator.breaker.gave_up for evaluator in self._retryable)

    async def judge(self, runs: list[Run]) -> None:
        """Judge runs. What was judged until an exception is stored too."""
        try:
            for last in (False, True):
                evaluators = [e for e in self._evaluators if e.asks_for_scores == last]
                judges = [evaluator for evaluator in evaluators if not evaluator.is_rule]
                rules = self._judge_by_rules([evaluator for evaluator in evaluators if evaluator.is_rule], runs)
                await asyncio.gather(rules, *(self._judge_with(judge, runs) for judge in judges))
        finally:
            self._store_quick()

    def scores_of(self, run_id: str) -> list[ScoreRow]:
        """Return all judgements of a run so far, if rows are kept."""
        return self._of_run[run_id]

    async def _judge_by_rules(self, rules: Sequence[RunnableEvaluator], runs: list[Run]) -> None:
        """Judge each run by all rules in one go: each alone would have to be started for every run."""
        rules_of: defaultdict[int, list[tuple[RunnableEvaluator, frozenset[str]]]] = defaultdict(list)  # by number
        for rule in rules:
            requested = rule.requested
            for number in self._pending(rule, runs):
                rules_of[number].append((rule, requested))

        async def judge(number: int) -> None:
            for rule, requested in rules_of[number]:
                self._judge_by_rule(rule, requested, runs[number])
            self._count(len(rules_of[number]))

        await self._run_all(judge, [*rules_of], rules, is_async=False)

    def _judge_by_rule(self, rule: RunnableEvaluator, requested: frozenset[str], run: Run) -> None:
        example, output = run
        began = time.perf_counter()
        if output.status != "ok":
            results = unanswered(rule, output)
        else:
            available = evaluator_inputs(requested, example, output, self._of_run.get(output.run_id, ()))
            owner, identity = output.experiment_id, output.run_id
            results = judge_by_rule(rule, available, spool=self._spool, experiment_id=owner, subject_id=identity)
        self._keep(rule, rule, output, results, time.perf_counter() - began)

    async def _judge_with(self, evaluator: RunnableEvaluator, runs: list[Run]) -> None:
        pending = [runs[number] for number in self._pending(evaluator, runs)]
        tiers = evaluator.tiers or (evaluator,)
        spent: dict[str, EvaluationResult] = {}  # by run: the cost of the tiers that did not decide it
        for tier in tiers:
            undecided: list[Run] | None = None if tier is tiers[-1] else []
            work = self._work(evaluator, tier, spent, undecided)

            async def judge(run: Run, work: Work = work) -> None:
                self._count(await work(run))

            await self._run_all(judge, pending, [tier], is_async=tier.bound.is_async)
            pending = undecided or []

    async def _run_all(
        self,
        work: Callable[[Any], Coroutine[Any, Any, None]],
        items: Sequence[Any],
        judges: Sequence[RunnableEvaluator],
        *,
        is_async: bool,
    ) -> None:
        """Do the work for all items. If a breaker is open, try one before all others."""
        first = 1 if any(judge.breaker.is_open for judge in judges) else 0
        for batch in (items[:first], items[first:]):
            await self._workers.run(work, batch, is_async=is_async)

    def _pending(self, evaluator: RunnableEvaluator, runs: list[Run]) -> list[int]:
        """Return the numbers of the runs that the evaluator has to judge."""
        numbers = [*range(len(runs))]
        if self._of_run:
            numbers = [number for number in numbers if not self._is_judged(runs[number][1], evaluator)]
        self._count(len(runs) - len(numbers))
        return self._sampled(evaluator, runs, numbers)

    def _is_judged(self, output: OutputRow, evaluator: RunnableEvaluator) -> bool:
        return any(row.evaluator == evaluator.bound.name for row in self._of_run.get(output.run_id, ()))

    def _sampled(self, evaluator: RunnableEvaluator, runs: list[Run], numbers: list[int]) -> list[int]:
        """Return those of the runs that are in the evaluator's sample; the others get rows with status sampled_out."""
        if evaluator.sample is None:
            return numbers
        drawn = [number for number in numbers if runs[number][0].example_id in evaluator.sample.drawn]
        for number in {*numbers} - {*drawn}:
            self._keep(evaluator, evaluator, runs[number][1], [not_sampled(evaluator)], 0.0)
        self._count(len(numbers) - len(drawn))
        return drawn

    def _work(
        self,
        evaluator: RunnableEvaluator,
        tier: RunnableEvaluator,
        spent: dict[str, EvaluationResult],
        undecided: list[Run] | None,
    ) -> Work:
        """Return a function that judges a run with a tier: its rows are stored, or the run is added to `undecided`."""
        requested = tier.requested

        async def work(run: Run) -> int:
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
                    return 0
                results = results if tier is evaluator else decided_by(tier, results)
            self._keep(evaluator, tier, output, results, time.perf_counter() - began)
            return 1

        return work

    async def _judged(
        self, evaluator: RunnableEvaluator, requested: frozenset[str], example: ExampleRow, output: OutputRow
    ) -> list[EvaluationResult]:
        self._spool.check()
        available = evaluator_inputs(requested, example, output, self._of_run.get(output.run_id, ()))
        owner, run = output.experiment_id, output.run_id
        return await judge_with(evaluator, available, spool=self._spool, experiment_id=owner, subject_id=run)

    def _keep(
        self,
        evaluator: RunnableEvaluator,
        tier: RunnableEvaluator,
        output: OutputRow,
        results: Sequence[EvaluationResult],
        elapsed: float,
    ) -> None:
        """Keep results. Those that took long are on disk when this returns; the others are cheaper to redo."""
        if results[0].error_kind is not None:
            self._retryable += [tier for result in results if result.error_kind in RETRIED_LATER]
        if not self._keeps_rows and elapsed <= FLUSH_AFTER_S:
            quick = self._quick[evaluator.bound.name]
            for result in results:
                quick.append((output, result))
            return
        for result in results:
            row = self._score(evaluator, output, result)
            self._of_run[row.subject_id].append(row)
            self._spool.add("scores", row, flush=elapsed > FLUSH_AFTER_S)

    def _store_quick(self) -> None:
        """Add the quick results to the part as columns. A thread that still works after an interrupt may add more."""
        for evaluator in self._evaluators:
            if found := self._quick.pop(evaluator.bound.name, None):
                outputs, results = zip(*found, strict=True)
                columns = run_scores(outputs, results, **self._by(evaluator, outputs))
                self._spool.add_columns("scores", columns)

    def _score(self, evaluator: RunnableEvaluator, output: OutputRow, result: EvaluationResult) -> ScoreRow:
        return run_score(output, result, **self._by(evaluator, [output]))

    def _by(self, evaluator: RunnableEvaluator, outputs: Sequence[OutputRow]) -> dict[str, Any]:
        sample = evaluator.sample
        return {
            "evaluator": evaluator.bound.name,
            "version": evaluator.version,
            "declared_version": evaluator.spec.version,
            "sampling_rates": None if sample is None else [sample.rates[output.example_id] for output in outputs],
        }
