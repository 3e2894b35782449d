"""Pairwise comparison: every evaluator judges which answer of each pair in a chunk is better."""

import asyncio
import time
from collections.abc import Iterable

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.evaluators.call import offer_pair
from evalflows.evaluators.preference import Place
from evalflows.evaluators.subject import RunView
from evalflows.execution.evaluation_result import EvaluationResult, failed_result, preference_columns
from evalflows.execution.pair_chunks import (
    OTHER,
    PairChunk,
    PairTrial,
    Side,
    in_order,
    pair_chunks,
    trials_of,
    winning_side,
)
from evalflows.execution.progress import tally
from evalflows.execution.run_evaluator import judge_with
from evalflows.execution.running_comparison import RunningComparison, running_comparison
from evalflows.execution.running_experiment import RunnableEvaluator
from evalflows.execution.views import example_view, run_view
from evalflows.llm import loop
from evalflows.specs.errors import RETRIED_LATER, UNREACHABLE
from evalflows.store.queries.comparisons import judgement_id
from evalflows.store.records import ComparisonRow, OutputRow, derived_id
from evalflows.store.spool import FLUSH_AFTER_S, Spool
from evalflows.tasks.provider_limit import within_provider_limits
from evalflows.tasks.retries import admitted, awaited, is_last_attempt, only_transient, retry_later
from evalflows.tasks.taken_up import in_any_process

FAILED_OUTPUT = "failed_output"
"""`decided_by` of a pair with a failed run, for which no evaluator is called."""


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=only_transient,
    task_run_name="compare-{chunk.part}",
)
@in_any_process
def compare_chunk(chunk: PairChunk) -> PairChunk:
    """Judge the pairs of a chunk that have no judgement yet.

    Raise TransientFailuresError if transient failures remain and Prefect will retry.
    """
    comparison, last = running_comparison(chunk.comparison_id), is_last_attempt()
    trials = list(trials_of(chunk, comparison.spec, comparison.examples))
    before: list[ComparisonRow] = comparison.store.read("comparisons", chunk.comparison_id, [chunk.part])
    with (
        admitted([chunk], "judgements", awaited(comparison.evaluators)),
        within_provider_limits(
            comparison.judging_on, len(trials) * len(comparison.evaluators), len(list(pair_chunks(comparison.row)))
        ),
        Spool(comparison.store, chunk.comparison_id, chunk.part) as spool,
    ):
        comparing = _Comparing(comparison, chunk, spool, before)
        loop.run(comparing.compare(trials))
    if comparing.transient and not last:
        text = f"{comparing.transient} judgements of {len(trials)} pairs failed transiently"
        retry_later([(chunk, comparing.transient)], "judgements", text)
    return chunk


def is_final(row: ComparisonRow) -> bool:
    """Whether a judgement is final. A missing answer may still come."""
    if row.status == "failed":
        return row.error_kind not in UNREACHABLE
    return row.status != "not_attempted"


class _Comparing:
    """The judgements of one chunk, old and new."""

    def __init__(
        self, comparison: RunningComparison, chunk: PairChunk, spool: Spool, before: Iterable[ComparisonRow]
    ) -> None:
        self._comparison, self._chunk, self._spool = comparison, chunk, spool
        self._done = {_key(row.evaluator, row) for row in before if is_final(row) and not self._is_recovered(row)}
        self._retryable: list[RunnableEvaluator] = []  # the evaluator of each judgement that a retry may bring

    def _is_recovered(self, row: ComparisonRow) -> bool:
        """Whether a pair was decided by a failed run that has an output by now."""
        runs = (self._comparison.outputs.get(run) for run in (row.left_run_id, row.right_run_id))
        return row.decided_by == FAILED_OUTPUT and all(run is not None and run.status == "ok" for run in runs)

    @property
    def transient(self) -> int:
        """Number of judgements that a retry may bring; evaluators whose breaker gave up do not count."""
        return sum(not evaluator.breaker.gave_up for evaluator in self._retryable)

    async def compare(self, trials: list[PairTrial]) -> None:
        tally.begin(self._chunk, "judgements", 0)
        await asyncio.gather(*(self._compare_with(evaluator, trials) for evaluator in self._comparison.evaluators))

    async def _compare_with(self, evaluator: RunnableEvaluator, trials: list[PairTrial]) -> None:
        pending = [trial for trial in trials if _trial_key(evaluator.bound.name, trial) not in self._done]
        tally.add(self._chunk, "judgements", len(trials) - len(pending))

        async def work(trial: PairTrial) -> None:
            began = time.perf_counter()
            for result in await self._outcomes(evaluator, trial):
                self._keep(evaluator, _row(self._comparison, evaluator, trial, result), time.perf_counter() - began)
            tally.add(self._chunk, "judgements")

        # If the breaker is open, try one judgement before all others.
        first = 1 if evaluator.breaker.is_open else 0
        for batch in (pending[:first], pending[first:]):
            await self._comparison.judging.run(work, batch, is_async=evaluator.bound.is_async)

    async def _outcomes(self, evaluator: RunnableEvaluator, trial: PairTrial) -> list[EvaluationResult]:
        left, right = (self._comparison.outputs.get(run) for run in (trial.left_run, trial.right_run))
        if left is None or right is None or "not_attempted" in (left.status, right.status):
            return [_not_attempted(evaluator)]
        if "failed" in (left.status, right.status):
            return [_by_policy(self._comparison, evaluator, trial, left, right)]
        shown = [self._view(trial, run) for run in in_order(trial.shown_first, left, right)]
        results = await judge_with(
            evaluator,
            offer_pair(example_view(trial.example), *shown),
            spool=self._spool,
            experiment_id=self._chunk.comparison_id,
            subject_id=derived_id(trial.left_run, trial.right_run, trial.shown_first),
        )
        return [self._checked(evaluator, result) for result in results]

    def _view(self, trial: PairTrial, output: OutputRow) -> RunView:
        run = run_view(output, example_view(trial.example).inputs)
        experiment = self._comparison.experiments[output.experiment_id]
        run.experiment, run.target = experiment.name, experiment.target
        if not self._comparison.spec.load_nested:
            run.steps = []
        return run

    def _checked(self, evaluator: RunnableEvaluator, result: EvaluationResult) -> EvaluationResult:
        """Return the result, failed if it has the name of an item metric: tables could not tell the two apart."""
        key = result.metric
        if key in self._comparison.item_metrics:
            error = f"returned the key {key!r}, which is an item metric; wanted another, such as pairwise_{key}"
            failed = failed_result(evaluator.bound.name, "bad_return", error, result.attempts)
            return failed._replace(judge_model=result.judge_model, usage=result.usage)
        if result.shown_first == "second" and self._comparison.spec.both_orders:
            return _other_order_only(result, evaluator.bound.name)
        return result

    def _keep(self, evaluator: RunnableEvaluator, row: ComparisonRow, elapsed: float) -> None:
        self._retryable += [evaluator] if row.error_kind in RETRIED_LATER else []
        self._spool.add("comparisons", row, flush=elapsed > FLUSH_AFTER_S)


