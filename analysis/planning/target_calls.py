"""The planned model calls of a spec's targets: how many, how large, at what price."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from evalflows.analysis.planning.dry_run import Heard, heard_of_chat, identity, model_of
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

MOST_LOOKED_UP = 20_000
"""Runs of a chat target up to which each request is looked up in the ledger: 0.1 ms each."""

TRIED = 200
"""Requests that are built to estimate their size."""

Kind = Literal["target", "judge", "controls", "summary", "pairwise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The average tokens and cost of a call."""

    tokens_in: float | None
    tokens_out: float | None
    usd: float | None  # None where the tokens, or the price, are not known
    basis: str  # where that is from


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCalls:
    """The calls of one target, or of one judge for one purpose."""

    who: str
    kind: Kind
    connection: str | None
    model: str | None
    per_run: float | None  # calls for one repetition of one example, of all targets together; None: not known
    fixed: int  # calls however many examples there are
    calls: int | None  # of the spec as it is
    at_most: bool  # whether it may be fewer: equal requests are paid once, and some answers are not judged
    in_ledger: int | None  # of these, how many are there already; None where that was not looked up
    size: Size
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
    usd: float | None  # None where a price or a number of calls is not known
    usd_known: float  # the part that is
    unknown: tuple[str, ...]  # whose calls are not known
    unpriced: tuple[str, ...]  # whose price, or tokens, are not


@dataclass(frozen=True, slots=True)
class Planning:
    """The inputs of a plan."""

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
    unpriced = tuple(line.who for line in lines if line.calls is not None and line.usd is None)
    unknown = tuple(line.who for line in lines if line.calls is None)
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
    """Their cost; None if the cost of any is unknown."""
    costs = [line.usd_at(examples, repetitions) for line in lines]
    return None if None in costs else sum((cost for cost in costs if cost is not None), 0.0)


def calls_of_targets(planning: Planning) -> Iterator[PlannedCalls]:
    """Yield one line per target that may call a model: recorded answers are free, and calls behind HTTP are unknown."""
    seen: set[str] = set()
    for target in planning.spec.targets:
        if isinstance(target, ChatTarget):
            yield _of_chat(planning, target, seen)
        elif isinstance(target, PythonTarget):
            yield _of_python(planning, target)


def _of_chat(planning: Planning, target: ChatTarget, seen: set[str]) -> PlannedCalls:
    connection = planning.connection(target.connection)
    model = model_of(connection, target.model)
    is_looked_up = planning.runs <= MOST_LOOKED_UP
    looked_at = planning.examples if is_looked_up else planning.examples[:TRIED]
    heard = heard_of_chat(target, connection, looked_at, planning.spec.repetitions if is_looked_up else 1)
    past = calls_of_target(planning.store, target_version(target, planning.spec.connections))
    return PlannedCalls(
        who=target.name,
        kind="target",
        connection=target.connection,
        model=model,
        per_run=1.0,
        fixed=0,
        calls=planning.runs,
        at_most=not is_looked_up,
        in_ledger=_paid_already(planning, heard, seen) if is_looked_up else None,
        size=size_of(planning, connection, model, past, heard, by="target"),
    )


def _paid_already(planning: Planning, heard: Sequence[Heard], seen: set[str]) -> int:
    """Count the calls that the ledger has, or that an earlier request of the same run makes."""
    keys = {one.key for one in heard}
    if not planning.spec.use_cache:
        return len(heard) - len(keys)
    twice = len(heard) - len(keys - seen)
    new = keys - seen
    seen |= keys
    return twice + in_ledger(planning.store, new)


def _of_python(planning: Planning, target: TargetSpec) -> PlannedCalls:
    assert isinstance(target, PythonTarget)
    version = target_version(target, planning.spec.connections)
    asked, past = asked_by_target(planning.store, version), calls_of_target(planning.store, version)
    each = asked.calls_each if asked else None
    unknown = "its calls are unknown: run it on a few examples first"
    return PlannedCalls(
        who=target.name,
        kind="target",
        connection=None,
        model=None,
        per_run=each,
        fixed=0,
        calls=None if each is None else ceil(round(each * planning.runs, 6)),
        at_most=False,
        in_ledger=None,
        size=_as_before(past, past.usd if past else None, "of this target") if past else _NOT_KNOWN,
        note=unknown if asked is None else f"{each:g} calls per run, as in {asked.times} earlier runs of this target",
    )


_NOT_KNOWN = Size(tokens_in=None, tokens_out=None, usd=None, basis="unknown")


def size_of(
    planning: Planning,
    connection: ConnectionSpec,
    model: str,
    past: PastCalls | None,
    heard: Sequence[Heard],
    *,
    by: Literal["target", "judge"],
) -> Size:
    """The size of a call: from earlier calls of the same version, else from earlier calls to the same model, else
    estimated from the recorded requests."""
    if past is not None:
        return _as_before(past, _usd(connection, model, past.tokens_in, past.tokens_out), f"of this {by}")
    others = calls_to_model(planning.store, identity(connection), model, by_target=by == "target")
    if others is not None:
        usd = _usd(connection, model, others.tokens_in, others.tokens_out)
        return _as_before(others, usd, f"of other {by}s to this model")
    if not heard:
        return _NOT_KNOWN
    into, out = (sum(tokens) / len(heard) for tokens in zip(*((h.tokens_in, h.tokens_out) for h in heard), strict=True))
    return Size(tokens_in=into, tokens_out=out, usd=_usd(connection, model, into, out), basis="upper estimate")


def _as_before(past: PastCalls, usd: float | None, whose: str) -> Size:
    return Size(
        tokens_in=past.tokens_in, tokens_out=past.tokens_out, usd=usd, basis=f"{past.calls} earlier calls {whose}"
    )


def _usd(connection: ConnectionSpec, model: str, into: float, out: float) -> float | None:
    """The cost of a call, with tokens rounded up."""
    price = price_of(connection, model)
    return price.cost(Tokens(ceil(into), None, ceil(out))) if price else None
