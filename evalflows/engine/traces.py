"""Trace evaluations: production items read from the store, mapped to inputs and outputs with their secrets masked,
and judged in chunks.
"""

import hashlib
import json
import threading
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from inspect import isawaitable, signature
from typing import Any, Literal

from evalflows.engine.experiments import JudgesRuns, Run
from evalflows.engine.job import Drawn, Loaded, is_final
from evalflows.engine.judge import ScoresByRun, composite_results
from evalflows.engine.preflight import check_judge, check_needs
from evalflows.engine.prepare import (
    SAMPLE,
    PreparedEvaluator,
    composite_version,
    connections_of,
    described_evaluator,
    prepare_evaluator,
    with_all_prompts,
    with_closed_modes_watched,
    with_metrics,
    with_shared,
)
from evalflows.engine.results import Columns, EvaluationResult, run_scores
from evalflows.engine.run_context import RunContext
from evalflows.engine.running import EvaluatorFactory, RunnableEvaluator, endpoints_of, judging_workers
from evalflows.llm import loop
from evalflows.llm.budget import Budget
from evalflows.llm.ledger import NO_USAGE, Ledger, Usage
from evalflows.llm.wrapped import plain
from evalflows.specs.code import check_loaded
from evalflows.specs.code_versions import fault_text
from evalflows.specs.dataset import TraceSelection
from evalflows.specs.errors import MEASURES, UNREACHABLE, InputError
from evalflows.specs.evaluator import EvaluatorSpec, as_key
from evalflows.specs.reference import load, name_of, parts_of, version_of
from evalflows.specs.traces import MAPPED, MEASURED, TRACES, TraceEvaluationSpec, TraceScope
from evalflows.specs.values import stored
from evalflows.store.conversations import conversation_rows
from evalflows.store.queries.traces import ItemKey, JudgedBy, condition, observations_of, scores_of_items
from evalflows.store.records import ExampleRow, Json, JudgementRow, OutputRow, derived_id, now, to_json
from evalflows.store.schemas import TRACE_SCORE_TABLES, records_of
from evalflows.store.spool import Spool
from evalflows.store.store import Store
from evalflows.store.trace_records import SUBJECT_KINDS, WatermarkRow
from evalflows.targets import length_of
from evalflows.telemetry.masking import Masking, SecretPattern, patterns_with
from evalflows.telemetry.views import (
    ObservationView,
    SessionView,
    ToolCall,
    TraceView,
    at_path,
    observation_view,
    parsed_path,
    session_view,
    trace_view,
)

KEYS_AT_ONCE = 50_000
"""Most keys of items in memory at a time."""
CHUNKS_AT_ONCE = 3
"""Chunks in work at a time: while one is judged, the next ones are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceChunk:
    """Items of one day that are judged together."""

    batch: WatermarkRow
    day: str
    number: int
    keys: Sequence[ItemKey]
    scored: frozenset[str] = frozenset()  # the ids of those that had a score of the same version before

    dispatch: None = None  # it is judged where it was started

    @property
    def chunks(self) -> "tuple[TraceChunk]":
        return (self,)

    @property
    def owner(self) -> str:
        """The owner of the scores of an evaluation's items that began on one day."""
        return f"{self.batch.evaluation_id}-{self.day}"

    @property
    def part(self) -> str:
        return f"{self.batch.batch_id}-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of the items of a chunk."""

    fetched: int = 0
    processed: int = 0
    failed: int = 0
    scores: int = 0
    composites: int = 0
    unreached: Counter[str] = field(default_factory=Counter)  # judgements that a later start may bring, by error kind
    over_budget: int = 0  # judgements that were not made, since the budget was used up
    usage: Usage = NO_USAGE

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            fetched=self.fetched + other.fetched,
            processed=self.processed + other.processed,
            failed=self.failed + other.failed,
            scores=self.scores + other.scores,
            composites=self.composites + other.composites,
            unreached=self.unreached + other.unreached,
            over_budget=self.over_budget + other.over_budget,
            usage=self.usage + other.usage,
        )


