"""Prepare experiments and comparisons: specs with everything they name resolved to code, their versions and ids,
and their evaluators bound.

Preparing writes prompts, shared connections and declared metrics into the spec, and makes no model calls. It happens
once, before a run, and serves checks, plans and the rows of an experiment; `running.py` makes a prepared spec ready to
run. To be called, an evaluator also needs what a run provides: see `RunnableEvaluator`.
"""

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from inspect import isclass, signature
from tempfile import TemporaryDirectory
from typing import Any, Generic, Literal, TypeVar, get_args

from evalflows import evaluators
from evalflows.engine.chunks import Side, in_order, winning_side
from evalflows.engine.secret_blocks import key_for
from evalflows.evaluators.binding import Bound, Scope, bind, declared_by
from evalflows.evaluators.composite import combined
from evalflows.evaluators.foreign import adapted, evaluator_name
from evalflows.evaluators.named import named
from evalflows.evaluators.pairwise.recorded_preference import (
    Winner,
    WithoutVerdict,
    order_status_of,
    stated,
    status_without_verdict,
    winner_of,
)
from evalflows.llm import loop
from evalflows.llm.connect import completer
from evalflows.llm.connections import AUTO_MODEL, key_source, lacks_key, resolve, shared, without_key
from evalflows.llm.ledger import Ledger
from evalflows.llm.local import identity_of
from evalflows.specs.code_versions import fault_text
from evalflows.specs.columns import answer_row
from evalflows.specs.comparison import OTHER_NAMES, VOTE_FIELDS, ComparisonSpec, OrderStatus, VotesSpec
from evalflows.specs.errors import CallError, Complete, Completion, InputError, kept_apart, short
from evalflows.specs.evaluator import CompositeSpec, EvaluatorSpec, FallbackSpec, JudgeSpec, MetricSpec, TierSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.failure_modes import CLOSED_MODES, TaxonomySpec, load_taxonomy
from evalflows.specs.files import located, make_spec
from evalflows.specs.gate import GateSpec
from evalflows.specs.reference import FILES, load, parts_of, refer, version_of
from evalflows.specs.running import ConnectionSpec, LocalConnection
from evalflows.specs.target import ChatTarget, HttpTarget, PythonTarget, RecordedTarget, TargetSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.file_formats import Numbered, read_rows
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.queries.progress import judgement_id, pair_id
from evalflows.store.records import ComparisonSetRow, ExampleRow, Json, JudgementRow, dependent_id, derived_id, to_json
from evalflows.store.schemas import is_erased
from evalflows.store.store import Store
from evalflows.targets import Target, chat, http, python, recorded, recorded_column, replayed

__all__ = ["Trial", "try_connections"]


@dataclass(frozen=True, slots=True)
class Revision:
    """The state of a git checkout; all None outside of one."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None


def revision() -> Revision:
    """Return the state of the git checkout that contains the current folder."""
    # one call, since starting git takes longer than its work; reports and results are no changes
    status = _git("status", "--porcelain=v2", "--branch", "--untracked-files=no")
    if status is None:  # none here, or it took too long
        return Revision(git_commit())
    lines = status.splitlines()
    said = dict(line.removeprefix("# ").split(" ", 1) for line in lines if line.startswith("# "))
    if (commit := said.get("branch.oid", "(initial)")) == "(initial)":
        return Revision()
    branch = "HEAD" if said["branch.head"] == "(detached)" else said["branch.head"]
    return Revision(commit, branch, dirty=len(said) < len(lines))


def git_commit() -> str | None:
    """Return the commit of that checkout alone, without a look at its files; None outside of one."""
    return _git("rev-parse", "HEAD")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def id_of_run_key(kind: Literal["group", "cmp"], run_key: str) -> str:
    """Return the id of the run group, or of the comparison, of all starts with this run key."""
    return dependent_id(kind, NO_TIME, "run_key", run_key)


def experiment_id(group: str, target: str) -> str:
    """Return the id of the experiment of a target in a run group."""
    return dependent_id("exp", group, group, target)


def without_live_references(evaluators: str) -> list[dict[str, object]]:
    """Return the evaluators of a row without references to live functions.

    These differ between processes, though the versions are the same.
    """
    return [
        {name: value for name, value in evaluator.items() if not str(value).startswith("live:")}
        for evaluator in json.loads(evaluators)
    ]


def code_of_evaluators(evaluators: str) -> dict[str, str]:
    """Return a hash of each part of the user's code in the evaluators of a row."""
    return {name: digest for one in json.loads(evaluators) for name, digest in one.get("code", {}).items()}


def evaluator_labels(evaluators: str) -> set[str]:
    """Return name, version and sample of each evaluator of a row, for messages."""
    return {
        f"{evaluator['name']}@{evaluator['version']}" + (f" of {evaluator['sample']}" if "sample" in evaluator else "")
        for evaluator in json.loads(evaluators)
    }


