"""Trace evaluations as jobs: production items as subjects of judging, prepared and judged in chunks."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from evalflows.engine.chunks import NOTHING_PAID
from evalflows.engine.experiments import JudgesRuns
from evalflows.engine.items import Item, Mapper, is_drawn, items_of, load_mapper, run_of, sampling_rate
from evalflows.engine.job import Drawn, Loaded, is_final
from evalflows.engine.judge import ScoresByRun, composite_rows
from evalflows.engine.prepare import PreparedTraces, mapper_version
from evalflows.engine.results import Columns, EvaluationResult, run_scores
from evalflows.engine.run_context import RunContext
from evalflows.engine.running import EvaluatorFactory, RunnableEvaluator, endpoints_of, judging_workers
from evalflows.engine.spec_evaluators import connections_of
from evalflows.llm import loop
from evalflows.llm.ledger import NO_USAGE, Usage
from evalflows.specs.errors import UNREACHABLE
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.queries.traces import ItemKey, JudgedBy, scores_of_items
from evalflows.store.records import ExampleRow, JudgementRow, OutputRow, derived_id, now
from evalflows.store.schemas import TRACE_SCORE_TABLES
from evalflows.store.spool import Spool
from evalflows.store.trace_records import SUBJECT_KINDS, WatermarkRow

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


ItemRun = tuple[ExampleRow, OutputRow, Item]
"""An item in the form of a run, and as it is."""


MISSING = ("failed", "not_attempted")
"""Statuses of judgements that an item lacks."""


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
    reopening: threading.Lock = field(default_factory=threading.Lock)
    """Chunks of a day reopen its scores at once."""

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
        with self.reopening:  # so that more scores of a day can be added
            self.store.reopen(chunk.owner, tuple(reversed(TRACE_SCORE_TABLES)))
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
        self, chunk: TraceChunk, loaded: Loaded[ItemRun], rows_of: Callable[[str], list[JudgementRow]], spool: Spool
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
            left = [output for output in outputs if (output.run_id, composite.name) not in known]
            columns = partial(self._columns, version=self.composite_versions[composite.name])
            rows += composite_rows(composite, self.spec, left, of_run, columns)
        return rows


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


Context = RunContext[PreparedTraces]


def trace_evaluation_of(run: Context, batch: WatermarkRow) -> TraceEvaluation:
    """Return the running evaluation of a batch, made on first use."""
    return run.job(batch.batch_id, partial(_made, run, batch))


def _made(run: Context, batch: WatermarkRow) -> TraceEvaluation:
    prepared = run.prepared
    spec = prepared.spec
    budget = run.budget(spec, lambda: NOTHING_PAID)
    ledger = run.ledger(batch.evaluation_id, use_cache=spec.use_cache)
    factory = EvaluatorFactory(spec, ledger, budget, run.calls)
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
        ledger=ledger,
        budget=budget,
        made_at=now(),
    )