def trace_chunks(
    batch: WatermarkRow, keys: Sequence[ItemKey], scored: frozenset[str], size: int, first: int
) -> list[TraceChunk]:
    """Divide items into chunks of a day and at most `size` items, numbered from `first`."""
    of_day: defaultdict[str, list[ItemKey]] = defaultdict(list)
    for key in keys:
        of_day[key.day].append(key)
    parts = [(day, of_day[day][i : i + size]) for day in sorted(of_day) for i in range(0, len(of_day[day]), size)]
    return [
        TraceChunk(batch=batch, day=day, number=number, keys=part, scored=scored & {key.id for key in part})
        for number, (day, part) in enumerate(parts, start=first)
    ]


Item = TraceView | ObservationView | SessionView

NOT_CAPTURED = "its output was not captured"
"""Why an item cannot be judged if its instrumentation leaves content out."""


@dataclass(slots=True, kw_only=True)
class EvaluatorInputs:
    """What a mapper returns: what the evaluators of an item get. The name and the fields are Langfuse's."""

    input: Any
    output: Any
    expected_output: Any = None
    metadata: dict[str, Any] | None = None


Mapper = Callable[[Item], Any]
"""A function of an item that returns EvaluatorInputs, a mapping with its fields, or an awaitable of either."""


def load_mapper(given: str | dict[str, str] | None) -> Mapper:
    """Return the mapper that a spec names; by default one that takes an item's own input and output.

    Raise InputError for a function that does not exist, and for a path that cannot be read.
    """
    if given is None:
        return _as_it_is
    if isinstance(given, str):
        return _by_argument(load(given))
    for path in given.values():
        parsed_path(path)
    paths = {"input": "input", "output": "output", **given}
    return lambda item: EvaluatorInputs(
        **{name: at_path(item, paths[name]) if name in paths else None for name in MAPPED}
    )


def mapper_version(given: str | dict[str, str] | None) -> str | None:
    """Return the version of a mapper, which is that of its code or its paths; None for the default.

    The same evaluator judges an item again if it sees it through another mapper.
    """
    if given is None:
        return None
    return version_of(load(given)) if isinstance(given, str) else version_of(at_path, sorted(given.items()))


def _by_argument(function: Callable[..., Any]) -> Mapper:
    """Call a user's mapper with the item as `item`, Langfuse's name, or as its first argument."""
    if _accepts(function, item=None):
        return lambda item: function(item=item)
    if not _accepts(function, None):
        raise InputError(f"mapper {name_of(function)!r}: got other parameters, wanted one item, as `item` or the first")
    return function


def _accepts(function: Callable[..., Any], *arguments: object, **named: object) -> bool:
    try:
        signature(function).bind(*arguments, **named)
    except (TypeError, ValueError):
        return False
    return True


def _as_it_is(item: Item) -> EvaluatorInputs:
    """Map an item to its own input and output; of a session, to the whole conversation if it was captured."""
    session = item.id if isinstance(item, SessionView) else item.session_id
    others = {name: getattr(item, name) for name in ("user_id", "tags", "version", "environment")}
    metadata = {"session_id": session, **others}
    if isinstance(item, SessionView):
        messages = [message for trace in item.traces for message in _new_messages(trace)]
        return EvaluatorInputs(input={}, output={"messages": messages} if messages else None, metadata=metadata)
    return EvaluatorInputs(input=item.input, output=item.output, metadata=metadata)


def _new_messages(trace: TraceView) -> list[dict[str, Any]]:
    """Return what a trace adds to its session: the user's input and the application's output."""
    if isinstance(trace.input, str) or isinstance(trace.output, str):
        spoken = (("user", trace.input), ("assistant", trace.output))
        return [{"role": role, "content": content} for role, content in spoken if isinstance(content, str)]
    messages = trace.messages or []
    latest = max((place for place, message in enumerate(messages) if message["role"] == "user"), default=0)
    return [dict(message) for message in messages[latest:]]


ItemRun = tuple[ExampleRow, OutputRow, Item]
"""An item in the form of a run, and as it is."""

MISSING = ("failed", "not_attempted")
"""Statuses of judgements that an item lacks."""