def _key(evaluator: str, row: ComparisonRow) -> tuple[str, ...]:
    return evaluator, row.left_run_id, row.right_run_id, row.shown_first


def _trial_key(evaluator: str, trial: PairTrial) -> tuple[str, ...]:
    return evaluator, trial.left_run, trial.right_run, trial.shown_first


def _not_attempted(evaluator: RunnableEvaluator) -> EvaluationResult:
    """Return a missing result: a run was never made, so its quality is unknown."""
    error = "no output to compare: a run was not attempted"
    return failed_result(evaluator.bound.name, "no_output", error, attempts=0)._replace(status="not_attempted")


def _by_policy(
    comparison: RunningComparison, evaluator: RunnableEvaluator, trial: PairTrial, left: OutputRow, right: OutputRow
) -> EvaluationResult:
    """Return the result of a pair with a failed run according to the policy, without calling an evaluator."""
    failed = [(side, run) for side, run in (("left", left), ("right", right)) if run.status == "failed"]
    names = {identity: experiment.name for identity, experiment in comparison.experiments.items()}
    comment = "; ".join(f"{names[run.experiment_id]} failed: {run.error or 'no error'}" for _, run in failed)
    left_out = EvaluationResult(
        metric=evaluator.bound.name, status="not_applicable", attempts=0, decided_by=FAILED_OUTPUT, comment=comment
    )
    if comparison.spec.failed_output == "left_out":
        return left_out
    winner: Place = "second" if failed[0][0] == trial.shown_first else "first"
    return left_out._replace(status="scored", winner="tie" if len(failed) == 2 else winner)


def _other_order_only(result: EvaluationResult, evaluator: str) -> EvaluationResult:
    """Return the result of a trial whose verdict was recorded for the other order only.

    If that order is known, this one is missing. Otherwise the verdict belongs to the pair, and counts once.
    """
    if result.order_status == "known":
        error = "recorded in the other order only; wanted a verdict in both, or both_orders: false"
        return failed_result(evaluator, "raised", error)
    comment = "recorded once, in no known order"
    return result._replace(winner=None, scores=None, shown_first=None, status="sampled_out", comment=comment)


def _row(
    comparison: RunningComparison, evaluator: RunnableEvaluator, trial: PairTrial, result: EvaluationResult
) -> ComparisonRow:
    """Return the row of one judgement, with winner and scores mapped back to the experiments."""
    left, right = in_order(trial.shown_first, *(result.scores or (None, None)))
    version, shown_first = evaluator.version, _shown_first(trial, result.shown_first)
    runs = (trial.left_run, trial.right_run, shown_first)
    return ComparisonRow(
        judgement_id=judgement_id(comparison.row.comparison_id, result.metric, *runs, version),
        comparison_id=comparison.row.comparison_id,
        example_id=trial.example.example_id,
        repetition=trial.repetition,
        left_experiment_id=trial.left_experiment,
        right_experiment_id=trial.right_experiment,
        left_run_id=trial.left_run,
        right_run_id=trial.right_run,
        shown_first=shown_first,
        left_score=left,
        right_score=right,
        evaluator=evaluator.bound.name,
        evaluator_version=version,
        declared_version=evaluator.spec.version,
        winner=winning_side(result.winner, trial.shown_first),
        **preference_columns(result),
    )


def _shown_first(trial: PairTrial, place: str | None) -> Side:
    """Return which side was shown first; a recorded verdict may be for the other order."""
    return OTHER[trial.shown_first] if place == "second" else trial.shown_first