_BOUNDS = {"higher_is_better", "range"}


def make_target(spec: TargetSpec, complete: Complete | None, examples: Sequence[ExampleRow], store: Store) -> Target:
    """Return the target that a spec describes. Raise InputError if it cannot be used."""
    match spec:
        case ChatTarget():
            if complete is None:
                raise TypeError("a chat target needs complete")
            return chat(spec, complete)
        case PythonTarget():
            return python(load(spec.function), shared_fields(examples), spec.timeout_s)
        case HttpTarget():
            from evalflows.llm.post import poster  # late: only these targets need its HTTP client

            return http(spec, poster(spec))
        case RecordedTarget():
            return recording_of(spec, store)


def recording_of(spec: RecordedTarget, store: Store) -> Target:
    """Return a target that replays recorded answers. Raise InputError if they cannot be found."""
    if spec.column is not None:
        return recorded_column(spec.column)
    if spec.experiment is not None:
        (identity,) = find_experiments(store, spec.experiment)
        outputs = (row for row in store.rows("outputs", identity) if not is_erased(row.outputs))
        return replayed(outputs, f"experiment {identity}")
    where = spec.path or ""
    return recorded(_answers(spec, where), where)


def _answers(spec: RecordedTarget, where: str) -> Numbered:
    for number, row in read_rows(where):
        try:
            yield number, row if spec.columns is None else answer_row(row, spec.columns)
        except InputError as error:
            raise InputError(f"{where}:{number}: {error}") from error


NOT_IN_VERSION = {"name", "function", "path", "version", "version_url", "version_header", "usage"}
"""Fields of a target that do not change its answers, or whose content counts instead."""


def target_version(spec: TargetSpec, connections: Mapping[str, ConnectionSpec]) -> str:
    """Return a hash of a target's spec, of the code or answers that it names, and of the endpoint of its model.

    What an HTTP application says its version is does not count: see `application_version`.
    """
    settings = spec.model_dump_json(exclude=NOT_IN_VERSION)
    match spec:
        case PythonTarget():
            return version_of(load(spec.function), spec.model_dump_json(exclude=NOT_IN_VERSION | {"timeout_s"}))
        case HttpTarget():
            return version_of(http, settings)
        case RecordedTarget():
            return version_of(recorded, settings, _file_digest(spec.path) if spec.path else "")
        case ChatTarget():
            return version_of(chat, settings, served(spec.connection, connections, spec.model))


def target_code(spec: TargetSpec) -> dict[str, str] | None:
    """Return a hash of each part of the user's code that a target runs; None for a target without code of the user."""
    return parts_of(load(spec.function)) if isinstance(spec, PythonTarget) else None


def said_version(spec: TargetSpec) -> str | None:
    """Return the version that the spec gives, or that an HTTP application says; None if neither does."""
    if not isinstance(spec, HttpTarget):
        return spec.version
    from evalflows.llm.post import application_version

    return application_version(spec)


def served(name: str | None, connections: Mapping[str, ConnectionSpec], model: str | None) -> list[str | None]:
    """Return what identifies a connection's answers: the endpoint and the model."""
    if name is None:
        return []
    connection = resolve(name, connections)
    if isinstance(connection, LocalConnection):
        return [identity_of(connection)]
    return [connection.base_url.rstrip("/"), model or connection.model]


def bind_evaluator(spec: FallbackSpec, scope: Scope = "item") -> Bound:
    """Load and check an evaluator. Raise InputError if it does not exist or asks for unknown arguments.

    An evaluator of another project gets an adapter; its single score gets the spec's name if that differs.
    """
    loaded = named(spec.use)
    if is_ours(spec) and (scope == "pair") != (spec.use in evaluators.PAIRWISE):
        compares, other = "compares two answers, wanted it under compare", "judges one answer, wanted one that compares"
        wanted = f"{other} two: {', '.join(evaluators.PAIRWISE)}" if scope == "pair" else compares
        raise InputError(f"evaluator {spec.metric!r}: {spec.use} {wanted}")
    if scope == "pair" and not isclass(loaded):
        return bind(loaded, name=spec.metric, settings=spec.args, scope=scope)
    renamed = bool(spec.name) and spec.name != evaluator_name(loaded)
    one_run = scope == "item"
    adapter = adapted(loaded, name=spec.metric, settings=spec.args, renamed=renamed, one_run=one_run)
    if adapter is None and isclass(loaded):
        bound = bind(_instance(loaded, spec), name=spec.metric, scope=scope)
    else:
        bound = bind(adapter or loaded, name=spec.metric, settings={} if adapter else spec.args, scope=scope)
    if not isinstance(spec, EvaluatorSpec) or spec.repeats == 1:
        return bound
    settings = dict(bound.settings)
    if is_ours(spec) and "temperature" in signature(bound.function).parameters:
        settings.setdefault("temperature", 1.0)  # repeats at 0 would be equal
    return replace(bound, settings=settings, repeats=spec.repeats, combine=spec.combine)