async def run_of(item: Item, mapper: Mapper, owner: str) -> Run:
    """Return an item as evaluators judge it. If it cannot be mapped, its answer has failed, with the reason."""
    try:
        example, output = await mapped(item, mapper)
        return example, _output(item, output, owner)
    except Exception as error:  # whatever the user's mapper raises
        failed = f"mapper: {fault_text(error)}"
        return _example(item, dict.fromkeys(MAPPED)), _answer(item, owner, status="failed", error=failed)


async def mapped(item: Item, mapper: Mapper) -> tuple[ExampleRow, Any]:
    """Return an item as an example, and its output; None if it was not captured. Raise what the mapper raises."""
    given = mapper(item)
    fields = _fields(await given if isinstance(given, Awaitable) or isawaitable(given) else given)
    return _example(item, fields), fields["output"]


def _fields(given: Any) -> dict[str, Any]:
    fields: dict[str, Any]
    if isinstance(given, Mapping):
        fields = {name: given[name] for name in MAPPED if name in given}
    else:
        fields = {name: getattr(given, name) for name in MAPPED if hasattr(given, name)}
    if not fields:
        raise InputError(f"got {type(given).__name__}, wanted EvaluatorInputs, or a mapping with {', '.join(MAPPED)}")
    return dict.fromkeys(MAPPED) | fields


def _example(item: Item, fields: Mapping[str, Any]) -> ExampleRow:
    expected = fields["expected_output"]
    return ExampleRow(
        snapshot_id="",
        example_id=item_id(item),
        position=0,
        inputs=_json(_as_mapping(fields["input"], "input")),
        reference_outputs=None if expected is None else _json(_as_mapping(expected, "output")),
        metadata=_json(fields["metadata"] or {}),
        cluster=item.id if isinstance(item, SessionView) else item.session_id,
    )


def _output(item: Item, output: Any, owner: str) -> OutputRow:
    """Return the answer that is judged. What was not captured is no blank: the item has failed, with that reason."""
    if output is None:
        error = NOT_CAPTURED
        if not isinstance(item, SessionView) and item.status == "error":
            error = "the application failed"
        return _answer(item, owner, status="failed", error=error)
    outputs = _as_mapping(output, "output")
    return _answer(item, owner, status="ok", outputs=_json(outputs), length=length_of(plain(outputs)))


def _answer(item: Item, owner: str, **fields: Any) -> OutputRow:
    measured = {} if isinstance(item, SessionView) else _measured(item)
    return OutputRow(
        run_id=item_id(item),
        experiment_id=owner,
        example_id=item_id(item),
        repetition=0,
        steps=_json(_steps(item)),
        started_at=item.started_at,
        **measured,
        **fields,
    )


def _measured(item: TraceView | ObservationView) -> dict[str, Any]:
    return {name: getattr(item, name) for name in ("latency_s", "tokens_in", "tokens_out", "cost_usd")}


def _steps(item: Item) -> list[dict[str, Any]]:
    """Return the tool calls of an item as steps of a run, which evaluators of agents read."""
    traces = item.traces if isinstance(item, SessionView) else [item]
    return [_step(call) for trace in traces for call in trace.tool_calls]


def _step(call: ToolCall) -> dict[str, Any]:
    return {"kind": "tool", "name": call.name, "inputs": call.arguments, "outputs": call.result, "error": call.error}


def item_id(item: Item) -> str:
    """Return the id under which an item is judged: an observation's begins with that of its trace."""
    return f"{item.trace_id}/{item.id}" if isinstance(item, ObservationView) else item.id


def _as_mapping(value: Any, only: str) -> dict[str, Any]:
    try:
        simple = stored(value, only)
    except InputError:  # an object of a mapper, as text
        simple = plain(value)
    return simple if isinstance(simple, dict) else {} if simple is None else {only: simple}


def _json(value: Any) -> str:
    return to_json(plain(value), mend=True)


