"""The planned model calls of a spec's targets: how many, how large, at what price."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from evalflows.analysis.planning.dry_run import RecordedRequest, chat_requests, identity, model_of
from evalflows.execution.prepared import PreparedExperiment
from evalflows.execution.resolve import target_version
from evalflows.llm.connections import resolve
from evalflows.llm.prices import Tokens, price_of
from evalflows.specs.connection import ConnectionSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.target import ChatTarget, PythonTarget, TargetSpec
from evalflows.store.parquet import Store
from evalflows.store.queries.call_history import PastCalls, asked_by_target, calls_of_target, calls_to_model, in_ledger
from evalflows.store.records import ExampleRow

MAX_LEDGER_LOOKUPS = 20_000
"""The most runs of a chat target whose requests are all looked up in the ledger, at 0.1 ms each."""

MAX_DRY_RUNS = 200
"""The most requests that are built to estimate their size."""

CallKind = Literal["target", "judge", "controls", "summary", "pairwise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSize:
    """The average tokens and cost of a call."""

    tokens_in: float | None
    tokens_out: float | None
    usd: float | None  # None if the tokens or the price are unknown
    basis: str  # the source of the averages, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCalls:
    """The calls of one target, or of one judge for one purpose."""

    caller: str
    kind: CallKind
    connection: str | None
    model: str | None
    per_run: float | None  # calls per example and repetition, over all targets; None if unknown
    fixed: int  # calls that do not depend on the number of examples
    calls: int | None  # for the spec as it is; None if unknown
    at_most: bool  # whether `calls` is a maximum: equal requests are paid once, and some answers are not judged
    in_ledger: int | None  # calls that the ledger has already; None if not looked up
    size: CallSize
    note: str | None = None

    def calls_at(self, examples: int, repetitions: int) -> int | None:
        return None if self.per_run is None else self.fixed + ceil(round(self.per_run * examples * repetitions, 6))

    def usd_at(self, examples: int, repetitions: int) -> float | None:
        return self._usd(self.calls_at(examples, repetitions))

    @property
    def usd(self) -> float | None:
        """The cost of the calls that are not in the ledger."""
        return self._usd(None if self.calls is None else self.calls - (self.in_ledger or 0))

    def _usd(self, calls: int | None) -> float | None:
        if calls == 0:
            return 0.0
        return None if calls is None or self.size.usd is None else calls * self.size.usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The total of all known calls."""

    calls: int
    at_most: bool
    in_ledger: int
    usd: float | None  # None if a price or a number of calls is unknown
    usd_known: float  # the cost of the calls with a known price
    unknown: tuple[str, ...]  # the callers whose number of calls is unknown
    unpriced: tuple[str, ...]  # the callers whose price or tokens are unknown


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The inputs of a plan of calls."""

    store: Store
    prepared: PreparedExperiment
    examples: Sequence[ExampleRow]

    @property
    def spec(self) -> ExperimentSpec:
        return self.prepared.spec

    @property
    def runs(self) -> int:
        """The runs of one target."""
        return len(self.examples) * self.spec.repetitions

    def connection(self, name: str) -> ConnectionSpec:
        return resolve(name, self.spec.connections)


def total_of(lines: Sequence[PlannedCalls]) -> Total:
    """Sum the calls of the spec as it is."""
    unpriced = tuple(line.caller for line in lines if line.calls is not None and line.usd is None)
    unknown = tuple(line.caller for line in lines if line.calls is None)
    known = sum((line.usd or 0.0 for line in lines), 0.0)
    return Total(
        calls=sum(line.calls or 0 for line in lines),
        at_most=any(line.at_most for line in lines if line.calls),
        in_ledger=sum(line.in_ledger or 0 for line in lines),
        usd=None if unpriced or unknown else known,
        usd_known=known,
        unknown=unknown,
        unpriced=unpriced,
    )


def calls_at(lines: Iterable[PlannedCalls], examples: int, repetitions: int) -> int:
    """The known calls for another number of examples and repetitions, with an empty ledger."""
    return sum(line.calls_at(examples, repetitions) or 0 for line in lines)


def usd_at(lines: Iterable[PlannedCalls], examples: int, repetitions: int) -> float | None:
    """The cost of these calls; None if the cost of any is unknown."""
    costs = [line.usd_at(examples, repetitions) for line in lines]
    return None if None in costs else sum((cost for cost in costs if cost is not None), 0.0)


def calls_of_targets(inputs: PlanInputs) -> Iterator[PlannedCalls]:
    """Yield one line per chat or Python target: recorded answers are free, and calls behind HTTP are unknown."""
    seen_keys: set[str] = set()
    for target in inputs.spec.targets:
        if isinstance(target, ChatTarget):
            yield _of_chat(inputs, target, seen_keys)
        elif isinstance(target, PythonTarget):
            yield _of_python(inputs, target)


def _of_chat(inputs: PlanInputs, target: ChatTarget, seen_keys: set[str]) -> PlannedCalls:
    connection = inputs.connection(target.connection)
    model = model_of(connection, target.model)
    is_looked_up = inputs.runs <= MAX_LEDGER_LOOKUPS
    examples = inputs.examples if is_looked_up else inputs.examples[:MAX_DRY_RUNS]
    requests = chat_requests(target, connection, examples, inputs.spec.repetitions if is_looked_up else 1)
    past = calls_of_target(inputs.store, target_version(target, inputs.spec.connections))
    return PlannedCalls(
        caller=target.name,
        kind="target",
        connection=target.connection,
        model=model,
        per_run=1.0,
        fixed=0,
        calls=inputs.runs,
        at_most=not is_looked_up,
        in_ledger=_n_in_ledger(inputs, requests, seen_keys) if is_looked_up else None,
        size=size_of(inputs, connection, model, past, requests, by="target"),
    )


def _n_in_ledger(inputs: PlanInputs, requests: Sequence[RecordedRequest], seen_keys: set[str]) -> int:
    """How many calls need no payment: the ledger has them, or an earlier request of the same run is equal."""
    keys = {request.key for request in requests}
    if not inputs.spec.use_cache:
        return len(requests) - len(keys)
    repeated = len(requests) - len(keys - seen_keys)
    new = keys - seen_keys
    seen_keys |= keys
    return repeated + in_ledger(inputs.store, new)


def _of_python(inputs: PlanInputs, target: TargetSpec) -> PlannedCalls:
    assert isinstance(target, PythonTarget)
    version = target_version(target, inputs.spec.connections)
    history, past = asked_by_target(inputs.store, version), calls_of_target(inputs.store, version)
    per_run = history.calls_each if history else None
    unknown = "its calls are unknown: run it on a few examples first"
    return PlannedCalls(
        caller=target.name,
        kind="target",
        connection=None,
        model=None,
        per_run=per_run,
        fixed=0,
        calls=None if per_run is None else ceil(round(per_run * inputs.runs, 6)),
        at_most=False,
        in_ledger=None,
        size=_size_as_before(past, past.usd if past else None, "of this target") if past else _UNKNOWN_SIZE,
        note=unknown
        if history is None
        else f"{per_run:g} calls per run, as in {history.times} earlier runs of this target",
    )


_UNKNOWN_SIZE = CallSize(tokens_in=None, tokens_out=None, usd=None, basis="unknown")


def size_of(
    inputs: PlanInputs,
    connection: ConnectionSpec,
    model: str,
    past: PastCalls | None,
    requests: Sequence[RecordedRequest],
    *,
    by: Literal["target", "judge"],
) -> CallSize:
    """The size of a call, from earlier calls of the same version, else from earlier calls to the same model, else from
    the recorded requests."""
    if past is not None:
        return _size_as_before(past, _usd(connection, model, past.tokens_in, past.tokens_out), f"of this {by}")
    past_of_model = calls_to_model(inputs.store, identity(connection), model, by_target=by == "target")
    if past_of_model is not None:
        usd = _usd(connection, model, past_of_model.tokens_in, past_of_model.tokens_out)
        return _size_as_before(past_of_model, usd, f"of other {by}s to this model")
    if not requests:
        return _UNKNOWN_SIZE
    tokens_in, tokens_out = (
        sum(tokens) / len(requests)
        for tokens in zip(*((request.tokens_in, request.tokens_out) for request in requests), strict=True)
    )
    return CallSize(
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        usd=_usd(connection, model, tokens_in, tokens_out),
        basis="upper estimate",
    )


def _size_as_before(past: PastCalls, usd: float | None, whose: str) -> CallSize:
    return CallSize(
        tokens_in=past.tokens_in, tokens_out=past.tokens_out, usd=usd, basis=f"{past.calls} earlier calls {whose}"
    )


def _usd(connection: ConnectionSpec, model: str, tokens_in: float, tokens_out: float) -> float | None:
    """The cost of a call, with tokens rounded up."""
    price = price_of(connection, model)
    return price.cost(Tokens(ceil(tokens_in), None, ceil(tokens_out))) if price else None
