"""Item evaluation: every evaluator judges every answer of a chunk."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.execution.cascade import decided_by, is_undecided, with_earlier_cost
from evalflows.execution.chunks import Chunk, n_chunks
from evalflows.execution.evaluation_result import EvaluationResult, run_score
from evalflows.execution.progress import tally
from evalflows.execution.run_evaluator import judge_with, not_sampled, unanswered
from evalflows.execution.running_experiment import RunnableEvaluator, RunningExperiment, running_experiment
from evalflows.execution.views import evaluator_inputs
from evalflows.llm import loop
from evalflows.specs.errors import UNREACHABLE
from evalflows.store.examples import in_blocks, size_of
from evalflows.store.records import ExampleRow, OutputRow, ScoreRow
from evalflows.store.schemas import to_rows
from evalflows.store.spool import Spool
from evalflows.tasks.execute import FLUSH_AFTER_S, RETRYABLE
from evalflows.tasks.provider_limit import within_provider_limits
from evalflows.tasks.retries import await_breakers, is_last_attempt, only_transient, retry_later

Run = tuple[ExampleRow, OutputRow]


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=only_transient,
    task_run_name="evaluate-{chunk.part}",
)
def evaluate_chunk(chunk: Chunk) -> Chunk:
    """Judge the runs of a chunk that have no judgement yet. Evaluators that ask for scores run last.

    Raise TransientFailuresError if transient failures remain and Prefect will retry.
    """
    experiment, last = running_experiment(chunk.experiment_id), is_last_attempt()
    await_breakers([chunk], "judgements", [evaluator.breaker for evaluator in experiment.evaluators])
    scores: list[ScoreRow] = experiment.store.read("scores", chunk.experiment_id, [chunk.part])
    n_runs = chunk.stop - chunk.start
    with (
        within_provider_limits(experiment.judging_on, n_runs * len(experiment.evaluators), n_chunks(experiment.row)),
        Spool(experiment.store, chunk.experiment_id, chunk.part) as spool,
    ):
        tally.begin(chunk, "judgements", 0)
        judging = _Judging(experiment, chunk, spool, scores)
        for runs in in_blocks(_runs(experiment, chunk), _size):
            loop.run(judging.judge(runs))
    if judging.transient and not last:
        text = f"{judging.transient} judgements of {n_runs} answers failed transiently"
        retry_later([(chunk, judging.transient)], "judgements", text)
    return chunk


def _runs(experiment: RunningExperiment, chunk: Chunk) -> Iterator[Run]:
    """Yield the runs of a chunk that were made, with their examples, as they are read."""
    numbers = dict(zip(experiment.examples.ids[chunk.start : chunk.stop], range(chunk.start, chunk.stop), strict=True))
    for data in experiment.store.scan("outputs", chunk.experiment_id, [chunk.part]):
        outputs: list[OutputRow] = to_rows("outputs", data)
        made = [row for row in outputs if row.repetition == chunk.repetition and row.example_id in numbers]
        yield from zip(experiment.examples.rows(numbers[row.example_id] for row in made), made, strict=True)


def _size(run: Run) -> int:
    example, output = run
    return size_of(example) + len(output.outputs or "") + len(output.steps or "")


def is_final(row: ScoreRow) -> bool:
    """Whether a judgement is final. The score of a missing answer is not: the answer may still arrive."""
    if row.status == "failed":
        return row.error_kind not in UNREACHABLE and row.error_kind != "no_output"
    return row.status != "not_attempted"


class _Judging:
    """The judgements of one chunk, old and new."""

    def __init__(self, experiment: RunningExperiment, chunk: Chunk, spool: Spool, before: Iterable[ScoreRow]) -> None:
        self._experiment, self._chunk, self._spool = experiment, chunk, spool
        self._of_run: defaultdict[str, list[ScoreRow]] = defaultdict(list)
        for row in before:
            if is_final(row):
                self._of_run[row.run_id or ""].append(row)
        self._retryable: list[RunnableEvaluator] = []  # the evaluator of each judgement that a retry may bring

    @property
    def transient(self) -> int:
        """Number of judgements that a retry may bring; evaluators whose breaker gave up do not count."""
        return sum(not evaluator.breaker.gave_up for evaluator in self._retryable)

    async def judge(self, runs: list[Run]) -> None:
        last = [e for e in self._experiment.evaluators if e.asks_for_scores]
        for evaluators in ([e for e in self._experiment.evaluators if e not in last], last):
            await asyncio.gather(*(self._judge_with(evaluator, runs) for evaluator in evaluators))

    async def _judge_with(self, evaluator: RunnableEvaluator, runs: list[Run]) -> None:
        pending = [run for run in runs if not self._is_judged(run[1], evaluator)]
        tally.add(self._chunk, "judgements", len(runs) - len(pending))
        pending = self._sampled(evaluator, pending)
        tiers = evaluator.tiers or (evaluator,)
        spent: dict[str, EvaluationResult] = {}  # by run: the cost of the tiers that did not decide it
        for tier in tiers:
            undecided: list[Run] | None = None if tier is tiers[-1] else []
            work = self._work(evaluator, tier, spent, undecided)
            # If the breaker is open, try one judgement before all others.
            first = 1 if tier.breaker.is_open else 0
            for batch in (pending[:first], pending[first:]):
                await self._experiment.judging.run(work, batch, is_async=tier.bound.is_async)
            pending = undecided or []

    def _is_judged(self, output: OutputRow, evaluator: RunnableEvaluator) -> bool:
        return any(row.evaluator == evaluator.bound.name for row in self._of_run[output.run_id])

    def _sampled(self, evaluator: RunnableEvaluator, runs: list[Run]) -> list[Run]:
        """Return the runs in the evaluator's sample; the others get rows with status sampled_out."""
        if evaluator.sample is None:
            return runs
        for _, output in runs:
            if output.example_id not in evaluator.sample.drawn:
                self._keep(evaluator, _score(evaluator, output, not_sampled(evaluator)), 0.0)
                tally.add(self._chunk, "judgements")
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
                self._keep(tier, _score(evaluator, output, result), time.perf_counter() - began)
            tally.add(self._chunk, "judgements")

        return work

    async def _judged(
        self, evaluator: RunnableEvaluator, requested: frozenset[str], example: ExampleRow, output: OutputRow
    ) -> list[EvaluationResult]:
        available = evaluator_inputs(requested, example, output, self._of_run[output.run_id])
        owner, run = output.experiment_id, output.run_id
        return await judge_with(evaluator, available, spool=self._spool, experiment_id=owner, subject_id=run)

    def _keep(self, evaluator: RunnableEvaluator, row: ScoreRow, elapsed: float) -> None:
        self._retryable += [evaluator] if row.error_kind in RETRYABLE else []
        self._of_run[row.run_id or ""].append(row)
        self._spool.add("scores", row, flush=elapsed > FLUSH_AFTER_S)


def _score(evaluator: RunnableEvaluator, output: OutputRow, result: EvaluationResult) -> ScoreRow:
    return run_score(
        output,
        result,
        evaluator=evaluator.bound.name,
        version=evaluator.version,
        declared_version=evaluator.spec.version,
        sampling_rate=evaluator.sample.rates[output.example_id] if evaluator.sample else None,
    )
