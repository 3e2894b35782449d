"""One judgement: call an evaluator, and turn whatever it does into results."""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from inspect import isawaitable
from typing import Any

from evalflows.evaluators.preference import Preference
from evalflows.evaluators.returned import read_returned
from evalflows.evaluators.score import Judgement
from evalflows.execution.evaluation_result import EvaluationResult, failed_result, result_of_preference, result_of_score
from evalflows.execution.isolation.async_timeout import call_within
from evalflows.execution.running_experiment import RunnableEvaluator
from evalflows.execution.workers import run_sync
from evalflows.llm import loop
from evalflows.llm.breaker import COUNTED
from evalflows.llm.faults import fault_of
from evalflows.llm.recorder import Recorder, recording
from evalflows.llm.usage import NO_USAGE, UNRECORDED
from evalflows.specs.errors import CallError, StorageError
from evalflows.specs.score_config import ScoreConfigSpec
from evalflows.store.records import OutputRow
from evalflows.store.spool import Spool

MAX_FALLBACK_THREADS = 64
"""Maximum number of sync fallbacks that run at the same time in this process."""


async def judge_with(
    evaluator: RunnableEvaluator, available: Mapping[str, Any], *, spool: Spool, experiment_id: str, subject_id: str
) -> list[EvaluationResult]:
    """Call an evaluator on one subject, and return one result per metric; the first has the cost of all.

    Its model calls are stored in the spool and charged to the experiment.
    """
    recorder, began = _recorder(evaluator, spool, experiment_id, subject_id), time.perf_counter()
    with recording(recorder):
        outcomes = await _outcomes(evaluator, available)
        if evaluator.fallback and all(is_down(outcome) for outcome in outcomes):
            outcomes = await _with_fallback(evaluator.fallback, available, outcomes, evaluator.bound.is_async)
    return _with_cost(evaluator, outcomes, recorder, time.perf_counter() - began)


def judge_by_rule(
    rule: RunnableEvaluator, available: Mapping[str, Any], *, spool: Spool, experiment_id: str, subject_id: str
) -> list[EvaluationResult]:
    """Do the same for a rule, without coroutines, which take longer than most rules."""
    recorder, began = _recorder(rule, spool, experiment_id, subject_id), time.perf_counter()
    with recording(recorder):
        outcomes = _outcomes_of_rule(rule, available)
    return _with_cost(rule, outcomes, recorder, time.perf_counter() - began)


def _recorder(evaluator: RunnableEvaluator, spool: Spool, experiment_id: str, subject_id: str) -> Recorder:
    return Recorder(
        keep=spool.add_call,
        check=spool.check,
        experiment_id=experiment_id,
        subject_id=subject_id,
        evaluator=evaluator.bound.name,
        budget=evaluator.budget,
    )


def is_down(outcome: EvaluationResult) -> bool:
    """Whether a judgement failed or was not attempted because its endpoint is down."""
    return outcome.error_kind in COUNTED | {"stopped"}


async def _with_fallback(
    fallback: RunnableEvaluator, available: Mapping[str, Any], first: list[EvaluationResult], first_is_async: bool
) -> list[EvaluationResult]:
    """Return the fallback's results; if it is down too, the first ones with both errors."""
    outcomes = await _call_fallback(fallback, available, is_async=first_is_async)
    name = fallback.spec.use
    if all(is_down(outcome) for outcome in outcomes):
        return [
            result._replace(error=f"{result.error}; fallback {name} also failed: {outcomes[0].error}")
            for result in first
        ]
    return [outcome._replace(decided_by=f"fallback {name}") for outcome in outcomes]


async def _call_fallback(
    fallback: RunnableEvaluator, available: Mapping[str, Any], *, is_async: bool
) -> list[EvaluationResult]:
    """Call the fallback from where the first evaluator ran: on the event loop if that is async, else on a thread.

    A sync fallback would block the loop that makes its calls, so it runs on a thread; an async one needs the loop.
    """
    if fallback.bound.is_async == is_async:
        return await _outcomes(fallback, available)
    if fallback.bound.is_async:
        return loop.run(_outcomes(fallback, available))
    work = partial(copy_context().run, run_sync, _outcomes(fallback, available))
    return await asyncio.get_running_loop().run_in_executor(_threads(), work)


@cache
def _threads() -> ThreadPoolExecutor:
    """Threads of sync fallbacks. The loop's own threads would deadlock: they resolve addresses for the same calls."""
    return ThreadPoolExecutor(MAX_FALLBACK_THREADS, thread_name_prefix="evalflows-fallbacks")


def unanswered(evaluator: RunnableEvaluator, output: OutputRow) -> list[EvaluationResult]:
    """Return the result for a run without an answer: an error, at no cost."""
    error = f"no output to judge: {output.error or output.status}"
    result = failed_result(evaluator.bound.name, "no_output", error)
    return [result._replace(status="not_attempted") if output.status == "not_attempted" else result]


def not_sampled(evaluator: RunnableEvaluator) -> EvaluationResult:
    """Return the result for a run that is not in the evaluator's sample."""
    return EvaluationResult(metric=evaluator.bound.name, status="sampled_out", attempts=0)


