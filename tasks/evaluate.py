"""Per-item evaluation: every answer of a chunk is judged by every evaluator."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from llm import loop
from specs.errors import UNREACHABLE
from store.records import ExampleRow, OutputRow, ScoreRow
from store.spool import Spool
from tasks.chunk import Chunk, TransientFailuresError, is_last_attempt, n_chunks, only_transient
from tasks.execute import DEAR_S, MAY_PASS
from tasks.experiment import Experiment, ReadyEvaluator, experiment
from tasks.judge import Fields, judged, not_drawn, run_score, unanswered
from tasks.progress import tally
from tasks.provider_limit import within_provider_limits
from tasks.subject import offered_of_run
from tasks.tiers import decided_by, leaves_open, paid_together

Run = tuple[ExampleRow, OutputRow]


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=only_transient,
    task_run_name="evaluate-{chunk.part}",
)
def evaluate_chunk(chunk: Chunk) -> Chunk:
    """Judge the runs of a chunk that have no judgement yet; composites last, as they ask for the others.

    Raises TransientFailuresError while failures remain that another attempt may cure and Prefect will make one.
    """
    ready, last = experiment(chunk.experiment_id), is_last_attempt()
    examples = {example.example_id: example for example in ready.examples[chunk.start : chunk.stop]}
    outputs: list[OutputRow] = ready.store.read("outputs", chunk.experiment_id, [chunk.part])
    runs = [(examples[row.example_id], row) for row in outputs if in_chunk(row, chunk, examples)]
    scores: list[ScoreRow] = ready.store.read("scores", chunk.experiment_id, [chunk.part])
    with (
        within_provider_limits(ready.judging_on, len(runs) * len(ready.evaluators), n_chunks(ready.row)),
        Spool(ready.store, chunk.experiment_id, chunk.part) as spool,
    ):
        judging = _Judging(ready, chunk, spool, scores)
        loop.run(judging.judge(runs))
    if judging.transient and not last:
        raise TransientFailuresError(f"{judging.transient} judgements of {len(runs)} answers failed for now")
    return chunk


def in_chunk(row: OutputRow, chunk: Chunk, examples: dict[str, ExampleRow]) -> bool:
    return row.repetition == chunk.repetition and row.example_id in examples


def is_settled(row: ScoreRow) -> bool:
    """Whether it is of no use to judge again. A missing answer's score is not settled: the answer may yet come."""
    if row.status == "failed":
        return row.error_kind not in UNREACHABLE and row.error_kind != "no_output"
    return row.status != "not_attempted"


class _Judging:
    """The judgements of one chunk: those from before, and those that come now."""

    def __init__(self, ready: Experiment, chunk: Chunk, spool: Spool, before: Iterable[ScoreRow]) -> None:
        self._ready, self._chunk, self._spool = ready, chunk, spool
        self._of_run: defaultdict[str, list[ScoreRow]] = defaultdict(list)
        for row in before:
            if is_settled(row):
                self._of_run[row.run_id or ""].append(row)
        self._may_pass: list[ReadyEvaluator] = []  # for each judgement that another attempt may bring, who failed

    @property
    def transient(self) -> int:
        """Judgements that another attempt may bring; none of those by whom was found down too often."""
        return sum(not evaluator.breaker.gave_up for evaluator in self._may_pass)

    async def judge(self, runs: list[Run]) -> None:
        tally.begin(self._chunk, "judgements", 0)
        composites = [e for e in self._ready.evaluators if e.asks_for_scores]
        for evaluators in ([e for e in self._ready.evaluators if e not in composites], composites):
            await asyncio.gather(*(self._judge_with(evaluator, runs) for evaluator in evaluators))

    async def _judge_with(self, evaluator: ReadyEvaluator, runs: list[Run]) -> None:
        wanting = [run for run in runs if not self._is_judged(run[1], evaluator)]
        tally.add(self._chunk, "judgements", len(runs) - len(wanting))
        wanting = self._drawn(evaluator, wanting)
        tiers = evaluator.tiers or (evaluator,)
        spent: dict[str, Fields] = {}  # run: what the tiers cost that left it open
        for tier in tiers:
            left: list[Run] | None = None if tier is tiers[-1] else []
            work, trial = self._work(evaluator, tier, spent, left), 1 if tier.breaker.is_open else 0
            # Where it was down, one judgement tells whether it still is.
            for some in (wanting[:trial], wanting[trial:]):
                await self._ready.judging.run(work, some, is_async=tier.bound.is_async)
            wanting = left or []

    def _is_judged(self, output: OutputRow, evaluator: ReadyEvaluator) -> bool:
        return any(row.evaluator == evaluator.bound.name for row in self._of_run[output.run_id])

    def _drawn(self, evaluator: ReadyEvaluator, runs: list[Run]) -> list[Run]:
        """The runs that are in the evaluator's sample; the others get rows that say so."""
        if evaluator.sample is None:
            return runs
        for _, output in runs:
            if output.example_id not in evaluator.sample.drawn:
                self._keep(evaluator, _score(evaluator, output, not_drawn(evaluator)), 0.0)
                tally.add(self._chunk, "judgements")
        return [run for run in runs if run[0].example_id in evaluator.sample.drawn]

    def _work(
        self, evaluator: ReadyEvaluator, tier: ReadyEvaluator, spent: dict[str, Fields], left: list[Run] | None
    ) -> Callable[[Run], Any]:
        """Has a tier judge a run: its rows are kept, or the run goes to `left`. The last tier leaves nothing."""

        asked = tier.asked

        async def work(run: Run) -> None:
            example, output = run
            began = time.perf_counter()
            if output.status != "ok":
                found = unanswered(evaluator, output)
            else:
                found = paid_together(await self._judged(tier, asked, example, output), spent.get(output.run_id))
                if left is not None and leaves_open(tier, found):
                    spent[output.run_id] = found[0]
                    left.append(run)
                    return
                found = found if tier is evaluator else decided_by(tier, found)
            for fields in found:
                self._keep(tier, _score(evaluator, output, fields), time.perf_counter() - began)
            tally.add(self._chunk, "judgements")

        return work

    async def _judged(
        self, evaluator: ReadyEvaluator, asked: frozenset[str], example: ExampleRow, output: OutputRow
    ) -> list[Fields]:
        offered = offered_of_run(asked, example, output, self._of_run[output.run_id])
        of = {"experiment_id": output.experiment_id, "subject_id": output.run_id}
        return await judged(evaluator, offered, spool=self._spool, **of)

    def _keep(self, evaluator: ReadyEvaluator, row: ScoreRow, elapsed: float) -> None:
        self._may_pass += [evaluator] if row.error_kind in MAY_PASS else []
        self._of_run[row.run_id or ""].append(row)
        self._spool.add("scores", row, dear=elapsed > DEAR_S)


def _score(evaluator: ReadyEvaluator, output: OutputRow, fields: Fields) -> ScoreRow:
    names = {"evaluator": evaluator.bound.name, "version": evaluator.version}
    if evaluator.sample is not None:
        fields = fields | {"sampling_rate": evaluator.sample.rates[output.example_id]}
    return run_score(output, **names, declared_version=evaluator.spec.version, **fields)