def _instance(kind: type, spec: FallbackSpec) -> Callable[..., object]:
    """Return an instance of a user's class, constructed with the settings; it judges by being called."""
    who = f"evaluator {spec.metric!r}"
    if "__call__" not in dir(kind) or kind.__call__ is type.__call__:
        raise InputError(
            f"{who}: {spec.use!r} is a class that cannot be called, wanted a function, or one with __call__"
        )
    try:
        instance: Callable[..., object] = kind(**spec.args)
    except Exception as error:  # whatever the user's constructor raises
        raise InputError(f"{who}: {spec.use!r} cannot be constructed with args: {fault_text(error)}") from error
    return instance


def is_ours(spec: FallbackSpec) -> bool:
    return spec.use in evaluators.SHORT_NAMES


def reference_to(function: Callable[..., object]) -> str:
    """Return how a spec names a function: the short name of one of ours, otherwise the result of `refer`."""
    short = evaluator_name(function)
    return short if getattr(evaluators, short, None) is function else refer(function)


def named_reference(function: Callable[..., object], name: str | None = None) -> dict[str, str]:
    """Return an evaluator function as fields of a spec; its name by default as other projects call its score."""
    return {"use": reference_to(function), "name": name or kept_apart(evaluator_name(function))}


def composite_version(composite: CompositeSpec, spec: ExperimentSpec | TraceEvaluationSpec) -> str:
    """Return a hash of a composite's weights and policy, and of the bounds of its parts."""
    bounds = {metric: spec.direction(metric).model_dump(include=_BOUNDS) for metric in sorted(composite.metrics)}
    own = [version_of(load(composite.function))] if composite.function else []
    return version_of(combined, composite.model_dump(exclude={"name", "function"}), bounds, *own)