@dataclass(frozen=True, kw_only=True)
class TraceEvaluation(JudgesRuns[ItemRun]):
    """What the chunks of one batch share. Its subjects are items of production, as runs."""

    called = "items"
    keeps_rows = True  # composites are made of them

    batch: WatermarkRow
    spec: TraceEvaluationSpec
    composite_versions: Mapping[str, str]
    mapper: Mapper
    mapper_version: str | None
    tried: set[str] = field(default_factory=set)
    """Parts that were judged before in this process, so that their items may have judgements."""

    @property
    def judged_by(self) -> JudgedBy:
        """Whose scores make an item judged: those of its evaluators, with their tiers and fallbacks, and composites."""
        versions = [judge.version for evaluator in self.evaluators for judge in evaluator.all]
        return JudgedBy(
            evaluation_id=self.batch.evaluation_id,
            kind=SUBJECT_KINDS[self.spec.scope],
            versions=[*versions, *self.composite_versions.values()],
            mapper_version=self.mapper_version,
        )

    @property
    def n_chunks(self) -> int:
        return CHUNKS_AT_ONCE

    def check_code(self, *, in_cluster: bool = True) -> None:
        """Do nothing: its chunks are judged where it was started."""

    def load(self, chunk: TraceChunk) -> Loaded[ItemRun]:
        keys = chunk.keys if chunk.part in self.tried else [key for key in chunk.keys if key.id in chunk.scored]
        self.tried.add(chunk.part)
        found = scores_of_items(self.store, keys, self.judged_by) if keys else []
        before, others = list[JudgementRow](), list[JudgementRow]()
        for row in found:
            (others if row.evaluator in self.composite_versions else before).append(row)
        pending = self._pending(chunk.keys, found)
        items = items_of(self.store, chunk.batch.scope, pending)
        runs: list[ItemRun] = loop.run(self._runs(items, chunk.owner))
        reopen(self.store, chunk.owner)
        n_done = (len(chunk.keys) - len(pending)) * len(self.evaluators)
        return Loaded(runs, len(runs), before, others, n_done)

    def _pending(self, keys: Sequence[ItemKey], found: Iterable[JudgementRow]) -> list[ItemKey]:
        """Return the items that an evaluator has not judged yet, or that lack a composite."""
        names = {evaluator.bound.name for evaluator in self.evaluators} | {*self.composite_versions}
        judged: dict[str, set[str]] = {}
        for row in found:
            if is_final(row):
                judged.setdefault(row.subject_id, set()).add(row.evaluator)
        return [key for key in keys if not names <= judged.get(key.id, set())]

    async def _runs(self, items: Iterable[Item], owner: str) -> list[ItemRun]:
        return [(*await run_of(item, self.mapper, owner), item) for item in items]

    def sampled(self, evaluator: RunnableEvaluator, runs: Sequence[ItemRun], numbers: list[int]) -> Drawn:
        """Return the runs in the evaluator's sample. Others get no row: the same items are drawn whenever asked."""
        return [number for number in numbers if is_drawn(evaluator.spec, runs[number][2])], []

    def columns(
        self, evaluator: RunnableEvaluator, runs: Sequence[ItemRun], results: Sequence[EvaluationResult]
    ) -> Columns:
        rates = (sampling_rate(evaluator.spec, item) for _, _, item in runs)
        return self._columns(
            [output for _, output, _ in runs],
            results,
            evaluator=evaluator.bound.name,
            version=evaluator.version,
            declared_version=evaluator.spec.version,
            sampling_rates=[None if rate == 1.0 else rate for rate in rates],
        )

    def _columns(
        self, outputs: Sequence[OutputRow], results: Sequence[EvaluationResult], *, version: str, **by: Any
    ) -> Columns:
        """Return the columns of the scores of items; `by` are the other keywords of `run_scores`."""
        owner, kind, mapper = self.batch.evaluation_id, SUBJECT_KINDS[self.spec.scope], self.mapper_version
        count, pairs = len(results), zip(outputs, results, strict=True)
        nothing = dict.fromkeys(("run_id", "example_id", "repetition"), (None,) * count)
        return {**run_scores(outputs, results, version=version, **by), **nothing} | {
            "judgement_id": [
                derived_id(owner, kind, output.run_id, result.turn, result.metric, version, mapper)
                for output, result in pairs
            ],
            "subject_kind": (kind,) * count,
            "subject_at": [output.started_at for output in outputs],
            "mapper_version": (mapper,) * count,
        }

    def combined(
        self,
        chunk: TraceChunk,
        loaded: Loaded[ItemRun],
        rows_of: Callable[[str], list[JudgementRow]],
        spool: Spool,
    ) -> Counts:
        """Add the composite scores of items, and count what became of them."""
        before, outputs = [*loaded.before, *loaded.others], [run[1] for run in loaded.subjects]
        of_run = {output.run_id: rows_of(output.run_id) for output in outputs}
        composites = self._composites(outputs, of_run, before)
        for score in composites:
            spool.add("judgements", score, flush=False)
        return _counts(chunk, of_run, composites, before)

    def _composites(
        self, outputs: Sequence[OutputRow], of_run: ScoresByRun, before: Iterable[JudgementRow]
    ) -> list[JudgementRow]:
        """Return the composite scores of items, except those that they have."""
        known = {(row.subject_id, row.evaluator) for row in before if row.status in ("scored", "not_applicable")}
        rows = list[JudgementRow]()
        for composite in self.spec.composites:
            metrics = {metric: self.spec.direction(metric) for metric in composite.metrics}
            left = [output for output in outputs if (output.run_id, composite.name) not in known]
            if made := [*composite_results(composite, metrics, left, of_run)]:
                of, results, rates = zip(*made, strict=True)
                version = self.composite_versions[composite.name]
                columns = self._columns(of, results, evaluator=composite.name, version=version, sampling_rates=rates)
                rows += records_of("judgements", columns, len(made))
        return rows