def _with_cost(
    evaluator: RunnableEvaluator, outcomes: list[EvaluationResult], recorder: Recorder, elapsed: float
) -> list[EvaluationResult]:
    """Add the cost of a judgement to its first result only, so that sums are right."""
    judge_model, attempts, usage = None, 1, UNRECORDED if evaluator.may_have_called else NO_USAGE
    if recorder.has_calls:
        usage = recorder.totals()
    if recorder.answered:
        judge_model, attempts = ", ".join(recorder.models) or None, recorder.attempts
    costed = []
    for outcome in outcomes:
        tried = attempts if outcome.attempts is None else outcome.attempts
        took = elapsed if outcome.status in ("scored", "not_applicable") else None
        costed.append(outcome.with_cost(judge_model, tried, took, usage))
        usage = NO_USAGE
    return costed


async def _outcomes(evaluator: RunnableEvaluator, available: Mapping[str, Any]) -> list[EvaluationResult]:
    """Call an evaluator unless its breaker is open."""
    try:
        is_trial = evaluator.breaker.enter()
    except CallError as error:
        return [failed_result(evaluator.bound.name, error.kind, str(error), attempts=0)]
    arguments = {
        **available,
        "complete": _blocking(evaluator, evaluator.complete),
        "embed": _blocking(evaluator, evaluator.embed),
    }
    outcomes = await _called(evaluator, arguments)
    evaluator.breaker.leave(is_trial, outcomes[0].error_kind, outcomes[0].error)
    return outcomes


async def _called(evaluator: RunnableEvaluator, available: Mapping[str, Any]) -> list[EvaluationResult]:
    try:
        returned = await _returned(evaluator, available)
    except (Exception, SystemExit) as error:  # the user's code may exit; the run goes on
        return [_raised(evaluator, error)]
    return _results(evaluator, returned, available)


def _outcomes_of_rule(rule: RunnableEvaluator, available: Mapping[str, Any]) -> list[EvaluationResult]:
    """Call a rule unless its breaker is open."""
    try:
        is_trial = rule.breaker.enter()
    except CallError as error:
        return [failed_result(rule.bound.name, error.kind, str(error), attempts=0)]
    try:
        returned = rule.bound.call(available)
    except (Exception, SystemExit) as error:
        outcomes = [_raised(rule, error)]
    else:
        outcomes = _results_of_rule(rule, returned, available)
    rule.breaker.leave(is_trial, outcomes[0].error_kind, outcomes[0].error)
    return outcomes


def _results_of_rule(rule: RunnableEvaluator, returned: object, available: Mapping[str, Any]) -> list[EvaluationResult]:
    """Return the results of what a rule returned. Those of yes, and of no without a comment, are made once."""
    if not isinstance(returned, bool):
        return _results(rule, returned, available)
    if (known := rule.yes_and_no.get(returned)) is not None:
        return known
    results = _results(rule, returned, available)
    if all(result.comment is None and result.error is None for result in results):
        rule.yes_and_no[returned] = results
    return results


def _raised(evaluator: RunnableEvaluator, error: Exception | SystemExit) -> EvaluationResult:
    """Return the result of an evaluator that raised. Raise a StorageError again: it is no fault of the item."""
    if isinstance(error, StorageError):
        raise error
    fault = fault_of(error)
    return failed_result(evaluator.bound.name, fault.kind, str(fault), fault.attempts, fault.trace)


def _results(evaluator: RunnableEvaluator, returned: object, available: Mapping[str, Any]) -> list[EvaluationResult]:
    """Return the results of what an evaluator returned."""
    try:
        return [_result(value, evaluator) for value in read_returned(evaluator.bound, returned, available)]
    except Exception as error:  # also raised by a property of the user's object
        fault = fault_of(error)
        return [failed_result(evaluator.bound.name, "bad_return", str(fault), trace=fault.trace)]


async def _returned(evaluator: RunnableEvaluator, available: Mapping[str, Any]) -> Any:
    """Return what the evaluator returns, within its time limit, if any."""
    if evaluator.isolated is not None:
        return evaluator.isolated.judge(available, {name: available[name] for name in ("complete", "embed")})
    if evaluator.bound.is_async and evaluator.spec.timeout_s is not None:
        return await call_within(evaluator.spec.timeout_s, evaluator.bound, available)
    returned = evaluator.bound.call(available)
    return await returned if evaluator.bound.is_async and isawaitable(returned) else returned


def _result(returned: Judgement | Preference, evaluator: RunnableEvaluator) -> EvaluationResult:
    """Return the result of one score or preference. Raise ValueError if it is out of bounds."""
    if isinstance(returned, Preference):
        return result_of_preference(returned, evaluator.bound.name)
    _check(returned, evaluator)
    return result_of_score(returned)


def _check(judgement: Judgement, evaluator: RunnableEvaluator) -> None:
    if judgement.config_id is not None and judgement.status == "scored":
        _check_config(judgement, evaluator.configs)
    metric = evaluator.metrics.get(judgement.metric)
    if metric and metric.range and judgement.value is not None:
        low, high = metric.range
        if not low <= judgement.value <= high:
            raise ValueError(f"{judgement.metric}: got {judgement.value:g}, wanted {low:g} to {high:g}")


def _check_config(judgement: Judgement, configs: Mapping[str, ScoreConfigSpec]) -> None:
    config = configs.get(judgement.config_id or "")
    if config is None:
        known = ", ".join(configs) or "none"
        raise ValueError(f"config_id {judgement.config_id!r}: wanted one of score_configs: {known}")
    config.check(judgement.metric, judgement.value, judgement.label)


def _blocking(evaluator: RunnableEvaluator, ask: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return the function unchanged for an async evaluator; for a sync one, a version that blocks until the answer."""
    if ask is None or evaluator.bound.is_async:
        return ask
    return lambda *args, **kwargs: loop.run(ask(*args, **kwargs))
