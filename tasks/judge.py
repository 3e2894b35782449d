"""One judgement: an evaluator is called, and what becomes of it is fields of a score, whatever it does."""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from inspect import isawaitable
from typing import Any

from evaluators.preference import Preference
from evaluators.returned import read_returned
from evaluators.score import Judgement
from llm import loop
from llm.breaker import COUNTED
from llm.faults import SHORTEST_OF_A_PROVIDER, fault_of, without_keys
from llm.recorder import Recorder, recording
from specs.errors import NOT_ATTEMPTED, CallError, ErrorKind, describe
from specs.score_config import ScoreConfigSpec
from store.records import OutputRow, ScoreRow, derived_id, to_json
from store.spool import Spool
from tasks.experiment import ReadyEvaluator
from tasks.time_limit import within
from tasks.workers import finished

WAITING_AT_ONCE = 64
"""Plain fallbacks, in a process."""

Fields = dict[str, Any]
"""Some of a ScoreRow's."""


async def judged(
    evaluator: ReadyEvaluator, offered: Mapping[str, Any], *, spool: Spool, experiment_id: str, subject_id: str
) -> list[Fields]:
    """Call an evaluator with what it is offered on a subject; one element a metric, with what the judgement cost.

    The calls that it makes are kept in the spool, and paid by the experiment.
    """
    recorder = Recorder(
        keep=lambda call: spool.add("calls", call),
        experiment_id=experiment_id,
        subject_id=subject_id,
        evaluator=evaluator.bound.name,
        budget=evaluator.budget,
    )
    began = time.perf_counter()
    with recording(recorder):
        outcomes = await _outcomes(evaluator, offered)
        if evaluator.fallback and all(is_down(outcome) for outcome in outcomes):
            outcomes = await _instead(evaluator.fallback, offered, outcomes, evaluator.bound.is_async)
    return _priced(outcomes, recorder, time.perf_counter() - began)


def is_down(outcome: Mapping[str, Any]) -> bool:
    """Whether a judgement failed, or was not attempted, since what it asks is down."""
    return outcome.get("error_kind") in COUNTED | {"stopped"}


async def _instead(
    fallback: ReadyEvaluator, offered: Mapping[str, Any], first: list[Fields], first_is_async: bool
) -> list[Fields]:
    """What the fallback says; if that is down too, what was said first, with that."""
    outcomes = await _by(fallback, offered, is_async=first_is_async)
    name = fallback.spec.use
    if all(is_down(outcome) for outcome in outcomes):
        return [one | {"error": f"{one['error']}; so is its fallback {name}: {outcomes[0]['error']}"} for one in first]
    return [outcome | {"decided_by": f"fallback {name}"} for outcome in outcomes]


async def _by(fallback: ReadyEvaluator, offered: Mapping[str, Any], *, is_async: bool) -> list[Fields]:
    """What the fallback says, from where the first one ran: on the loop if it is async, else on a thread.

    A plain one may not run on the loop, for whose calls it would wait there; an async one needs it.
    """
    if fallback.bound.is_async == is_async:
        return await _outcomes(fallback, offered)
    if fallback.bound.is_async:
        return loop.run(_outcomes(fallback, offered))
    work = partial(copy_context().run, finished, _outcomes(fallback, offered))
    return await asyncio.get_running_loop().run_in_executor(_threads(), work)


@cache
def _threads() -> ThreadPoolExecutor:
    """Of plain fallbacks. Not the loop's own threads: on these addresses are looked up, for the calls they wait for."""
    return ThreadPoolExecutor(WAITING_AT_ONCE, thread_name_prefix="evalflows-fallbacks")


def unanswered(evaluator: ReadyEvaluator, output: OutputRow) -> list[Fields]:
    """What becomes of a judgement for which there is no answer: it costs nothing, and has an error."""
    error = f"no output to judge: {output.error or output.status}"
    status = "not_attempted" if output.status == "not_attempted" else "failed"
    return [_failed(evaluator, "no_output", error) | {"status": status, "cost_usd": 0.0}]


def not_drawn(evaluator: ReadyEvaluator) -> Fields:
    """What becomes of a judgement that is not in the evaluator's sample."""
    return {"metric": evaluator.bound.name, "status": "sampled_out", "attempts": 0, "cost_usd": 0.0}


def run_score(output: OutputRow, *, evaluator: str, version: str, **fields: Any) -> ScoreRow:
    """The score of one run; `fields` are the others of the row, `metric` among them."""
    return ScoreRow(
        score_id=derived_id(output.run_id, fields.get("turn"), fields["metric"], version),
        subject_kind="run",
        subject_id=output.run_id,
        experiment_id=output.experiment_id,
        run_id=output.run_id,
        example_id=output.example_id,
        repetition=output.repetition,
        evaluator=evaluator,
        evaluator_version=version,
        **fields,
    )