_reopening = threading.Lock()


def reopen(store: Store, owner: str) -> None:
    """Make the sealed scores of a day open again, so that more can be added; chunks of a day come here at once."""
    with _reopening:
        store.reopen(owner, tuple(reversed(TRACE_SCORE_TABLES)))


def _counts(
    chunk: TraceChunk, of_run: ScoresByRun, composites: Sequence[JudgementRow], before: Sequence[JudgementRow]
) -> Counts:
    known = {row.judgement_id for row in before if is_final(row)}
    rows = [row for found in of_run.values() for row in found if row.judgement_id not in known]
    of_items = defaultdict(list, {item: list(found) for item, found in of_run.items()})
    for row in before:
        if row.subject_id not in of_run:
            of_items[row.subject_id].append(row)
    failed = sum(all(row.status in MISSING for row in found) for found in of_items.values() if found)
    return Counts(
        fetched=len(chunk.keys),
        processed=len(chunk.keys) - failed,
        failed=failed,
        scores=sum(row.status == "scored" for row in rows),
        composites=sum(row.status == "scored" for row in composites),
        unreached=Counter(str(row.error_kind) for row in rows if row.error_kind in UNREACHABLE | {"stopped"}),
        over_budget=sum(row.error_kind == "over_budget" for row in rows),
        usage=sum((_usage(row) for row in rows), NO_USAGE),
    )


def _usage(row: JudgementRow) -> Usage:
    cost = 0.0 if row.calls == 0 else row.cost_usd
    return Usage(
        calls=row.calls,
        calls_cached=row.calls_cached,
        tokens_in=row.tokens_in,
        tokens_out=row.tokens_out,
        cost_usd=cost,
    )


@dataclass(frozen=True, kw_only=True)
class PreparedTraces:
    """A trace evaluation's spec, with its evaluators bound."""

    spec: TraceEvaluationSpec
    evaluators: Sequence[PreparedEvaluator[EvaluatorSpec]]

    @cached_property
    def described(self) -> list[dict[str, Any]]:
        """The evaluators, composites and the mapper as stored with each batch."""
        spec, mapper = self.spec, self.spec.mapper
        found = [
            {**described_evaluator(evaluator, spec), "sample": evaluator.spec.model_dump(mode="json", include=SAMPLE)}
            for evaluator in self.evaluators
        ]
        versions = {one["name"]: one["version"] for one in found}
        for one, evaluator in zip(found, self.evaluators, strict=True):
            if any(judge.bound.asks_for("evaluations", "scores") for judge in evaluator.all):
                one["version"] = _version_with(versions, one["version"], but=one["name"])
        versions = {one["name"]: one["version"] for one in found}
        found += [
            {
                "name": composite.name,
                "version": _version_with(versions, own := composite_version(composite, spec)),
                "definition": own,  # its version without its evaluators
                "scope": "composite",
            }
            for composite in spec.composites
        ]
        if mapper is not None:
            code = parts_of(load(mapper)) if isinstance(mapper, str) else mapper
            found.append({"name": "mapper", "version": mapper_version(mapper), "scope": "mapper", "code": code})
        return found


