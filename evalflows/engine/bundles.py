"""Judges that share their calls: what those of one bundle ask about a subject is asked in one call."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import field, replace
from functools import partial
from typing import Any, cast

from evalflows.engine.running import RunnableEvaluator
from evalflows.evaluators.bundle import Task, can_be_joined, joined, names_of
from evalflows.llm.batches import Deferred
from evalflows.llm.breaker import Breaker
from evalflows.llm.calls import MAX_TOKENS
from evalflows.llm.ledger import AnsweredCall, Recorder, current
from evalflows.specs.errors import CallError
from evalflows.specs.frozen import dataclass
from evalflows.specs.protocols import Complete, Completion, Message
from evalflows.store.records import to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A call that a judge waits for."""

    judge: str
    complete: Complete
    messages: str | Sequence[Message]
    schema: dict[str, Any] | None
    model: str | None
    repeat: int
    parameters: Mapping[str, Any]
    context: Context  # of the judgement
    answer: asyncio.Future[Completion]

    @property
    def recorder(self) -> Recorder | None:
        return self.context.run(current)

    def make(
        self, messages: str | Sequence[Message], schema: dict[str, Any] | None, answers: int = 1
    ) -> Coroutine[Any, Any, Completion]:
        """Ask this, or what several ask together, as the judge would have done: with room for so many answers."""
        room = {name: answers * most for name in MAX_TOKENS if isinstance(most := self.parameters.get(name), int)}
        parameters = {**self.parameters, **room}
        return self.complete(messages, schema=schema, model=self.model, repeat=self.repeat, **parameters)


@dataclass(slots=True)
class SharedBreaker:
    """The breaker of a bundle for one subject: either all judges enter it or none does."""

    breaker: Breaker
    _is_trial: bool | None = None
    _refusal: CallError | None = None
    _left: list[tuple[str | None, str | None, bool]] = field(default_factory=list)

    @property
    def gave_up(self) -> bool:
        return self.breaker.gave_up

    def enter(self) -> bool:
        """Enter with the first judge. Raise CallError for all if the breaker is open."""
        if self._is_trial is None and self._refusal is None:
            try:
                self._is_trial = self.breaker.enter()
            except CallError as error:
                self._refusal = error
        if self._refusal is not None:
            raise CallError(self._refusal.kind, str(self._refusal), attempts=0)
        return bool(self._is_trial)

    def leave(self, _is_trial: bool, kind: str | None, error: str | None, *, called: bool = False) -> None:
        self._left.append((kind, error, called))

    def close(self) -> None:
        """Leave when all judges have: with the first error, if there is one."""
        if self._is_trial is not None and self._left:
            kind, error, called = next((left for left in self._left if left[0] is not None), self._left[0])
            self.breaker.leave(self._is_trial, kind, error, called=called)


class SharedCalls:
    """The calls that the judges of a bundle make together about one subject.

    When every judge that has not ended waits for an answer, what they ask is asked in one call. Calls with other
    parameters, without a schema, or of one judge alone are made as they are.
    """

    def __init__(self, judges: Sequence[RunnableEvaluator]) -> None:
        self._judging = {judge.bound.name for judge in judges}
        self._breaker = SharedBreaker(judges[0].breaker)
        self._waiting: list[_Request] = []
        self._sending = set[asyncio.Task[None]]()

    def with_shared_calls(self, judge: RunnableEvaluator) -> RunnableEvaluator:
        """Return a judge of the bundle whose calls are made here."""
        assert judge.complete is not None
        complete, breaker = partial(self._ask, judge.bound.name, judge.complete), cast("Breaker", self._breaker)
        return replace(judge, complete=complete, breaker=breaker)

    def end(self, judge: RunnableEvaluator) -> None:
        """Note that a judge asks for nothing more."""
        self._judging.discard(judge.bound.name)
        self._send_if_all_wait()

    def close(self) -> None:
        """Note that all judges have ended."""
        self._breaker.close()

    async def _ask(
        self,
        judge: str,
        complete: Complete,
        messages: str | Sequence[Message],
        *,
        schema: dict[str, Any] | None = None,
        model: str | None = None,
        repeat: int = 0,
        **parameters: Any,
    ) -> Completion:
        request = _Request(
            judge=judge,
            complete=complete,
            messages=messages,
            schema=schema,
            model=model,
            repeat=repeat,
            parameters=parameters,
            context=copy_context(),
            answer=asyncio.get_running_loop().create_future(),
        )
        self._waiting.append(request)
        self._send_if_all_wait()
        return await request.answer

    def _send_if_all_wait(self) -> None:
        if self._waiting and self._judging <= {request.judge for request in self._waiting}:
            task = asyncio.get_running_loop().create_task(self._send())
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self) -> None:
        await asyncio.sleep(0)  # a judge that repeats itself makes several calls at once: these too
        waiting = [request for request in self._waiting if not request.answer.done()]
        self._waiting.clear()
        await asyncio.gather(*(_make(group) for group in _groups(waiting)))