def _priced(outcomes: list[Fields], recorder: Recorder, elapsed: float) -> list[Fields]:
    """What several metrics cost together stands at the first, so that sums are right."""
    rows: list[Fields] = []
    for index, outcome in enumerate(outcomes):
        spent = recorder.totals() if index == 0 else {"cost_usd": 0.0}
        latency = elapsed if outcome["status"] in ("scored", "not_applicable") else None
        asked = {"judge_model": ", ".join(recorder.models) or None, "attempts": recorder.attempts, "latency_s": latency}
        rows.append(asked | spent | outcome)
    return rows


def _failed(evaluator: ReadyEvaluator, kind: ErrorKind, error: str) -> Fields:
    """No value, and an error: never a zero."""
    status = "not_attempted" if kind in NOT_ATTEMPTED else "failed"
    return {"metric": evaluator.bound.name, "status": status, "error_kind": kind, "error": error}


async def _outcomes(evaluator: ReadyEvaluator, offered: Mapping[str, Any]) -> list[Fields]:
    """What an evaluator says, unless what it asks is known to be down."""
    try:
        is_trial = evaluator.breaker.enter()
    except CallError as error:
        return [_failed(evaluator, error.kind, str(error)) | {"attempts": 0}]
    given = {
        **offered,
        "complete": _plainly(evaluator, evaluator.complete),
        "embed": _plainly(evaluator, evaluator.embed),
    }
    outcomes = await _called(evaluator, given)
    evaluator.breaker.leave(is_trial, outcomes[0].get("error_kind"), outcomes[0].get("error"))
    return outcomes


async def _called(evaluator: ReadyEvaluator, offered: Mapping[str, Any]) -> list[Fields]:
    try:
        returned = await _returned(evaluator, offered)
    except (Exception, SystemExit) as error:  # the user's code may end itself, not us
        fault = fault_of(error)
        return [_failed(evaluator, fault.kind, str(fault)) | {"attempts": fault.attempts}]
    try:
        return [_kept(one, evaluator) for one in read_returned(evaluator.bound, returned, offered)]
    except Exception as error:  # also what a property of the user's object raises
        return [_failed(evaluator, "bad_return", describe(error))]


async def _returned(evaluator: ReadyEvaluator, offered: Mapping[str, Any]) -> Any:
    """What it returns; in the time that it has, if there is a limit."""
    if evaluator.isolated is not None:
        return evaluator.isolated.judge(offered, {name: offered[name] for name in ("complete", "embed")})
    if evaluator.bound.is_async and evaluator.spec.timeout_s is not None:
        return await within(evaluator.spec.timeout_s, evaluator.bound, offered)
    returned = evaluator.bound.call(offered)
    return await returned if evaluator.bound.is_async and isawaitable(returned) else returned


def _kept(said: Judgement | Preference, evaluator: ReadyEvaluator) -> Fields:
    """What an evaluator said, as fields of a row. Raises ValueError for what is out of bounds."""
    found = _scored(said, evaluator) if isinstance(said, Judgement) else _preferred(said)
    metadata = None if said.metadata is None else _clean(to_json(dict(said.metadata), mend=True))
    comment = None if said.comment is None else _clean(said.comment)
    return found | {"comment": comment, "metadata": metadata}


def _preferred(said: Preference) -> Fields:
    """By the order in which the answers were shown."""
    names = ("winner", "scores", "shown_first", "status", "prompt_hash", "repeats", "agreement")
    return {"metric": said.key} | {name: getattr(said, name) for name in names}


def _scored(judgement: Judgement, evaluator: ReadyEvaluator) -> Fields:
    if judgement.config_id is not None and judgement.status == "scored":
        _check_config(judgement, evaluator.configs)
    declared = evaluator.metrics.get(judgement.metric)
    if declared and declared.range and judgement.value is not None:
        low, high = declared.range
        if not low <= judgement.value <= high:
            raise ValueError(f"{judgement.metric}: got {judgement.value:g}, wanted {low:g} to {high:g}")
    of_a_judge = ("prompt_hash", "repeats", "spread")
    names = ("metric", "turn", "value", "label", "data_type", "config_id", "status", *of_a_judge)
    return {name: getattr(judgement, name) for name in names}


def _check_config(judgement: Judgement, configs: Mapping[str, ScoreConfigSpec]) -> None:
    config = configs.get(judgement.config_id or "")
    if config is None:
        known = ", ".join(configs) or "none at all"
        raise ValueError(f"config_id {judgement.config_id!r}: wanted one of score_configs, which are {known}")
    config.check(judgement.metric, judgement.value, judgement.label)


def _clean(text: str) -> str:
    """What the user's own code says, without a key that an answer quoted."""
    return without_keys(text, SHORTEST_OF_A_PROVIDER)


def _plainly(evaluator: ReadyEvaluator, asks: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """What an async evaluator awaits, as it is; for a plain one, a function that waits for the answer."""
    if asks is None or evaluator.bound.is_async:
        return asks
    return lambda *args, **kwargs: loop.run(asks(*args, **kwargs))
