"""Runnable evaluators: prepared ones with the model calls, budget and breaker of this process; the endpoints that they
call, with the history of their limiters; and samples of what they judge."""

import hashlib
import math
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime

from evalflows.engine.budget_parts import AnySpec
from evalflows.engine.isolated import IsolatedEvaluator
from evalflows.engine.may_call_models import evaluator_may_call_unrecorded
from evalflows.engine.results import EvaluationResult
from evalflows.engine.secret_blocks import key_for
from evalflows.engine.spec_evaluators import PreparedEvaluator, evaluator_version, is_ours
from evalflows.engine.workers import Workers
from evalflows.evaluators.binding import Bound
from evalflows.llm import loop
from evalflows.llm.batches import Batches
from evalflows.llm.breaker import Breaker
from evalflows.llm.budget import Budget
from evalflows.llm.calls import Completer, Embedder, Endpoint
from evalflows.llm.connect import completer, embedder
from evalflows.llm.connections import known, resolve
from evalflows.llm.ledger import Calls, Ledger
from evalflows.specs.attachments import Base64
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.connections import ConnectionSpec, GoogleConnection, LocalConnection, Mode
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec, JudgeSpec, Wanted, as_key
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.metrics import MetricSpec, ScoreConfigSpec
from evalflows.specs.protocols import Complete, Embed
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.shared_examples import value_at
from evalflows.store.records import ExampleRow, LimitRow, derived_id

MIN_WORKERS = 16


@dataclass(frozen=True, slots=True)
class Sample:
    """The ids of the sampled examples, and the sampling rate of every example: its stratum's, above 0, at most 1."""

    drawn: frozenset[str]
    rates: Mapping[str, float]


def limit_rows(owner: str, endpoint: Endpoint, since: datetime) -> list[LimitRow]:
    """Return the width of an endpoint's limiter: the state at `since`, and every change after it."""
    process = f"{socket.gethostname()}:{os.getpid()}"
    changes = loop.call(endpoint.limiter.changes)
    before = [change for change in changes if change.at < since][-1:]
    return [
        LimitRow(
            limit_id=derived_id(owner, endpoint.name, process, change.at.isoformat(), number),
            experiment_id=owner,
            connection=endpoint.name,
            process=process,
            width=change.width,
            in_flight=change.in_flight,
            reason=change.reason,
            retry_after_s=change.retry_after_s,
            changed_at=change.at,
        )
        for number, change in enumerate([*before, *(change for change in changes if change.at >= since)])
    ]


def judging_workers(spec: ExperimentSpec | TraceEvaluationSpec, connections: set[str]) -> Workers:
    """Return as many workers as keep the widest connection full."""
    return Workers(spec.max_concurrency or max([MIN_WORKERS, *(width_of(name, spec) for name in connections)]))


