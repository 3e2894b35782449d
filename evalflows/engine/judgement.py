"""One judgement: an evaluator is called on one subject, and what it returns becomes results, one per metric.

An evaluator is code of the user, so it may raise, exit, or return what nobody can read. Then the result has an error
and no value, never a zero, and the run goes on. Only an interrupt, and an error of the store, end it.
"""

# A rule is an evaluator that is not async and calls no model. It takes the same steps without coroutines, which take
# longer than most rules. Other sync evaluators run on threads of their own, from which they wait for the loop of calls.

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from inspect import isawaitable
from typing import Any

from evalflows.engine.contents import Described, opened
from evalflows.engine.results import EvaluationResult, failed_result, result_of_preference, result_of_score
from evalflows.engine.running import RunnableEvaluator
from evalflows.engine.workers import run_sync
from evalflows.evaluators.binding import Bound, read_returned
from evalflows.evaluators.score import Judgement, Preference, number_in
from evalflows.llm import loop
from evalflows.llm.batches import Deferred
from evalflows.llm.breaker import COUNTED
from evalflows.llm.endpoint_errors import fault_of
from evalflows.llm.ledger import NO_USAGE, UNRECORDED, Recorder, has_called, recording
from evalflows.specs.errors import CallError, ErrorKind, StorageError
from evalflows.specs.metrics import ScoreConfigSpec
from evalflows.specs.protocols import Complete
from evalflows.store.spool import Spool
from evalflows.targets import ended_within

TIMEOUT_CHECK_INTERVAL_S = 0.1
"""Seconds between two checks of a judgement that waits for a model."""

MAX_FALLBACK_THREADS = 64
"""Maximum number of sync fallbacks that run at the same time in this process."""


async def judge_with(
    evaluator: RunnableEvaluator, available: Mapping[str, Any], *, spool: Spool, experiment_id: str, subject_id: str
) -> list[EvaluationResult]:
    """Judge one subject with an evaluator, and return one result per metric; the first has the cost of all.

    `available` has the arguments that the evaluator may request. Its model calls are stored in the spool and charged to
    the experiment. If its endpoint is down, its fallback judges. Raise Deferred if a batch will answer a call.
    """
    recorder, began = _recorder(evaluator, spool, experiment_id, subject_id), time.perf_counter()
    with recording(recorder):
        results = await _call(evaluator, available)
        if recorder.is_deferred:  # whatever the user's code made of it
            raise Deferred
        if evaluator.fallback and all(_is_down(result) for result in results):
            results = await _judge_by_fallback(evaluator, evaluator.fallback, available, results)
            if recorder.is_deferred:
                raise Deferred
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
    try:
        available, complete = _with_contents(evaluator, available)
        models = {"complete": _blocking(evaluator, complete), "embed": _blocking(evaluator, evaluator.embed)}
        available = {**available, **models}
        if evaluator.isolated is not None:  # a process of its own, which ends it after its time
            returned: Any = evaluator.isolated.judge(available, models)
        elif evaluator.bound.is_async and evaluator.spec.timeout_s is not None:
            returned = await call_within(evaluator.spec.timeout_s, evaluator.bound, available)
        else:
            returned = evaluator.bound.call(available)
            if isawaitable(returned):
                returned = await returned if evaluator.bound.is_async else loop.run(_awaited(returned))
    except Deferred:
        evaluator.breaker.leave(is_trial, "stopped", None)  # nothing is known
        raise
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
        available, _ = _with_contents(rule, available)
        returned = rule.bound.call(available)
        if isawaitable(returned):  # of a lambda that calls an async function
            returned = loop.run(_awaited(returned))
    except BaseException as error:
        return _leave(rule, is_trial, [_raised(rule, error)])
    return _leave(rule, is_trial, _results_of_rule(rule, returned, available))


def _with_contents(
    evaluator: RunnableEvaluator, available: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Complete | None]:
    """Return the arguments with what an evaluator gets of pictures, sounds and PDFs, and `complete` that sends them."""
    if evaluator.describes and evaluator.complete is not None:
        described = Described(evaluator.spec.sees)
        return described.arguments(available), described.complete(evaluator.complete)
    if evaluator.content_of is not None:
        available = opened(available, evaluator.content_of)
    return available, evaluator.complete


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
    return result_of_score(_check_score(returned, evaluator))


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
        evaluator=evaluator.caller or evaluator.bound.name,
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
        took = elapsed if result.status in ("scored", "not_applicable") and not recorder.has_batched else None
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


