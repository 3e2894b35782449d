"""Judge production items: read a chunk of them, map it, and let every evaluator judge what it has not judged yet."""

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.execution.judging import Run, is_final
from evalflows.execution.progress import tally
from evalflows.execution.running_traces import RunningTraceEvaluation, running_traces
from evalflows.execution.trace_chunks import CHUNKS_AT_ONCE, Counts, TraceChunk
from evalflows.execution.trace_items import items_of
from evalflows.execution.trace_judging import TraceJudging, composite_scores
from evalflows.execution.trace_runs import Item, run_of
from evalflows.llm import loop
from evalflows.llm.usage import NO_USAGE, Usage
from evalflows.specs.errors import UNREACHABLE
from evalflows.store.parquet import Store
from evalflows.store.queries.trace_items import ItemKey, scores_of_items
from evalflows.store.records import ScoreRow
from evalflows.store.schemas import TRACE_SCORE_TABLES
from evalflows.store.spool import Spool
from evalflows.tasks.provider_limit import within_provider_limits
from evalflows.tasks.retries import admitted, awaited, is_last_attempt, is_retry, only_transient, retry_later

MISSING = ("failed", "not_attempted")
"""Statuses of judgements that an item lacks."""


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=only_transient,
)
def judge_traces(chunk: TraceChunk) -> Counts:
    """Judge the items of a chunk that have no judgement by the same version of an evaluator yet.

    Raise TransientFailuresError if transient failures remain and Prefect will retry.
    """
    evaluation, last = running_traces(chunk.batch), is_last_attempt()
    store = evaluation.store
    before = _before(evaluation, chunk)
    pending = _pending(evaluation, chunk.keys, before)
    tally.begin(chunk, "judgements", (len(chunk.keys) - len(pending)) * len(evaluation.evaluators))
    items = items_of(store, chunk.batch.scope, pending)
    runs: list[Run] = loop.run(_runs(evaluation, items, chunk.owner))
    reopened(store, chunk.owner)
    with (
        admitted([chunk], "judgements", awaited(evaluation.evaluators)),
        within_provider_limits(evaluation.judging_on, len(runs) * len(evaluation.evaluators), CHUNKS_AT_ONCE),
        Spool(store, chunk.owner, chunk.part) as spool,
    ):
        of_evaluators = [row for row in before if row.evaluator not in evaluation.composite_versions]
        judging = TraceJudging(evaluation, items, spool, of_evaluators, partial(tally.add, chunk, "judgements"))
        loop.run(judging.judge(runs))
        combined = {(row.subject_id, row.evaluator) for row in before if row.status in ("scored", "not_applicable")}
        composites = composite_scores(evaluation, [output for _, output in runs], judging, combined)
        for score in composites:
            spool.add("scores", score, flush=False)
    if judging.transient and not last:
        retry_later(
            [(chunk, judging.transient)], "judgements", f"{judging.transient} judgements of {len(runs)} items failed"
        )
    return _counts(chunk, runs, judging, composites, before)


def reopened(store: Store, owner: str) -> None:
    """Make the sealed scores of a day open again, so that more can be added; chunks of a day come here at once."""
    with _reopening:
        store.reopen(owner, tuple(reversed(TRACE_SCORE_TABLES)))


_reopening = threading.Lock()


def _before(evaluation: RunningTraceEvaluation, chunk: TraceChunk) -> list[ScoreRow]:
    """Return the scores that the chunk's items have: those from before the batch, and in a retry, also its own."""
    keys = chunk.keys if is_retry() else [key for key in chunk.keys if key.id in chunk.scored]
    if not keys:
        return []
    return scores_of_items(evaluation.store, keys, evaluation.judged_by)


def _pending(evaluation: RunningTraceEvaluation, keys: Sequence[ItemKey], before: Iterable[ScoreRow]) -> list[ItemKey]:
    """Return the items that an evaluator has not judged yet, or that lack a composite."""
    names = {evaluator.bound.name for evaluator in evaluation.evaluators} | {*evaluation.composite_versions}
    judged: dict[str, set[str]] = {}
    for row in before:
        if is_final(row):
            judged.setdefault(row.subject_id, set()).add(row.evaluator)
    return [key for key in keys if not names <= judged.get(key.id, set())]


async def _runs(evaluation: RunningTraceEvaluation, items: Iterable[Item], owner: str) -> list[Run]:
    return [await run_of(item, evaluation.mapper, owner) for item in items]


def _counts(
    chunk: TraceChunk,
    runs: Sequence[Run],
    judging: TraceJudging,
    composites: Sequence[ScoreRow],
    before: Sequence[ScoreRow],
) -> Counts:
    known = {row.score_id for row in before if is_final(row)}
    now_judged = {run.run_id: judging.scores_of(run.run_id) for _, run in runs}
    rows = [row for found in now_judged.values() for row in found if row.score_id not in known]
    of_items = defaultdict(list, now_judged)
    for row in before:
        if row.subject_id not in now_judged:
            of_items[row.subject_id].append(row)
    failed = sum(all(row.status in MISSING for row in found) for found in of_items.values() if found)
    return Counts(
        fetched=len(chunk.keys),
        processed=len(chunk.keys) - failed,
        failed=failed,
        scores=sum(row.status == "scored" for row in rows),
        composites=sum(row.status == "scored" for row in composites),
        unreached=sum(row.error_kind in UNREACHABLE | {"stopped"} for row in rows),
        over_budget=sum(row.error_kind == "over_budget" for row in rows),
        usage=sum((_usage(row) for row in rows), NO_USAGE),
    )


def _usage(row: ScoreRow) -> Usage:
    cost = 0.0 if row.calls == 0 else row.cost_usd
    return Usage(
        calls=row.calls,
        calls_cached=row.calls_cached,
        tokens_in=row.tokens_in,
        tokens_out=row.tokens_out,
        cost_usd=cost,
    )