def _version_with(versions: Mapping[str, str], own: str, *, but: str | None = None) -> str:
    """Return the version of what is made of the scores of evaluators: theirs count for it.

    Otherwise a changed evaluator would leave a composite of its old scores.
    """
    others = sorted(version for name, version in versions.items() if name != but)
    return hashlib.sha256(repr([own, others]).encode()).hexdigest()[:16]


def prepare_traces(spec: TraceEvaluationSpec) -> PreparedTraces:
    """Check a spec as a user wrote it, and write prompts, shared connections and declared metrics into it.

    Raise InputError for a filter, a mapper, an evaluator or a connection that cannot be used.
    """
    spec = with_closed_modes_watched(spec)
    spec = spec.model_copy(update={"evaluators": [with_all_prompts(judge) for judge in spec.evaluators]})
    evaluators = [prepare_evaluator(evaluator) for evaluator in spec.evaluators]
    spec = spec.model_copy(update={"connections": with_shared(spec.connections, connections_of(evaluators))})
    spec = with_metrics(spec, evaluators)
    for evaluator in evaluators:
        for judge in evaluator.all:
            check_judge(judge, spec)
    check_needs(evaluators)
    _check_composites(spec, evaluators)
    _check_watch(spec, evaluators)
    condition(spec.filter, spec.scope)
    load_mapper(spec.mapper)
    if isinstance(spec.mapper, str):
        check_loaded("mapper", load(spec.mapper))
    return PreparedTraces(spec=spec, evaluators=evaluators)


Context = RunContext[PreparedTraces]


def trace_evaluation_of(run: Context, batch: WatermarkRow) -> TraceEvaluation:
    """Return the running evaluation of a batch, made on first use."""
    return run.job(batch.batch_id, partial(_made, run, batch))


def _made(run: Context, batch: WatermarkRow) -> TraceEvaluation:
    prepared = run.prepared
    spec = prepared.spec
    budget = Budget(usd=spec.budget_usd, calls=spec.max_calls, counts_unknown=spec.budget_counts_unknown)
    factory = EvaluatorFactory(spec, Ledger(run.store, batch.evaluation_id, fresh=not spec.use_cache), budget)
    versions = {one["name"]: one["version"] for one in prepared.described if one.get("scope") != "mapper"}
    made = [factory.evaluator(evaluator, None) for evaluator in prepared.evaluators]
    evaluators = [replace(one, version=versions[one.bound.name]) if one.asks_for_scores else one for one in made]
    return TraceEvaluation(
        run=run,
        batch=batch,
        spec=spec,
        evaluators=evaluators,
        composite_versions={composite.name: versions[composite.name] for composite in spec.composites},
        mapper=load_mapper(spec.mapper),
        mapper_version=mapper_version(spec.mapper),
        judging=judging_workers(spec, connections_of(prepared.evaluators)),
        judging_on=endpoints_of(evaluators),
        ledger=factory.ledger,
        budget=budget,
        made_at=now(),
    )


def _check_composites(spec: TraceEvaluationSpec, prepared: Sequence[PreparedEvaluator[EvaluatorSpec]]) -> None:
    """Raise InputError for a composite of a metric that no evaluator gives; evaluators of users may give any."""
    if not all(evaluator.is_ours for evaluator in prepared):
        return
    known = {metric for evaluator in prepared for metric in evaluator.metrics} | {*MEASURES}
    for composite in spec.composites:
        if unknown := composite.metrics - known:
            got, wanted = min(unknown), ", ".join(sorted(known))
            raise InputError(f"composite {composite.name!r}: no evaluator gives {got!r}, wanted one of {wanted}")