def width_of(connection: str, spec: ExperimentSpec | TraceEvaluationSpec) -> int:
    """Return a quarter more than a connection's limit: some already wait for a slot while others process answers."""
    return -(-5 * resolve(connection, spec.connections).max_in_flight // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnableEvaluator:
    """A prepared evaluator with the model calls, budget and breaker of this process, so that it can be called."""

    spec: FallbackSpec
    bound: Bound
    version: str
    complete: Complete | None
    embed: Embed | None
    breaker: Breaker
    may_call: bool  # whether its code, or that of a tier or its fallback, may call models without being recorded
    metrics: Mapping[str, MetricSpec]  # of the whole spec
    budget: Budget
    configs: Mapping[str, ScoreConfigSpec]  # score configs by id
    content_of: Base64 | None = None  # of attachments, for the user's own code, if there are any
    calls: Calls = field(default_factory=Calls)  # of the run
    ledger: Ledger | None = None  # of calls that its own code makes
    connections: Sequence[ConnectionSpec] = ()  # whose prices count for these
    fallback: "RunnableEvaluator | None" = None
    controls: int | None = None
    tiers: "Sequence[RunnableEvaluator]" = ()
    sample: Sample | None = None  # None: judges every answer
    needs: Mapping[str, Wanted] = field(default_factory=dict)  # by metric, the scores that an answer must have
    bundle: str | None = None  # of the judges with which it shares its calls
    caller: str = ""  # in the rows of its calls, if these are not for its scores
    isolated: IsolatedEvaluator | None = None  # set if its code runs in separate processes
    yes_and_no: dict[bool, list[EvaluationResult]] = field(default_factory=dict)  # results of a rule, made once

    @property
    def requested(self) -> frozenset[str]:
        """Names of the arguments that it or its fallback requests."""
        asked = self.bound.asked | (self.fallback.bound.asked if self.fallback else frozenset())
        describes = self.describes or (self.fallback is not None and self.fallback.describes)
        return asked | {"attachments"} if describes else asked

    @property
    def describes(self) -> bool:
        """Whether it is a judge of ours, which gets names of files in its arguments, and files beside its prompt."""
        return self.complete is not None and is_ours(self.spec)

    def directly(self) -> "RunnableEvaluator":
        """Return it with calls that wait for no batch."""
        complete = self.complete.directly() if isinstance(self.complete, Completer) else self.complete
        embed = self.embed.directly() if isinstance(self.embed, Embedder) else self.embed
        return replace(self, complete=complete, embed=embed)

    @property
    def is_rule(self) -> bool:
        """Whether it is a plain function that asks for no model and has no time limit, tiers or fallback."""
        is_alone = self.fallback is None and not self.tiers and self.isolated is None
        return is_alone and not self.bound.is_async and not self.bound.asks_for("complete", "embed")

    @property
    def asks_for_scores(self) -> bool:
        """Whether it needs the scores of others, so that it is called after them."""
        return bool(self.needs) or any(judge.bound.asks_for("evaluations", "scores") for judge in self.all)

    @property
    def all(self) -> "Iterator[RunnableEvaluator]":
        """The evaluator, its tiers and its fallback."""
        yield self
        yield from self.tiers
        if self.fallback is not None:
            yield self.fallback


def mode_of(mode: Mode | None, spec: AnySpec, connection: ConnectionSpec) -> Mode:
    """Return how the calls of a target or evaluator are made: as it says, else as its spec does, else its connection.

    Without a batch interface they are made directly.
    """
    if isinstance(connection, LocalConnection | GoogleConnection):
        return "direct"
    return mode or spec.mode or connection.mode


def endpoints_of(evaluators: Iterable[RunnableEvaluator]) -> list[Endpoint]:
    """Return the endpoints of evaluators, their tiers and fallbacks, each once; models in this process have none."""
    calls = [call for e in evaluators for judge in e.all for call in (judge.complete, judge.embed)]
    return [*{call.endpoint.name: call.endpoint for call in calls if isinstance(call, Completer | Embedder)}.values()]


@dataclass(frozen=True, slots=True)
class EvaluatorFactory:
    """Makes runnable evaluators that share a ledger and a budget: of an experiment, or another kind of spec."""

    spec: AnySpec
    ledger: Ledger
    budget: Budget
    calls: Calls = field(default_factory=Calls)
    batches: Callable[[], Batches] | None = None  # of the run; None if it makes all calls directly

    def evaluator(
        self, evaluator: PreparedEvaluator[JudgeSpec], examples: Sequence[ExampleRow] | None
    ) -> RunnableEvaluator:
        """Return an evaluator with its tiers, fallback, controls and sample; without examples, none is drawn."""
        spec, fallback, name = evaluator.spec, evaluator.fallback, evaluator.name
        return replace(
            self.judge(evaluator),
            fallback=self.judge(fallback, name) if fallback else None,
            tiers=[self.judge(tier, name) for tier in evaluator.tiers],
            controls=spec.controls,
            sample=draw(spec, examples) if isinstance(spec, EvaluatorSpec) and examples is not None else None,
            bundle=spec.bundle if isinstance(spec, EvaluatorSpec) else None,
            needs=spec.needs if isinstance(spec, EvaluatorSpec) else {},
        )

    def judge(self, evaluator: PreparedEvaluator[FallbackSpec], score_name: str | None = None) -> RunnableEvaluator:
        """Return a single evaluator, without tiers, fallback, controls and sample."""
        of_items = None if isinstance(self.spec, ComparisonSpec) else self.spec
        spec, name, bound = evaluator.spec, evaluator.connection, evaluator.bound
        bound = replace(
            bound,
            name=score_name or bound.name,
            names_stand=isinstance(self.spec, TraceEvaluationSpec),
            measures_used=self.spec.measures_used if isinstance(self.spec, ExperimentSpec) else frozenset(),
        )
        completes = bound.asks_for("complete")
        return RunnableEvaluator(
            spec=spec,
            bound=bound,
            version=evaluator_version(evaluator, self.spec.connections),
            complete=self.complete(name, spec.model, spec.mode) if name and completes else None,
            # With both requested, `model` is for complete, and embed uses the connection's embedding model.
            embed=self._embed(name, None if completes else spec.model, spec.mode)
            if name and bound.asks_for("embed")
            else None,
            breaker=self.breaker(),
            may_call=any(map(evaluator_may_call_unrecorded, evaluator.all)),
            metrics=of_items.metrics if of_items else {},
            budget=self.budget,
            configs=of_items.score_configs if of_items else {},
            content_of=None if is_ours(spec) or not self.ledger.has_contents else self.ledger.content_of,
            calls=self.calls,
            ledger=self.ledger,
            connections=self.connections,
            isolated=None if bound.is_async or spec.timeout_s is None else IsolatedEvaluator(bound, spec.timeout_s),
        )

    @property
    def connections(self) -> Sequence[ConnectionSpec]:
        """All connections that can be named; their prices count for the user's own clients."""
        try:
            return tuple(known(self.spec.connections).values())
        except InputError:  # of the shared file, which this run may not need
            return tuple(self.spec.connections.values())

    def complete(self, name: str, model: str | None = None, mode: Mode | None = None) -> Completer:
        connection = resolve(name, self.spec.connections)
        key, batches = key_for(name, connection), self._batches(connection, mode)
        return completer(name, connection, self.ledger, key=key, model=model, budget=self.budget, batches=batches)

    def _embed(self, name: str, model: str | None, mode: Mode | None) -> Embed:
        connection = resolve(name, self.spec.connections)
        key, batches = key_for(name, connection), self._batches(connection, mode)
        return embedder(name, connection, self.ledger, key=key, model=model, budget=self.budget, batches=batches)

    def _batches(self, connection: ConnectionSpec, mode: Mode | None) -> Callable[[], Batches] | None:
        """Return the batches of the run if they answer the calls of a target or evaluator with this mode."""
        return self.batches if mode_of(mode, self.spec, connection) == "batch" else None

    def breaker(self, first: int = 0) -> Breaker:
        return Breaker(self.spec.breaker_window, self.spec.breaker_pause_s, first=first)


def draw(spec: EvaluatorSpec, examples: Sequence[ExampleRow]) -> Sample | None:
    """Return the sample of an evaluator; None for one that judges all examples.

    Each value of `sample_by` in `sample_rates` is a stratum with its own rate; all other examples, also those without
    the field, form one stratum with `sample_rate`. Sizes are rounded, and at least 1. Examples are drawn by a hash of
    seed and id, so that the sample is the same for every target, evaluator and resumption, and smaller samples are
    part of larger ones. Raise InputError if no example has any of the values.
    """
    if not spec.is_sampled:
        return None
    strata: defaultdict[str | None, list[str]] = defaultdict(list)
    values = [_value(spec, example) for example in examples]
    if spec.sample_rates and not {*values} & {*spec.sample_rates}:
        got = ", ".join(sorted({value for value in values if value is not None})[:10]) or "no such field"
        wanted = ", ".join(spec.sample_rates)
        where = f"evaluator {spec.metric!r}: sample_rates"
        raise InputError(f"{where}: no example has {wanted} as its {spec.sample_by}, got {got}")
    for value, example in zip(values, examples, strict=True):
        strata[value if value in spec.sample_rates else None].append(example.example_id)
    drawn: set[str] = set()
    rates: dict[str, float] = {}
    for value, members in strata.items():
        rate = (spec.sample_rate or 1.0) if value is None else spec.sample_rates[value]
        in_turn = sorted(members, key=lambda member: hashlib.sha256(f"{spec.sample_seed} {member}".encode()).digest())
        chosen = in_turn[: max(1, math.floor(rate * len(members) + 0.5))]
        drawn.update(chosen)
        rates.update(dict.fromkeys(members, len(chosen) / len(members)))
    return Sample(frozenset(drawn), rates)


def _value(spec: EvaluatorSpec, example: ExampleRow) -> str | None:
    """Return the example's value of `sample_by` as a key; None if it has no such field."""
    if spec.sample_by is None:
        return None
    try:
        return as_key(value_at(example, spec.sample_by))
    except InputError:
        return None
