"""Trace evaluations as jobs: production items as subjects of judging, prepared and judged in chunks."""

import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any, NamedTuple

from evalflows.engine.anchors import Stretch, anchors_of
from evalflows.engine.chunks import CHUNKS_AT_ONCE, Chunk
from evalflows.engine.composites import ScoresByRun, composite_rows
from evalflows.engine.experiments import JudgesAnswers, check_code
from evalflows.engine.items import Item, Mapper, answered_by, is_drawn, items_of, load_mapper, sampling_rate
from evalflows.engine.job import Drawn, Loaded, is_final
from evalflows.engine.panels import Seats, panel_rows, seats_of
from evalflows.engine.prepare import PreparedTraces, mapper_version
from evalflows.engine.results import Columns, EvaluationResult, run_scores
from evalflows.engine.run_context import RunContext
from evalflows.engine.running import EvaluatorFactory, RunnableEvaluator, endpoints_of, judging_workers
from evalflows.engine.spec_evaluators import connections_of
from evalflows.llm import loop
from evalflows.llm.ledger import NO_USAGE, Usage
from evalflows.specs.errors import REFUSED_BY_BUDGET, UNREACHABLE
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metrics import CompositeSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.described import to_described
from evalflows.store.queries.people_checks import PeopleAlphas, PeopleChecks, people_alphas, people_checks
from evalflows.store.queries.spending import judged_in_part
from evalflows.store.queries.traces import ItemKey, JudgedBy, batch_row, scores_of_items
from evalflows.store.records import ExampleRow, JudgementRow, OutputRow, derived_id
from evalflows.store.spool import Spool
from evalflows.store.store import Store
from evalflows.store.trace_records import SUBJECT_KINDS, WatermarkRow

KEYS_AT_ONCE = 50_000
"""Most keys of items in memory at a time."""


MISSING = ("failed", "not_attempted")
"""Statuses of judgements that an item lacks."""

Context = RunContext[PreparedTraces]


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
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in Counts.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceChunk(Chunk):
    """Items of one day that are judged together."""

    evaluation_id: str
    batch_id: str
    day: str
    number: int
    size: int
    packed: bytes  # the keys of its items, pickled: Prefect would look for futures in each
    scored: frozenset[str] = frozenset()  # the ids of those that had a score of the same version before
    counts: Counts = Counts()  # once it has been judged

    @property
    def owner(self) -> str:
        """The owner of the scores of an evaluation's items that began on one day."""
        return f"{self.evaluation_id}-{self.day}"

    @property
    def part_name(self) -> str:
        return f"{self.batch_id}-{self.number}"

    @property
    def n_items(self) -> int:
        return self.size

    @property
    def keys(self) -> list[ItemKey]:
        keys: list[ItemKey] = pickle.loads(self.packed)
        return keys

    def attempt_in(self, store: Store) -> datetime | None:
        ((found,),) = store.query("select max(recorded_at) from source.watermarks where batch_id = ?", [self.batch_id])
        moment: datetime | None = found
        return moment


def trace_chunks(
    batch: WatermarkRow, keys: Sequence[ItemKey], scored: frozenset[str], size: int, first: int
) -> list[TraceChunk]:
    """Divide items into chunks of a day and at most `size` items, numbered from `first`."""
    of_day = grouped((key.day, key) for key in keys)
    parts = [(day, of_day[day][i : i + size]) for day in sorted(of_day) for i in range(0, len(of_day[day]), size)]
    return [
        TraceChunk(
            evaluation_id=batch.evaluation_id,
            batch_id=batch.batch_id,
            day=day,
            number=number,
            size=len(chunk_keys),
            packed=pickle.dumps(chunk_keys),
            scored=scored & {key.id for key in chunk_keys},
        )
        for number, (day, chunk_keys) in enumerate(parts, start=first)
    ]


class AnsweredItem(NamedTuple):
    """An item of production as an example with its answer."""

    example: ExampleRow
    output: OutputRow
    item: Item


