"""One judgement: an evaluator is called on one subject, and what it returns becomes results, one per metric.

An evaluator is code of the user, so it may raise, exit, or return what nobody can read. Then the result has an error
and no value, never a zero, and the run goes on. Only an interrupt, and an error of the store, end it.
"""

# A rule is an evaluator that is not async and calls no model. It takes the same steps without coroutines, which take
# longer than most rules. Other sync evaluators run on threads of their own, from which they wait for the loop of calls.

import time
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from evalflows.engine.fallback import is_down, judge_by_fallback
from evalflows.engine.results import EvaluationResult, failed_result, result_of_preference, result_of_score
from evalflows.engine.running import RunnableEvaluator
from evalflows.engine.score_checks import check_score
from evalflows.engine.time_limits import call_within
from evalflows.evaluators.binding import read_returned
from evalflows.evaluators.score import Judgement, Preference
from evalflows.llm import loop
from evalflows.llm.faults import fault_of
from evalflows.llm.ledger import NO_USAGE, UNRECORDED, Recorder, has_called, recording
from evalflows.specs.errors import CallError, ErrorKind, StorageError
from evalflows.store.spool import Spool


async def judge_with(
    evaluator: RunnableEvaluator, available: Mapping[str, Any], *, spool: Spool, experiment_id: str, subject_id: str
) -> list[EvaluationResult]:
    """Judge one subject with an evaluator, and return one result per metric; the first has the cost of all.

    `available` has the arguments that the evaluator may request. Its model calls are stored in the spool and charged to
    the experiment. If its endpoint is down, its fallback judges.
    """
    recorder, began = _recorder(evaluator, spool, experiment_id, subject_id), time.perf_counter()
    with recording(recorder):
        results = await _call(evaluator, available)
        if evaluator.fallback and all(is_down(result) for result in results):
            first_is_async = evaluator.bound.is_async
            results = await judge_by_fallback(
                _call, evaluator.fallback, available, results, first_is_async=first_is_async
            )
    return _with_cost(evaluator, results, recorder, time.perf_counter() - began)


def judge_by_rule(
    rule: RunnableEvaluator, available: Mapping[str, Any], *, spool: Spool, experiment_id: str, subject_id: str
) -> list[EvaluationResult]:
    """Judge one subject by a rule: see `judge_with`."""
    recorder, began = _recorder(rule, spool, experiment_id, subject_id), time.perf_counter()
    with recording(recorder):
        results = _call_rule(rule, available)
    return _with_cost(rule, results, recorder, time.perf_counter() - began)


async def _call(evaluator: RunnableEvaluator, available: Mapping[str, Any]) -> list[EvaluationResult]:
    """Call an evaluator unless its breaker is open, and return its results."""
    try:
        is_trial = evaluator.breaker.enter()
    except CallError as error:
        return [_refused(evaluator, error)]
    models = {name: _blocking(evaluator, getattr(evaluator, name)) for name in ("complete", "embed")}
    available = {**available, **models}
    try:
        if evaluator.isolated is not None:  # a process of its own, which ends it after its time
            returned: Any = evaluator.isolated.judge(available, models)
        elif evaluator.bound.is_async and evaluator.spec.timeout_s is not None:
            returned = await call_within(evaluator.spec.timeout_s, evaluator.bound, available)
        else:
            returned = evaluator.bound.call(available)
            if isawaitable(returned):
                returned = await returned if evaluator.bound.is_async else loop.run(_awaited(returned))
    except BaseException as error:  # the user's code may exit, or cancel itself; the run goes on
        return _leave(evaluator, is_trial, [_raised(evaluator, error)])
    return _leave(evaluator, is_trial, _results(evaluator, returned, available))


def _call_rule(rule: RunnableEvaluator, available: Mapping[str, Any]) -> list[EvaluationResult]:
    """Call a rule unless its breaker is open, and return its results."""
    try:
        is_trial = rule.breaker.enter()
    except CallError as error:
        return [_refused(rule, error)]
    try:
        returned = rule.bound.call(available)
        if isawaitable(returned):  # of a lambda that calls an async function
            returned = loop.run(_awaited(returned))
    except BaseException as error:
        return _leave(rule, is_trial, [_raised(rule, error)])
    return _leave(rule, is_trial, _results_of_rule(rule, returned, available))