async def call_within(timeout_s: float, bound: Bound, available: Mapping[str, Any]) -> Any:
    """Call an async evaluator. Raise CallError `too_slow` if it takes longer than `timeout_s` seconds.

    The clock is paused during model calls, which may queue behind others.
    """
    clock = _Clock(timeout_s)
    calls = {name: clock.pausing(available[name]) for name in ("complete", "embed") if available.get(name)}

    def left_s() -> float:
        left = clock.left()
        return TIMEOUT_CHECK_INTERVAL_S if clock.is_paused and left > 0 else left

    return await ended_within(timeout_s, _returned(bound, {**available, **calls}), left_s)


async def _returned(bound: Bound, available: Mapping[str, Any]) -> Any:
    returned = bound.call(available)
    return await returned if isawaitable(returned) else returned


class _Clock:
    """Counts down the seconds left; paused while at least one model call is in flight."""

    def __init__(self, seconds: float) -> None:
        self._left, self._since, self._in_flight = seconds, time.monotonic(), 0

    @property
    def is_paused(self) -> bool:
        return self._in_flight > 0

    def left(self) -> float:
        return self._left if self.is_paused else self._left - (time.monotonic() - self._since)

    def pausing(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Wrap `complete` or `embed` so that the clock is paused during a call."""

        async def paused(*args: Any, **kwargs: Any) -> Any:
            self._left = self.left()
            self._in_flight += 1
            try:
                return await call(*args, **kwargs)
            finally:
                self._in_flight -= 1
                self._since = time.monotonic()

        return paused


def _check_score(judgement: Judgement, evaluator: RunnableEvaluator) -> Judgement:
    """Return the score, whose text is a number if its config says so. Raise ValueError if it may not be as it is."""
    judgement = _by_config(judgement, evaluator.configs)
    if judgement.config_id is not None and judgement.status == "scored":
        _check_config(judgement, evaluator.configs)
    metric = evaluator.metrics.get(judgement.metric)
    if metric and metric.range and judgement.value is not None:
        low, high = metric.range
        if not low <= judgement.value <= high:
            raise ValueError(f"{judgement.metric}: got {judgement.value:g}, wanted {low:g} to {high:g}")
    return judgement


def _by_config(judgement: Judgement, configs: Mapping[str, ScoreConfigSpec]) -> Judgement:
    """Return the score, whose text is a number if its config says that it is."""
    config = configs.get(judgement.config_id or "") if judgement.label is not None else None
    if config is None or config.data_type != "NUMERIC" or judgement.value is not None:
        return judgement
    number = number_in(judgement.label or "")
    return judgement if number is None else judgement._replace(value=number, label=None, data_type="NUMERIC")


def _check_config(judgement: Judgement, configs: Mapping[str, ScoreConfigSpec]) -> None:
    config = configs.get(judgement.config_id or "")
    if config is None:
        known = ", ".join(configs) or "none"
        raise ValueError(f"config_id {judgement.config_id!r}: wanted one of score_configs: {known}")
    config.check(judgement.metric, judgement.value, judgement.label)


def _is_down(outcome: EvaluationResult) -> bool:
    """Return whether a judgement failed or was not attempted because its endpoint is down."""
    return outcome.error_kind in COUNTED | {"stopped"}


async def _judge_by_fallback(
    judge: RunnableEvaluator, fallback: RunnableEvaluator, available: Mapping[str, Any], first: list[EvaluationResult]
) -> list[EvaluationResult]:
    """Return the results of the fallback of a judge that is down; if it is down too, the first ones with both errors.

    It is called from where the judge ran: on the event loop if that is async, else on a thread. A sync fallback would
    block the loop that makes its calls, so it runs on a thread; an async one needs the loop.
    """
    if fallback.bound.is_async == judge.bound.is_async:
        outcomes = await _call(fallback, available)
    elif fallback.bound.is_async:
        outcomes = loop.run(_call(fallback, available))
    else:
        work = partial(copy_context().run, run_sync, _call(fallback, available))
        outcomes = await asyncio.get_running_loop().run_in_executor(_threads(), work)
    name = fallback.spec.use
    if all(_is_down(outcome) for outcome in outcomes):
        return [
            result._replace(error=f"{result.error}; fallback {name} also failed: {outcomes[0].error}")
            for result in first
        ]
    return [outcome._replace(decided_by=f"fallback {name}") for outcome in outcomes]


@cache
def _threads() -> ThreadPoolExecutor:
    """Threads of sync fallbacks. The loop's own threads would deadlock: they resolve addresses for the same calls."""
    return ThreadPoolExecutor(MAX_FALLBACK_THREADS, thread_name_prefix="evalflows-fallbacks")