@dataclass(frozen=True, kw_only=True)
class TraceEvaluation(JudgesAnswers[AnsweredItem]):
    """What the chunks of one batch share. Its subjects are items of production, as runs."""

    called = "items"
    keeps_rows = True  # composites are made of them

    batch: WatermarkRow
    spec: TraceEvaluationSpec
    composite_versions: Mapping[str, str]
    mapper: Mapper
    mapper_version: str | None

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
        row, described = self.batch, to_described(self.run.prepared.described)
        check_code(row.batch_id, "evaluators or mapper", row.evaluators, described, in_cluster=in_cluster)

    def stretch(self, chunk: TraceChunk) -> Stretch:
        at_least = 1 if chunk.number == 0 else None
        return Stretch(self.batch.batch_id, 0, chunk.size, chunk.size, at_least, chunk.part_name)

    def load(self, chunk: TraceChunk) -> Loaded[AnsweredItem]:
        keys, tried = chunk.keys, judged_in_part(self.store, chunk.owner, chunk.part_name)
        known = chunk.scored.union(tried.values())
        asked = [key for key in keys if key.id in known]
        found = scores_of_items(self.store, asked, self.judged_by) if asked else []
        before, others = list[JudgementRow](), list[JudgementRow]()
        for row in found:
            (others if row.evaluator in self.composite_versions else before).append(row)
        pending = self._pending(keys, found)
        items = items_of(self.store, self.spec.scope, pending)
        subjects: list[AnsweredItem] = loop.run(self._answered(items, chunk.owner))
        n_done = (len(keys) - len(pending)) * len(self.evaluators)
        return Loaded(subjects, len(subjects), before, others, tried, n_done)

    def _pending(self, keys: Sequence[ItemKey], found: Iterable[JudgementRow]) -> list[ItemKey]:
        """Return the items that an evaluator has not judged yet, or that lack a composite."""
        names = {evaluator.bound.name for evaluator in self.evaluators} | {*self.composite_versions}
        judged: dict[str, set[str]] = {}
        for row in found:
            if is_final(row):
                judged.setdefault(row.subject_id, set()).add(row.evaluator)
        return [key for key in keys if not names <= judged.get(key.id, set())]

    async def _answered(self, items: Iterable[Item], owner: str) -> list[AnsweredItem]:
        return [AnsweredItem(*await answered_by(item, self.mapper, owner), item) for item in items]

    def sampled(self, evaluator: RunnableEvaluator, subjects: Sequence[AnsweredItem], numbers: list[int]) -> Drawn:
        """Return the items in the evaluator's sample. Others get no row: the same items are drawn whenever asked."""
        return [number for number in numbers if is_drawn(evaluator.spec, subjects[number].item)], []

    def columns(
        self, evaluator: RunnableEvaluator, subjects: Sequence[AnsweredItem], results: Sequence[EvaluationResult]
    ) -> Columns:
        rates = (sampling_rate(evaluator.spec, subject.item) for subject in subjects)
        return self._columns(
            [subject.output for subject in subjects],
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
        loaded: Loaded[AnsweredItem],
        rows_of: Callable[[str], list[JudgementRow]],
        spool: Spool,
    ) -> TraceChunk:
        """Add the composite scores of items, and count what became of them."""
        before, outputs = [*loaded.before, *loaded.others], [subject.output for subject in loaded.subjects]
        of_run = {output.run_id: rows_of(output.run_id) for output in outputs}
        composites = self._composites(outputs, of_run, before)
        for score in composites:
            spool.add("judgements", score, flush=False)
        known = {row.judgement_id for row in before if is_final(row)}
        made = {row.judgement_id: row for row in before if row.judgement_id in loaded.tried}
        made |= {row.judgement_id: row for rows in of_run.values() for row in rows if row.judgement_id not in known}
        scores = [row for row in made.values() if row.evaluator not in self.composite_versions]
        composites += [row for row in made.values() if row.evaluator in self.composite_versions]
        return replace(chunk, packed=b"", counts=_counts(chunk, of_run, before, scores, composites))

    def _composites(
        self, outputs: Sequence[OutputRow], of_run: ScoresByRun, before: Iterable[JudgementRow]
    ) -> list[JudgementRow]:
        """Return the composite scores of items, except those that they have."""
        known = {(row.subject_id, row.evaluator) for row in before if row.status in ("scored", "not_applicable")}
        scores = {output.run_id: [*of_run[output.run_id]] for output in outputs}
        rows = list[JudgementRow]()
        for composite in self.spec.composites:  # panels come first: other composites may be made of them
            left = [output for output in outputs if (output.run_id, composite.name) not in known]
            columns = partial(self._columns, version=self.composite_versions[composite.name])
            if composite.panel:
                made = panel_rows(composite, self._seats(composite), left, scores, columns)
            else:
                made = composite_rows(composite, self.spec, left, scores, columns)
            for row in made:
                scores[row.subject_id].append(row)
            rows += made
        return rows

    def _seats(self, panel: CompositeSpec) -> Seats:
        """Return who of a panel counts: judges that people's labels have rejected do not."""
        versions = {evaluator.bound.name: evaluator.version for evaluator in self.evaluators}
        checks, alphas = self.checks_and_alphas
        found = {metric: checks.get((versions[metric], metric)) for metric in panel.panel if metric in versions}
        rejected = {metric: check.rejection for metric, check in found.items() if check and check.rejection}
        return seats_of(panel, versions, rejected, alphas)

    @cached_property
    def checks_and_alphas(self) -> tuple[PeopleChecks, PeopleAlphas]:
        return people_checks(self.store), people_alphas(self.store)