def _check_watch(spec: TraceEvaluationSpec, prepared: Sequence[PreparedEvaluator[EvaluatorSpec]]) -> None:
    """Raise InputError for a watch rule on a metric that nothing gives; evaluators of users may give any."""
    if not all(evaluator.is_ours for evaluator in prepared):
        return
    known = {metric for evaluator in prepared for metric in evaluator.metrics}
    known |= {composite.name for composite in spec.composites} | {*MEASURED}
    for rule in spec.watch:
        wanted = {*known, TRACES} if rule.kind == "failure_share" else known
        if rule.metric not in wanted:
            raise InputError(f"watch: no evaluator gives {rule.metric!r}, wanted one of {', '.join(sorted(wanted))}")


def items_of(store: Store, scope: TraceScope, keys: Sequence[ItemKey]) -> list[Item]:
    """Return the items as mappers get them, in the order of their keys."""
    by_trace = observations_of(store, keys)
    traces = {identity: rows for identity, rows in by_trace.items() if rows}
    match scope:
        case "observations":
            spans = {f"{row.trace_id}/{row.span_id}": row for rows in traces.values() for row in rows}
            return [observation_view(spans[key.id]) for key in keys if key.id in spans]
        case "sessions":
            of_session = [[trace_view(traces[one]) for one in key.trace_ids if one in traces] for key in keys]
            return [session_view(found) for found in of_session if found]
        case "traces":
            return [trace_view(traces[key.id]) for key in keys if key.id in traces]


AT_ONCE = 200
"""Items in memory at a time."""

Row = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class ExampleCounts:
    """What became of the selected items, and what was masked in the new examples."""

    added: int = 0
    known: int = 0  # in the dataset already
    duplicates: int = 0  # with the input of another one of this selection
    not_captured: int = 0  # the instrumentation left the content out
    failed: int = 0  # the mapper raised, or the conversation could not be divided
    unscored: int = 0  # without a score of the metric that orders them
    masked: Counter[str] = field(default_factory=Counter)
    first_failure: str | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """The examples of the dataset, by id and by input."""

    ids: set[str]
    inputs: set[bytes]


class TraceExamples:
    """The new examples of a selection, for a dataset that may have examples already."""

    def __init__(self, store: Store, selection: TraceSelection, known: Iterable[ExampleRow]) -> None:
        self._store, self._selection = store, selection
        self._mapper = _mapper(selection)
        self._patterns = patterns_with(selection.mask)
        before = [(example.example_id, input_key(example.inputs)) for example in known]
        self._known = _Known({identity for identity, _ in before}, {key for _, key in before})
        self.counts = ExampleCounts()

    def rows(self, keys: Sequence[ItemKey]) -> Iterator[Row]:
        """Yield the rows of the new examples, of items in this order, until the limit is reached."""
        seen: set[bytes] = set()
        for first in range(0, len(keys), AT_ONCE):
            for item in items_of(self._store, self._selection.scope, keys[first : first + AT_ONCE]):
                for row, masking in self._rows_of(item):
                    if self._selection.limit is not None and len(seen) >= self._selection.limit:
                        return
                    if self._is_new(row, seen):
                        self.counts.added += 1
                        self.counts.masked += masking.counts
                        yield row

    def _rows_of(self, item: Item) -> Iterator[tuple[Row, Masking]]:
        """Yield the rows of an item, each with its masking; count the item if it has none."""
        try:
            rows = list(self._mapped(item))
        except Exception as error:  # whatever the user's mapper raises
            self.counts.failed += 1
            self.counts.first_failure = self.counts.first_failure or f"{item_id(item)}: {fault_text(error)}"
            return
        if not rows:
            self.counts.not_captured += 1
        for row in rows:
            masking = Masking(self._patterns)
            yield _masked(row, masking, self._patterns), masking

    def _mapped(self, item: Item) -> Iterator[Row]:
        """Yield the rows of an item, secrets and all; none if its input was not captured."""
        example, output = loop.run(mapped(item, self._mapper))
        row: Row = {
            "id": example.example_id,
            "inputs": json.loads(example.inputs),
            "reference_outputs": json.loads(example.reference_outputs or "null"),
            "metadata": json.loads(example.metadata or "{}"),
            "cluster": example.cluster,
            "origin": _origin(item),
        }
        keeps = self._selection.keep_output_as_reference
        if isinstance(item, SessionView) and self._selection.mapper is None:
            if output:
                yield from _turns(row | {"inputs": output}, self._selection.turns or "whole", keeps=keeps)
        elif row["inputs"]:
            if keeps and row["reference_outputs"] is None and output is not None:
                row["reference_outputs"] = plain(output)
            yield row

    def _is_new(self, row: Row, seen: set[bytes]) -> bool:
        """Whether no example has this input yet; count the row if one has."""
        key = input_key(to_json(row["inputs"], mend=True))
        is_repeated = key in seen
        seen.add(key)
        if key in self._known.inputs or row["id"] in self._known.ids:
            self.counts.known += 1
            return False
        self.counts.duplicates += is_repeated
        return not is_repeated