def _file_digest(path: str) -> str:
    with located(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def shared_fields(examples: Sequence[ExampleRow]) -> frozenset[str]:
    """Return the fields that the inputs of all examples have in common."""
    common: frozenset[str] | None = None
    for example in examples:
        fields = frozenset(json.loads(example.inputs))
        common = fields if common is None else common & fields
    return common or frozenset()


DEFAULT_CONNECTION = "openai"
"""Connection of an evaluator that asks for `complete` and names none."""

Kind = TypeVar("Kind", bound=FallbackSpec)
Spec = TypeVar("Spec", bound=FallbackSpec, covariant=True)


@dataclass(frozen=True, kw_only=True)
class PreparedEvaluator(Generic[Spec]):
    """A bound evaluator, with its tiers and its fallback."""

    spec: Spec
    scope: Scope
    bound: Bound  # for a cascade its first tier, never called under the cascade's name
    tiers: "tuple[PreparedEvaluator[TierSpec], ...]" = ()
    fallback: "PreparedEvaluator[FallbackSpec] | None" = None

    @property
    def name(self) -> str:
        return self.spec.metric

    @property
    def connection(self) -> str | None:
        """The connection that it uses, if any."""
        if self.tiers or not self.bound.asks_for("complete", "embed"):
            return None
        return self.spec.connection or DEFAULT_CONNECTION

    @property
    def judges(self) -> "Sequence[PreparedEvaluator[FallbackSpec]]":
        """The evaluators that judge: its tiers, or the evaluator itself."""
        return self.tiers or (self,)

    @property
    def all(self) -> "Iterator[PreparedEvaluator[FallbackSpec]]":
        """The evaluator, its tiers and its fallback."""
        yield self
        yield from self.tiers
        if self.fallback is not None:
            yield self.fallback

    @property
    def is_ours(self) -> bool:
        """Whether all its judges are ours. Ours declare their metrics; others may give any."""
        return all(is_ours(judge.spec) for judge in self.judges)

    @cached_property
    def declared_metrics(self) -> Sequence[Mapping[str, MetricSpec]]:
        """The metrics that it, or each of its tiers, declares. Raise InputError for an invalid declaration."""
        return [declared_by(judge.bound.function, self.name, judge.spec.args) for judge in self.judges]

    @property
    def metrics(self) -> list[str]:
        """The metrics that it declares, and unless it is ours the metric of its own name."""
        declared = [metric for metrics in self.declared_metrics for metric in metrics]
        return declared if self.is_ours and declared else [self.name, *declared]


def prepare_evaluator(spec: Kind, scope: Scope = "item") -> PreparedEvaluator[Kind]:
    """Bind an evaluator, its tiers and its fallback. Raise InputError if one cannot be used."""
    if not isinstance(spec, JudgeSpec):
        return PreparedEvaluator(spec=spec, scope=scope, bound=bind_evaluator(spec, scope))
    tiers = tuple(prepare_evaluator(tier, scope) for tier in spec.tiers)
    bound = _cascade(spec, [tier.bound for tier in tiers]) if tiers else bind_evaluator(spec, scope)
    fallback = None if spec.fallback is None else prepare_evaluator(spec.fallback, scope)
    return PreparedEvaluator(spec=spec, scope=scope, bound=bound, tiers=tiers, fallback=fallback)


def evaluator_version(evaluator: PreparedEvaluator[FallbackSpec], connections: Mapping[str, ConnectionSpec]) -> str:
    """Return a hash of an evaluator's source, constants, settings, model and endpoint, and of its fallback."""
    spec, function = evaluator.spec, evaluator.bound.function
    if evaluator.tiers:
        decides = [tier.spec.model_dump(include={"decides", "decides_from", "decides_to"}) for tier in evaluator.tiers]
        return version_of(_cascade, decides, [evaluator_version(tier, connections) for tier in evaluator.tiers])
    judge = served(evaluator.connection, connections, spec.model)
    fallback = [evaluator_version(evaluator.fallback, connections)] if evaluator.fallback else []
    files = [located(spec.args[name]).read_bytes() for name in getattr(function, FILES, ()) if name in spec.args]
    repeats = [[bound.repeats, bound.combine]] if (bound := evaluator.bound).repeats > 1 else []
    return version_of(function, sorted(spec.args.items()), judge, *files, *fallback, *repeats)


def _cascade(spec: JudgeSpec, tiers: Sequence[Bound]) -> Bound:
    """Return a stand-in for all tiers: the first one, which is never called under this name."""
    return replace(tiers[0], name=spec.metric)


METRIC = "votes"
"""The metric of votes that name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One vote on the answers of two systems, as its row says it."""

    prompt: str
    first: str
    second: str
    winner: Winner | None  # None with a status
    scores: tuple[float, float] | None
    weight: float
    order: OrderStatus | None  # None: as for the file
    status: WithoutVerdict | Literal["scored"]
    comment: str | None
    metric: str
    metadata: Json | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """The votes of a file."""

    votes: Sequence[Vote]
    version: str  # hash of the file and of how it is read
    order: OrderStatus

    @property
    def systems(self) -> list[str]:
        """The names of the systems, sorted."""
        return sorted({name for vote in self.votes for name in (vote.first, vote.second)})

    @property
    def metrics(self) -> list[str]:
        return sorted({vote.metric for vote in self.votes})


def read_votes(spec: VotesSpec) -> Votes:
    """Read the votes of a file; it is read again only if it has changed.

    Raise InputError, with the row, for a file that cannot be read, without votes, and for an invalid row.
    """
    stat = located(spec.path).stat() if located(spec.path).exists() else None
    return _read(spec.model_dump_json(), None if stat is None else (stat.st_size, stat.st_mtime_ns))


@lru_cache(maxsize=2)
def _read(text: str, state: tuple[int, int] | None) -> Votes:
    spec, votes = VotesSpec.model_validate_json(text), []
    for number, row in read_rows(spec.path):
        try:
            votes.append(_vote(number, row, spec.columns))
        except ValueError as error:
            raise InputError(f"votes: {spec.path}:{number}: {error}") from error
    if not votes:
        raise InputError(f"votes: {spec.path}: got no votes, wanted at least one")
    how = to_json({"order": spec.order, "columns": spec.columns}).encode()
    version = hashlib.sha256(how + located(spec.path).read_bytes()).hexdigest()[:16]
    order = spec.order or order_status_of((vote.first, vote.second) for vote in votes)
    return Votes(votes=votes, version=version, order=order)


def _vote(number: int, row: Mapping[str, Any], columns: Mapping[str, str]) -> Vote:
    names = {field: columns.get(field) or _column(field, row) for field in VOTE_FIELDS}
    cells = {field: row.get(name) for field, name in names.items() if row.get(name) not in (None, "")}
    for field in ("first", "second"):
        if field not in cells:
            got = ", ".join(map(str, row)) or "nothing"
            raise ValueError(f"got {got}, wanted {names[field]!r}, or its column under votes.columns.{field}")
    first, second = str(cells["first"]), str(cells["second"])
    if first == second:
        raise ValueError(f"got {first!r} as {names['first']} and as {names['second']}, wanted two systems")
    winner, scores = _verdict(cells, first, second, names)
    return Vote(
        prompt=str(cells.get("prompt", f"vote {number}")),
        first=first,
        second=second,
        winner=winner,
        scores=scores,
        weight=_weight(cells.get("weight")),
        order=_order(cells.get("order")),
        status="scored" if winner else status_without_verdict(cells),
        comment=None if cells.get("comment") is None else str(cells["comment"]),
        metric=str(cells.get("metric", METRIC)),
        metadata=to_json({name: value for name, value in row.items() if name not in names.values()}, mend=True),
    )


def _column(field: str, row: Mapping[str, Any]) -> str:
    return next((name for name in (field, *OTHER_NAMES.get(field, ())) if name in row), field)


def _verdict(
    cells: Mapping[str, Any], first: str, second: str, names: Mapping[str, str]
) -> tuple[Winner | None, tuple[float, float] | None]:
    """The winner and the scores, which must agree; a winner may also be named by the column of its side."""
    given, scores = cells.get("winner"), cells.get("scores")
    sides: Mapping[str, Winner] = {names["first"]: "first", names["second"]: "second"}
    winner = sides.get(str(given)) or winner_of(given, first, second)
    if scores is None:
        return winner, None
    if isinstance(scores, str):
        with suppress(ValueError):  # text that is no JSON is refused below
            scores = json.loads(scores)
    preference = stated({"winner": winner, "scores": scores})
    return preference.winner, preference.scores


def _weight(given: object) -> float:
    if given is None:
        return 1.0
    try:
        weight = float(str(given))
    except ValueError:
        weight = 0.0
    if not 0 < weight < 1e12 or isinstance(given, bool):
        raise ValueError(f"weight: got {short(given)}, wanted a number above 0")
    return weight


def _order(given: object) -> OrderStatus | None:
    statuses: tuple[OrderStatus, ...] = get_args(OrderStatus)
    status = next((status for status in statuses if status == given), None)
    if given is not None and status is None:
        raise ValueError(f"order: got {short(given)}, wanted {', '.join(statuses)}")
    return status


def judgements_of(votes: Votes, row: ComparisonSetRow) -> Iterator[JudgementRow]:
    """Yield the judgement of each vote. Votes on the same pair and prompt are numbered as repetitions."""
    numbers: Counter[tuple[str, str, str, str]] = Counter()
    for vote in votes.votes:
        left, right = sorted((vote.first, vote.second))
        key = (vote.metric, vote.prompt, left, right)
        yield _judgement(vote, votes, row, numbers[key])
        numbers[key] += 1


def _judgement(vote: Vote, votes: Votes, row: ComparisonSetRow, repetition: int) -> JudgementRow:
    left, right = sorted((vote.first, vote.second))
    first: Side = "left" if vote.first == left else "right"
    left_score, right_score = in_order(first, *(vote.scores or (None, None)))
    runs = [derived_id(row.comparison_id, vote.metric, system, vote.prompt, repetition) for system in (left, right)]
    return JudgementRow(
        judgement_id=judgement_id(row.comparison_id, vote.metric, runs[0], runs[1], first, votes.version),
        subject_kind="pair",
        subject_id=pair_id(runs[0], runs[1], first),
        experiment_id=row.comparison_id,
        metric=vote.metric,
        example_id=vote.prompt,
        repetition=repetition,
        left_experiment_id=left,
        right_experiment_id=right,
        left_run_id=runs[0],
        right_run_id=runs[1],
        shown_first=first,
        order_status=vote.order or votes.order,
        weight=vote.weight,
        winner=winning_side(vote.winner, first),
        left_score=left_score,
        right_score=right_score,
        comment=vote.comment,
        status=vote.status,
        error="recorded without a verdict" if vote.status == "failed" else None,
        error_kind="raised" if vote.status == "failed" else None,
        evaluator=vote.metric,
        evaluator_version=votes.version,
        calls=0,
        calls_cached=0,
        metadata=vote.metadata,
    )


def voted_examples(rows: Sequence[JudgementRow]) -> list[ExampleRow]:
    """An example for each prompt of a comparison of votes, with the metadata of its first vote."""
    first = {row.example_id or "": row for row in reversed(rows)}
    return [
        ExampleRow(snapshot_id="", example_id=prompt, position=place, inputs="{}", metadata=row.metadata)
        for place, (prompt, row) in enumerate(sorted(first.items()))
    ]


QUESTION = "Answer with the one word OK."

Outcome = Literal["works", "fails", "not_tried"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The outcome of a trial call to a connection."""

    name: str
    outcome: Outcome
    message: str  # one line, without the key


def with_shared(own: Mapping[str, ConnectionSpec], named: set[str]) -> dict[str, ConnectionSpec]:
    """Return a spec's connections, with those it names from the shared file. Raise InputError for a broken file."""
    from_file = {name: connection for name, connection in shared().items() if name in named and name not in own}
    return {**own, **from_file}


def try_connections(connections: Mapping[str, ConnectionSpec]) -> Iterator[Trial]:
    """Ask each connection for one word, all at once, and yield the outcomes in order. Nothing is stored or retried.

    Connections without a key or a model are not called.
    """
    with TemporaryDirectory() as folder:
        store = Store(folder)
        trials = [_start(name, connection, store) for name, connection in connections.items()]
        for trial in trials:
            yield trial.result() if isinstance(trial, Future) else trial


def _start(name: str, connection: ConnectionSpec, store: Store) -> "Trial | Future[Trial]":
    model = connection.model or (AUTO_MODEL if name == "openai" else None)
    if reason := _why_not(connection, model):
        return Trial(name=name, outcome="not_tried", message=reason)
    key = None
    try:
        key = key_for(name, connection)
        once = connection.model_copy(update={"attempts": 1})
        # One ledger each: a cached answer of another connection says nothing about this key.
        complete = completer(name, once, Ledger(store, name, fresh=True), key=key, model=model)
    except (InputError, RuntimeError) as error:  # RuntimeError: not a GGUF file
        message = str(error).removeprefix(f"connection {name!r}: ")
        return Trial(name=name, outcome="fails", message=without_key(message, key))
    return loop.start(_try(name, complete, key))


def _why_not(connection: ConnectionSpec, model: str | None) -> str | None:
    """Return why a connection cannot be called; None if it can."""
    if lacks_key(connection):
        return key_source(connection)
    has_model = model or isinstance(connection, LocalConnection)
    return None if has_model else "no model configured, wanted one to ask"


async def _try(name: str, complete: Complete, key: str | None) -> Trial:
    try:
        answer = await _answer(complete)
    except CallError as error:
        message = " ".join(without_key(str(error), key).split())
        return Trial(name=name, outcome="fails", message=message)
    message = f"{answer.latency_s or 0:.2f} s, {answer.model} answered"
    return Trial(name=name, outcome="works", message=without_key(message, key))


async def _answer(complete: Complete) -> Completion:
    """Ask the question. Some models reject max_tokens for max_completion_tokens, and need room for reasoning."""
    try:
        return await complete(QUESTION, max_tokens=5)
    except CallError as error:
        if error.kind != "bad_request" or "max_tokens" not in str(error):
            raise
        return await complete(QUESTION, max_completion_tokens=200)


AnySpec = TypeVar("AnySpec", ExperimentSpec, TraceEvaluationSpec)


def with_metrics(spec: AnySpec, evaluators: Iterable[PreparedEvaluator[EvaluatorSpec]]) -> AnySpec:
    """Return the spec with the metrics that its evaluators declare; the spec's own fields take precedence.

    Raise InputError for an invalid declaration.
    """
    declared: dict[str, MetricSpec] = {}
    for evaluator in evaluators:
        for metrics in evaluator.declared_metrics:
            _check_agreed(evaluator, metrics, declared, spec)
            declared = {**metrics, **declared}  # the first declaration of a metric counts
    merged = {
        name: spec.metrics[name].or_else(metric) if name in spec.metrics else metric
        for name, metric in declared.items()
    }
    return spec.model_copy(update={"metrics": {**spec.metrics, **merged}})


def _check_agreed(
    evaluator: PreparedEvaluator[EvaluatorSpec],
    metrics: Mapping[str, MetricSpec],
    before: Mapping[str, MetricSpec],
    spec: ExperimentSpec | TraceEvaluationSpec,
) -> None:
    """Raise InputError if tiers declare a metric differently, unless the spec declares it."""
    for metric in metrics.keys() & before.keys() - spec.metrics.keys():
        if evaluator.tiers and metrics[metric] != before[metric]:
            first, second = (f"{m.range} {m.is_higher_better(metric)}" for m in (before[metric], metrics[metric]))
            difference = f"range or higher_is_better: {first} and {second}"
            raise InputError(
                f"evaluator {evaluator.name!r}: its tiers differ in {difference}; wanted the same for all tiers"
            )


Judge = TypeVar("Judge", bound=FallbackSpec)
Cascaded = TypeVar("Cascaded", bound=JudgeSpec)

PROMPT_SUFFIXES = (".md", ".txt")
"""Suffixes by which a prompt is taken as a file name."""


def with_prompts(spec: ExperimentSpec) -> ExperimentSpec:
    """Replace the files of prompts and taxonomies by their contents, so that versions and resumptions include them.

    Raise InputError for a file that cannot be read.
    """
    judges = {
        name: [with_all_prompts(judge) for judge in getattr(spec, name)]
        for name in ("evaluators", "summary_evaluators")
    }
    if spec.compare is None:
        return spec.model_copy(update=judges)
    pairwise = [with_all_prompts(judge) for judge in spec.compare.evaluators]
    return spec.model_copy(update={**judges, "compare": spec.compare.model_copy(update={"evaluators": pairwise})})


def with_all_prompts(judge: Cascaded) -> Cascaded:
    """Replace the prompt and the taxonomy of an evaluator, its fallback and its tiers."""
    fallback = None if judge.fallback is None else with_texts(judge.fallback)
    tiers = [with_texts(tier) for tier in judge.tiers]
    return with_texts(judge).model_copy(update={"fallback": fallback, "tiers": tiers})


def with_texts(judge: Judge) -> Judge:
    """Replace the file of one evaluator's prompt by its text, and that of a taxonomy by what decides on its modes.

    Raise InputError if one is invalid.
    """
    args, prompt = dict(judge.args), judge.args.get("prompt")
    if (taxonomy := taxonomy_of(judge)) is not None:
        args["taxonomy"] = taxonomy.settings
    if is_ours(judge) and isinstance(prompt, str) and prompt.endswith(PROMPT_SUFFIXES) and "\n" not in prompt:
        try:
            args["prompt"] = located(prompt).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"evaluator {judge.metric!r}: prompt {prompt!r}: cannot be read: {reason}") from error
    return judge if args == judge.args else judge.model_copy(update={"args": args})


def taxonomy_of(judge: FallbackSpec) -> TaxonomySpec | None:
    """Return the taxonomy of an evaluator of failure modes; None of others. Raise InputError if it is invalid."""
    given = judge.args.get("taxonomy") if judge.use == "failure_modes" else None
    if isinstance(given, dict):
        return make_spec(TaxonomySpec, {**given}, [], f"evaluator {judge.metric!r}: taxonomy")
    return load_taxonomy(given) if isinstance(given, str) else None


def with_closed_modes(spec: ExperimentSpec) -> ExperimentSpec:
    """Replace `closed_modes` of gates by a rule for each mode that is closed now.

    Raise InputError for a gate that has no rule then.
    """
    if all(gate.closed_modes is None for gate in spec.gates):
        return spec
    closed = closed_modes_of(spec)
    return spec.model_copy(update={"gates": [_with_closed_modes(gate, closed) for gate in spec.gates]})


def with_closed_modes_watched(spec: TraceEvaluationSpec) -> TraceEvaluationSpec:
    """Replace a watch rule on `closed_modes` by one on each mode that is closed now."""
    if all(rule.metric != CLOSED_MODES for rule in spec.watch):
        return spec
    closed, watch = closed_modes_of(spec), []
    for rule in spec.watch:
        if rule.metric != CLOSED_MODES:
            watch.append(rule)
            continue
        for metric in closed:
            name = f"{rule.name} {metric}" if rule.name else ""
            watch.append(rule.model_copy(update={"metric": metric, "name": name}))
    return spec.model_copy(update={"watch": watch})


def closed_modes_of(spec: ExperimentSpec | TraceEvaluationSpec) -> list[str]:
    """Return the metrics of the modes that are closed. Raise InputError for an invalid taxonomy."""
    taxonomies = [taxonomy for judge in spec.evaluators if (taxonomy := taxonomy_of(judge))]
    return [metric for taxonomy in taxonomies for metric in taxonomy.closed]


def _with_closed_modes(gate: GateSpec, closed: Sequence[str]) -> GateSpec:
    if gate.closed_modes is None:
        return gate
    rules = dict.fromkeys(closed, gate.closed_modes.at_most) | gate.confident_thresholds
    ruled = gate.model_copy(update={"closed_modes": None, "confident_thresholds": rules})
    if not ruled.metrics:
        raise InputError(f"gate {gate.name!r}: closed_modes: no failure mode is closed, wanted one, or another rule")
    return ruled


SAMPLE = {"sample_rate", "sample_seed", "sample_by", "sample_rates"}
"""Fields of an evaluator that define its sample. They belong to the experiment, not to the evaluator's version."""


@dataclass(frozen=True, kw_only=True)
class PreparedExperiment:
    """An experiment's spec, with its evaluators bound."""

    spec: ExperimentSpec
    evaluators: Sequence[PreparedEvaluator[EvaluatorSpec]]
    summary_evaluators: Sequence[PreparedEvaluator[EvaluatorSpec]]
    pairwise: Sequence[PreparedEvaluator[JudgeSpec]] = ()  # empty if prepared from an experiment's row

    @property
    def of_runs(self) -> Sequence[PreparedEvaluator[EvaluatorSpec]]:
        """All evaluators except the pairwise ones."""
        return (*self.evaluators, *self.summary_evaluators)

    @cached_property
    def given_metrics(self) -> list[str] | None:
        """The metrics that the evaluators give; None if one is not ours, since it may name others."""
        if not all(evaluator.is_ours for evaluator in self.of_runs):
            return None
        return list(dict.fromkeys(metric for evaluator in self.of_runs for metric in evaluator.metrics))

    @cached_property
    def described(self) -> dict[str, dict[str, Any]]:
        """The description of each evaluator and composite as stored with the experiments, by name."""
        described = [self._described(evaluator) for evaluator in self.of_runs]
        described += [
            {"name": composite.name, "version": composite_version(composite, self.spec), "scope": "composite"}
            for composite in self.spec.composites
        ]
        return {description["name"]: description for description in described}

    def _described(self, evaluator: PreparedEvaluator[EvaluatorSpec]) -> dict[str, Any]:
        spec = evaluator.spec
        sample = {"sample": spec.model_dump(mode="json", include=SAMPLE)} if spec.is_sampled else {}
        return {**described_evaluator(evaluator, self.spec), "scope": evaluator.scope, **sample}


@dataclass(frozen=True, kw_only=True)
class PreparedComparison:
    """A comparison's spec, with its evaluators bound."""

    spec: ComparisonSpec
    evaluators: Sequence[PreparedEvaluator[JudgeSpec]]

    @cached_property
    def described(self) -> list[dict[str, Any]]:
        """The description of each evaluator, or of each metric of the votes, as stored with the comparison."""
        if self.spec.votes is not None:
            votes = read_votes(self.spec.votes)
            return [{"name": metric, "use": "votes", "version": votes.version} for metric in votes.metrics]
        return [described_evaluator(evaluator, self.spec) for evaluator in self.evaluators]


def described_evaluator(
    evaluator: PreparedEvaluator[FallbackSpec], owner: ExperimentSpec | ComparisonSpec | TraceEvaluationSpec
) -> dict[str, Any]:
    """Return the description of an evaluator as stored with what it judged."""
    return {
        "name": evaluator.name,
        "use": evaluator.spec.use,
        "version": evaluator_version(evaluator, owner.connections),
        "declared_version": evaluator.spec.version,
        "code": {name: digest for one in evaluator.all for name, digest in parts_of(one.bound.function).items()},
    }


def prepare_experiment(spec: ExperimentSpec) -> PreparedExperiment:
    """Prepare a spec as a user wrote it, so that a resumption elsewhere uses the same.

    Raise InputError for a prompt file that cannot be read, an evaluator that cannot be used, a broken file of shared
    connections, and an invalid declaration of metrics.
    """
    spec = with_prompts(with_closed_modes(spec))
    bound = bind_experiment(spec)
    pairwise = _pairwise(spec.compare.evaluators if spec.compare else ())
    named = {target.connection for target in spec.targets if isinstance(target, ChatTarget)}
    named |= connections_of((*bound.of_runs, *pairwise))
    spec = spec.model_copy(update={"connections": with_shared(spec.connections, named)})
    return PreparedExperiment(
        spec=with_metrics(spec, bound.of_runs),
        evaluators=bound.evaluators,
        summary_evaluators=bound.summary_evaluators,
        pairwise=pairwise,
    )


def bind_experiment(spec: ExperimentSpec) -> PreparedExperiment:
    """Bind the evaluators of a spec that was prepared before and stored in an experiment's row."""
    return PreparedExperiment(
        spec=spec,
        evaluators=[prepare_evaluator(evaluator) for evaluator in spec.evaluators],
        summary_evaluators=[prepare_evaluator(evaluator, "run") for evaluator in spec.summary_evaluators],
    )


def prepare_comparison(spec: ComparisonSpec) -> PreparedComparison:
    """Prepare a comparison's spec as a user wrote it. Raise InputError as for an experiment."""
    spec = spec.model_copy(update={"evaluators": [with_all_prompts(evaluator) for evaluator in spec.evaluators]})
    bound = bind_comparison(spec)
    connections = with_shared(spec.connections, connections_of(bound.evaluators))
    return PreparedComparison(spec=spec.model_copy(update={"connections": connections}), evaluators=bound.evaluators)


def bind_comparison(spec: ComparisonSpec) -> PreparedComparison:
    """Bind the evaluators of a spec that was prepared before and stored in a comparison's row."""
    return PreparedComparison(spec=spec, evaluators=_pairwise(spec.evaluators))


def connections_of(evaluators: Iterable[PreparedEvaluator[FallbackSpec]]) -> set[str]:
    """Return the connections of evaluators, with those of their tiers and fallbacks."""
    return {judge.connection for evaluator in evaluators for judge in evaluator.all if judge.connection}


def _pairwise(evaluators: Iterable[JudgeSpec]) -> list[PreparedEvaluator[JudgeSpec]]:
    return [prepare_evaluator(evaluator, "pair") for evaluator in evaluators]