def _counts(
    chunk: TraceChunk,
    of_run: ScoresByRun,
    before: Sequence[JudgementRow],
    scores: Sequence[JudgementRow],
    composites: Sequence[JudgementRow],
) -> Counts:
    """Count what became of a chunk's items, by the rows of its judgements, those made before, and those it made."""
    of_items = defaultdict(list, {item: list(rows) for item, rows in of_run.items()})
    for row in before:
        if row.subject_id not in of_run:
            of_items[row.subject_id].append(row)
    failed = sum(all(row.status in MISSING for row in rows) for rows in of_items.values() if rows)
    return Counts(
        fetched=chunk.size,
        processed=chunk.size - failed,
        failed=failed,
        scores=sum(row.status == "scored" for row in scores),
        composites=sum(row.status == "scored" for row in composites),
        unreached=Counter(str(row.error_kind) for row in scores if row.error_kind in UNREACHABLE | {"stopped"}),
        over_budget=sum(row.error_kind in REFUSED_BY_BUDGET for row in scores),
        usage=sum((_usage(row) for row in scores), NO_USAGE),
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


def trace_evaluation_of(run: Context, batch_id: str) -> TraceEvaluation:
    """Return the running evaluation of a batch, made on first use."""
    return run.job(batch_id, partial(_made, run, batch_id))


def _made(run: Context, batch_id: str) -> TraceEvaluation:
    batch = batch_row(run.store, batch_id)
    prepared = run.bound(lambda: TraceEvaluationSpec.model_validate_json(batch.spec))
    spec = prepared.spec
    budget = run.budget(batch)
    ledger = run.ledger(batch.evaluation_id)
    factory = EvaluatorFactory(spec, ledger, budget, run.calls, partial(run.batches, batch))
    versions = {judge.name: judge.version for judge in prepared.described if judge.scope != "mapper"}
    made = [factory.evaluator(evaluator, None) for evaluator in prepared.evaluators]
    evaluators = [replace(e, version=versions[e.bound.name]) if e.asks_for_scores else e for e in made]
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
        anchors=anchors_of(run.store, prepared, factory, evaluators, batch_id),
    )