def check_selection(selection: TraceSelection) -> None:
    """Raise InputError for a mapper that does not exist, or a path that cannot be read."""
    _mapper(selection)


def _mapper(selection: TraceSelection) -> Mapper:
    """Return the selection's mapper; by default the conversation of a session, or only the input and the output."""
    if selection.mapper is None:
        return load_mapper(None if selection.scope == "sessions" else {})
    return load_mapper(selection.mapper)


def input_key(inputs: Json) -> bytes:
    """Return a hash of inputs that is equal for those that differ only in case, spaces or forms of characters."""
    return hashlib.blake2b(to_json(_normalised(json.loads(inputs))).encode(), digest_size=16).digest()


def _normalised(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(unicodedata.normalize("NFKC", value).casefold().split())
    if isinstance(value, dict):
        return {name: _normalised(value[name]) for name in sorted(value)}
    return [_normalised(element) for element in value] if isinstance(value, list) else value


def _origin(item: Item) -> Row:
    """Return where an example comes from. The user's id is left out: it is personal, and says nothing of quality."""
    if isinstance(item, SessionView):
        source: Row = {"trace_ids": [trace.id for trace in item.traces]}
    else:
        source = {"trace_id": getattr(item, "trace_id", item.id)}
    return source | {"version": item.version, "started_at": item.started_at.isoformat()}


def _turns(row: Row, turns: Literal["whole", "next"], *, keeps: bool) -> Iterator[Row]:
    """Yield the examples of a conversation, with what the application said as the reference only if it is kept."""
    origin = row.pop("origin")
    for one in conversation_rows(row, turns):
        yield one | {"origin": origin} | ({} if keeps else {"reference_outputs": None})


def _masked(row: Row, masking: Masking, patterns: Sequence[SecretPattern]) -> Row:
    """Return a row without its secrets. An id with a secret becomes a hash of it, so that others stay apart from it."""
    return {
        "id": _safe_id(row["id"], patterns),
        "inputs": masking.value(row["inputs"]),
        "reference_outputs": masking.value(row["reference_outputs"]),
        "metadata": masking.value(row["metadata"]) | row["origin"],
        "cluster": _safe_id(row["cluster"], patterns),
    }


def _safe_id(identity: str | None, patterns: Sequence[SecretPattern]) -> str | None:
    if identity is None or Masking(patterns).text(identity) == identity:
        return identity
    return f"masked-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def is_drawn(spec: Any, item: Item) -> bool:
    """Whether an item is in an evaluator's sample: its trace's hash, from 0 to 1, is below the rate.

    So the same traces are drawn on every day and machine, and smaller samples are part of larger ones.
    """
    return _draw(spec.sample_seed, getattr(item, "trace_id", item.id)) < sampling_rate(spec, item)


def sampling_rate(spec: Any, item: Item) -> float:
    """Return the rate at which an evaluator judges items like this one: that of its stratum, else `sample_rate`."""
    if not isinstance(spec, EvaluatorSpec) or not spec.is_sampled:
        return 1.0
    if spec.sample_by is not None:
        value = at_path(item, spec.sample_by)
        values = value if isinstance(value, list) else [value]
        if rates := [spec.sample_rates[key] for key in map(as_key, values) if key in spec.sample_rates]:
            return max(rates)
    return spec.sample_rate or 1.0


def _draw(seed: int, identity: str) -> float:
    digest = hashlib.sha256(f"{seed} {identity}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2.0**64