def _results(evaluator: RunnableEvaluator, returned: object, available: Mapping[str, Any]) -> list[EvaluationResult]:
    """Return the results of what an evaluator returned: of each score or preference in it one."""
    try:
        return [_result(value, evaluator) for value in read_returned(evaluator.bound, returned, available)]
    except Exception as error:  # also raised by a property of the user's object
        fault = fault_of(error)
        return [failed_result(evaluator.bound.name, "bad_return", str(fault), trace=fault.trace)]


def _results_of_rule(rule: RunnableEvaluator, returned: object, available: Mapping[str, Any]) -> list[EvaluationResult]:
    """Return the results of what a rule returned. Those of yes and no without a comment are made once, and copied."""
    if not isinstance(returned, bool):
        return _results(rule, returned, available)
    if (known := rule.yes_and_no.get(returned)) is not None:
        return known
    results = _results(rule, returned, available)
    if all(result.comment is None and result.error is None for result in results):
        rule.yes_and_no[returned] = results
    return results


def _result(returned: Judgement | Preference, evaluator: RunnableEvaluator) -> EvaluationResult:
    """Return the result of one score or preference. Raise ValueError if it is out of bounds."""
    if isinstance(returned, Preference):
        return result_of_preference(returned, evaluator.bound.name)
    return result_of_score(check_score(returned, evaluator))


def _raised(evaluator: RunnableEvaluator, error: BaseException) -> EvaluationResult:
    """Return the result of an evaluator that raised. Raise what is no fault of the subject again."""
    if loop.ends_work(error) or isinstance(error, StorageError):
        raise error
    fault = fault_of(error)
    is_listed = fault.kind == "raised" and evaluator.spec.retries(error)
    kind: ErrorKind = "server_error" if is_listed else fault.kind
    return failed_result(evaluator.bound.name, kind, str(fault), fault.attempts, fault.trace)


def _refused(evaluator: RunnableEvaluator, error: CallError) -> EvaluationResult:
    """Return the result of an evaluator that was not called, since its breaker is open."""
    return failed_result(evaluator.bound.name, error.kind, str(error), attempts=0)


def _leave(evaluator: RunnableEvaluator, is_trial: bool, results: list[EvaluationResult]) -> list[EvaluationResult]:
    """Tell the breaker how the call ended, by its first result, and return the results; there is always one."""
    evaluator.breaker.leave(is_trial, results[0].error_kind, results[0].error, called=has_called())
    return results


def _recorder(evaluator: RunnableEvaluator, spool: Spool, experiment_id: str, subject_id: str) -> Recorder:
    return Recorder(
        keep=spool.add_call,
        note=spool.note_sent,
        check=spool.check,
        experiment_id=experiment_id,
        subject_id=subject_id,
        evaluator=evaluator.bound.name,
        calls=evaluator.calls,
        budget=evaluator.budget,
        ledger=evaluator.ledger,
        connections=evaluator.connections,
    )


def _with_cost(
    evaluator: RunnableEvaluator, results: list[EvaluationResult], recorder: Recorder, elapsed: float
) -> list[EvaluationResult]:
    """Add the cost of a judgement to its first result only, so that sums are right."""
    if all(result.error is None for result in results):
        recorder.keep_for_reuse()
    judge_model, attempts, usage = None, 1, UNRECORDED if evaluator.may_call else NO_USAGE
    if recorder.has_calls or recorder.has_lost_calls:
        usage = recorder.totals()
    if recorder.answered:
        judge_model, attempts = ", ".join(recorder.models) or None, recorder.attempts
    costed = []
    for result in results:
        tried = attempts if result.attempts is None else result.attempts
        took = elapsed if result.status in ("scored", "not_applicable") else None
        costed.append(result.with_cost(judge_model, tried, took, usage))
        usage = NO_USAGE
    return costed


async def _awaited(returned: Awaitable[Any]) -> Any:
    return await returned


def _blocking(evaluator: RunnableEvaluator, ask: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return the function unchanged for an async evaluator; for a sync one, a version that blocks until the answer."""
    if ask is None or evaluator.bound.is_async:
        return ask
    return lambda *args, **kwargs: loop.run(ask(*args, **kwargs))
