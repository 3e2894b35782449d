"""Trial calls before a run: whether models take the parameters that they will be sent. What one refuses is then a
message in one line, and not an answer each that failed."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any

from evalflows.engine.budget_parts import AnySpec
from evalflows.engine.connection_trials import QUESTION
from evalflows.engine.prepare import Prepared, PreparedComparison, PreparedExperiment
from evalflows.engine.run_context import RunContext
from evalflows.engine.running import EvaluatorFactory
from evalflows.engine.spec_evaluators import PreparedEvaluator, evaluator_version, is_ours
from evalflows.engine.spec_targets import target_version
from evalflows.evaluators.judging import sampling
from evalflows.llm import loop
from evalflows.llm.calls import MAX_TOKENS
from evalflows.llm.connections import resolve
from evalflows.llm.ledger import Recorder, recording
from evalflows.specs.connections import LocalConnection
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import print_note
from evalflows.specs.evaluator import FallbackSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.target import ChatTarget, asked
from evalflows.store.queries.past_calls import calls_of_judge, calls_of_target
from evalflows.store.records import CallRow, ComparisonSetRow, ExperimentRow, to_json
from evalflows.store.store import Store
from evalflows.targets import as_tools

FEWEST = 10
"""Items from which on a trial is made: fewer are answered as soon, and a breaker would stop after as many."""
MOST_TOKENS = 16
"""Tokens that a trial may answer, if the parameters limit them."""
CALLER = "trial"
"""In the place of an evaluator: what has made a trial call."""

SCHEMA: dict[str, Any] = {
    "title": "trial",
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}

AnyRun = RunContext[PreparedExperiment] | RunContext[PreparedComparison]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What sends parameters to a model."""

    who: str
    connection: str
    model: str | None
    parameters: Mapping[str, Any]


def try_parameters(run: AnyRun, row: ExperimentRow | ComparisonSetRow, n_items: int) -> None:
    """Ask each model one short question with each set of parameters, before the first start of a run.

    The calls are those of the row's owner, and within the budget. Raise InputError for parameters that are refused,
    after a note on each further set. Other errors are left to the run, which retries.
    """
    is_comparison = isinstance(row, ComparisonSetRow)
    owner = row.comparison_id if isinstance(row, ComparisonSetRow) else row.experiment_id
    if run.store.read("comparison_sets" if is_comparison else "experiments", owner):
        return
    if not (sets := parameter_sets(run.store, run.prepared, n_items)):
        return
    made, factory = list[CallRow](), EvaluatorFactory(run.prepared.spec, run.ledger(owner), run.budget(row), run.calls)
    recorder = Recorder(keep=made.append, experiment_id=owner, evaluator=CALLER, calls=run.calls)

    async def try_all() -> list[str | None]:
        with recording(recorder):
            return await asyncio.gather(*(_refusal(factory, users) for users in sets))

    try:
        refusals = [refusal for refusal in loop.run(try_all()) if refusal is not None]
    finally:
        if paid := [call for call in made if call.error_kind != "bad_request"]:
            run.store.append("calls", owner, f"{CALLER}-{paid[0].call_id}", paid)
    for refusal in refusals[1:]:
        print_note(refusal)
    if refusals:
        raise InputError(refusals[0])


def parameter_sets(store: Store, prepared: Prepared[Any], n_items: int) -> list[list[Asked]]:
    """Return what sends parameters, in groups of the same set for the same model, where none is known to be taken.

    There are none for a few items, and none for local models.
    """
    groups = defaultdict[tuple[str, str | None, str], list[Asked]](list)
    for user in (*_targets(store, prepared.spec), *_judges(store, prepared)) if n_items >= FEWEST else ():
        is_local = isinstance(resolve(user.connection, prepared.spec.connections), LocalConnection)
        if user.parameters and not is_local:
            groups[user.connection, user.model, to_json(user.parameters)].append(user)
    return [*groups.values()]


def _targets(store: Store, spec: AnySpec) -> Iterator[Asked]:
    for target in spec.targets if isinstance(spec, ExperimentSpec) else ():
        inner = asked(target)
        if isinstance(inner, ChatTarget):
            version = target_version(target, spec.connections)
            if calls_of_target(store, version) is None:
                yield Asked(
                    who=f"target {target.name!r}",
                    connection=inner.connection,
                    model=inner.model,
                    parameters=_of_chat(inner),
                )


def _of_chat(target: ChatTarget) -> dict[str, Any]:
    own = {name: getattr(target, name) for name in ("temperature", "max_tokens", "seed")}
    tools = as_tools(target.tools) if isinstance(target.tools, list) else None
    own |= {"schema": target.response_schema and SCHEMA, "tools": tools and tools.sent}
    extra = target.as_sent.extra
    if tools is None:
        extra = {name: value for name, value in extra.items() if name not in ("tool_choice", "parallel_tool_calls")}
    return {name: value for name, value in own.items() if value is not None} | extra


def _judges(store: Store, prepared: Prepared[Any]) -> Iterator[Asked]:
    """Yield the built-in judges; the calls of others are known when they are made."""
    for evaluator in (*prepared.of_runs, *prepared.pairwise):
        sent = [
            Asked(
                who=f"evaluator {evaluator.name!r}",
                connection=judge.connection,
                model=judge.spec.model,
                parameters=parameters,
            )
            for judge in evaluator.judges
            if judge.connection and (parameters := _of_judge(judge))
        ]
        payer = next(iter(evaluator.in_bundle), evaluator)
        if sent and calls_of_judge(store, payer.name, evaluator_version(payer, prepared.spec.connections)) is None:
            yield from sent


def _of_judge(judge: PreparedEvaluator[FallbackSpec]) -> dict[str, Any]:
    parameter = signature(judge.bound.function).parameters.get("temperature") if is_ours(judge.spec) else None
    if parameter is None or not judge.bound.asks_for("complete"):
        return {}
    settings = judge.bound.settings
    own = sampling(settings.get("temperature", parameter.default), settings.get("repeats", 1))
    return {**own, **judge.bound.parameters, "schema": SCHEMA}


async def _refusal(factory: EvaluatorFactory, users: list[Asked]) -> str | None:
    """Return in one line which parameters a model refuses, asked again without each; None if it refuses none."""
    completer = factory.complete(users[0].connection, users[0].model)
    parameters = dict(users[0].parameters)
    if "thinking" not in parameters:  # whose own budget must be below the limit
        parameters |= {name: min(parameters[name], MOST_TOKENS) for name in parameters.keys() & {*MAX_TOKENS}}
    schema, refusals = parameters.pop("schema", None), list[str]()
    while refusal := await completer.refusal_of(QUESTION, schema, parameters):
        refusals.append(refusal)
        named = next((name for name in parameters if re.search(rf"\b{name}\b", refusal)), None)
        if named is None:
            break
        del parameters[named]
    return f"{', '.join(dict.fromkeys(user.who for user in users))}: {'; '.join(refusals)}" if refusals else None