def _groups(requests: Sequence[_Request]) -> list[list[_Request]]:
    """Return which requests become one call: those that differ in nothing but what they ask, one of each judge."""
    groups = defaultdict[tuple[Any, ...], list[_Request]](list)
    seen = Counter[tuple[Any, ...]]()
    for number, request in enumerate(requests):
        alike: tuple[Any, ...] = (request.model, request.repeat, to_json(dict(request.parameters)))
        if request.schema is None or not can_be_joined(request.messages):
            groups[*alike, "alone", number].append(request)
            continue
        groups[*alike, "shared", seen[request.judge, *alike]].append(request)
        seen[request.judge, *alike] += 1
    return [*groups.values()]


async def _make(group: Sequence[_Request]) -> None:
    """Make the call of a group within the judgement of its first judge, which pays for it, and answer all."""
    first, is_shared = group[0], len(group) > 1
    messages, schema = first.messages, first.schema
    if is_shared:
        task = joined([Task(messages=each.messages, schema=each.schema or {}) for each in group])
        messages, schema = task.messages, task.schema
    try:
        call = asyncio.get_running_loop().create_task(first.make(messages, schema, len(group)), context=first.context)
        completion = await call
    except BaseException as error:  # a batch will answer, the call failed, or the run ends
        for request in group:
            _fail(request, error)
        if not isinstance(error, Exception | Deferred):
            raise
        return
    if not is_shared:
        _answer(first, completion)
        return
    for request, name in zip(group, names_of(group), strict=True):
        answer = completion.parsed[name]
        _answer(request, replace(completion, text=to_json(answer), parsed=answer), first)


def _answer(request: _Request, completion: Completion, payer: _Request | None = None) -> None:
    """Give a judge its answer. Another one has paid for it unless it is the payer itself."""
    recorder, of_payer = request.recorder, payer.recorder if payer is not None else None
    if payer is not None and payer is not request:
        completion = replace(completion, cached=True, cost_usd=0.0, tokens_in=None, tokens_out=None)
        if recorder is not None and of_payer is not None:
            paid = (call.row for call in reversed(of_payer.answered) if call.row.call_id == completion.call_id)
            row = replace(next(paid), tokens_in=None, tokens_cached=None, tokens_out=None, tokens_reasoning=None)
            recorder.answered.append(AnsweredCall(row, cached=True))
    if not request.answer.done():
        request.answer.set_result(completion)


def _fail(request: _Request, error: BaseException) -> None:
    """Let a judge raise what the call has raised."""
    if isinstance(error, Deferred) and (recorder := request.recorder) is not None:
        recorder.is_deferred = True
    if request.answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        request.answer.cancel()
    elif isinstance(error, CallError):
        request.answer.set_exception(CallError(error.kind, str(error), attempts=error.attempts))
    else:
        request.answer.set_exception(Deferred() if isinstance(error, Deferred) else error)
