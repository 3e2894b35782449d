"""Trace evaluations: batches of what is new in production, judged in chunks."""

from collections.abc import Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from functools import partial
from importlib.metadata import version

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture

from evalflows.engine.anchors import with_frozen_anchors
from evalflows.engine.preflight import check_traces
from evalflows.engine.quick_processes import QuickProcesses, is_quick, pays
from evalflows.engine.run_context import RunContext
from evalflows.engine.tally import Planned
from evalflows.engine.traces import KEYS_AT_ONCE, Context, Counts, TraceChunk, trace_chunks, trace_evaluation_of
from evalflows.specs.errors import UNREACHABLE, IncompleteError, InputError, kinds_in_words
from evalflows.specs.frozen import dataclass
from evalflows.specs.permitted import restricted_folder
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.database import keep_catalog
from evalflows.store.described import to_described
from evalflows.store.observations import last_recorded, open_owners, seal_past_days
from evalflows.store.queries import traces
from evalflows.store.queries.traces import condition
from evalflows.store.records import ExperimentState, after, now, to_json
from evalflows.store.schemas import TRACE_SCORE_TABLES
from evalflows.store.spool import ENDING_S, recover, spool_folder
from evalflows.store.store import Store
from evalflows.store.trace_records import WatermarkRow, evaluation_id
from evalflows.tasks.limits import check_limits
from evalflows.tasks.start import flow_run_id, id_of_start

AGAIN_FOR = timedelta(days=7)
"""How long after it was recorded an item is judged again if its judge could not be reached."""


CHUNK_SIZE, QUICK_CHUNK_SIZE = 200, 1_000
"""Items of a chunk: a task run takes as long as rules for some hundred items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """Items by when they began, whether they are new or not."""

    since: datetime | None = None
    until: datetime | None = None
    newest_first: bool = False  # all items; every backfill begins with the newest
    resume: str | None = None  # the batch whose rest is judged


@dataclass(slots=True, kw_only=True)
class Batch:
    """A batch in progress: what is left to judge, and what became of the rest."""

    run: Context
    row: WatermarkRow
    condition: str | None
    window: traces.Window
    again: list[traces.ItemKey]  # items of earlier batches whose judges could not be reached
    planned: Planned = field(default_factory=partial(Planned, owners=frozenset(), stage="judging traces"))  # so far
    counts: Counts = field(default_factory=Counts)
    n_chunks: int = 0
    is_done: bool = False  # all items of the window were judged

    @property
    def spec(self) -> TraceEvaluationSpec:
        return self.run.prepared.spec

    @property
    def left(self) -> int | None:
        """How many more items this start may take; None for all."""
        return None if self.spec.max_items is None else max(0, self.spec.max_items - self.counts.fetched)


@task(cache_policy=NO_CACHE, persist_result=False)
def start_batch(spec: TraceEvaluationSpec, backfill: Backfill | None = None) -> Batch:
    """Start a batch: of what is new since the evaluation's watermark, or of what began in the time of a backfill.

    Raise InputError for a spec that cannot work, and for a limit that Prefect does not have.
    """
    run: Context = RunContext.handed(spec) or RunContext(with_frozen_anchors(Store(), check_traces(spec)))
    run.reset()
    store, spec = run.store, run.prepared.spec
    check_limits(spec.connections)
    seal_past_days(store, now().date().isoformat())
    identity = evaluation_id(spec.name)
    for folder in spool_folder(store).glob(f"{identity}-*"):
        recover(store, folder.name, ENDING_S)
    window = _new(store, spec, identity) if backfill is None else _began(store, backfill)
    only = condition(spec.filter, spec.scope)
    traces.item_keys(
        store, spec.scope, only, window, 0
    )  # refuses a filter that DuckDB rejects, before anything is paid
    ((newest,),) = store.query("select max(recorded_at) from source.watermarks where evaluation_id = ?", [identity])
    started_at = after(newest)
    row = WatermarkRow(
        batch_id=id_of_start("batch"),
        evaluation_id=identity,
        name=spec.name,
        kind="schedule" if backfill is None else "backfill",
        scope=spec.scope,
        filter=None if spec.filter is None else to_json(spec.filter),
        evaluators=to_described(run.prepared.described),
        spec=spec.model_dump_json(),
        since=window.since,
        resumed_from=backfill.resume if backfill else None,
        state="running",
        evalflows_version=version("evalflows"),
        flow_run_id=flow_run_id(),
        started_at=started_at,
        recorded_at=started_at,
    )
    _write(store, row)
    batch = Batch(run=run, row=row, condition=only, window=window, again=[])
    batch.again = _again(batch) if backfill is None else []
    return batch


def _new(store: Store, spec: TraceEvaluationSpec, identity: str) -> traces.Window:
    """Return the window from the watermark to the items that have settled, by the time of recording.

    The newest recording counts as now if the clock was set back behind it.
    """
    query = """select until, until_id from source.watermarks
               where evaluation_id = ? and kind = 'schedule' and until is not null order by recorded_at desc limit 1"""
    found = store.query(query, [identity])
    since, last = found[0] if found else (None, None)
    until = _settled_until(store, timedelta(seconds=spec.settles_after_s))
    if last is None:
        return traces.Window(moment="recorded_at", since=since, until=max(until, since or until))
    earlier = since - timedelta(microseconds=1)  # the last item's moment is not done with
    return traces.Window(moment="recorded_at", since=earlier, until=max(until, since), behind=(since, last))


def _settled_until(store: Store, settle: timedelta) -> datetime:
    """Return up to which recording all items have settled.

    Those that were recorded before `settle` have. So have those that had ended by then, such as the rows of a file,
    up to the first that had not. In a run of a deployment, received spans count by their recording alone: after an
    outage, old ones arrive in pieces.
    """
    newest = last_recorded(store, "observations")  # of those that can be seen: later ones have a later time
    settled = max([now(), *filter(None, [newest])]) - settle
    if newest is None or newest <= settled:
        return settled
    is_live = "coalesce(ended_at, started_at) > $1" + (" or source = 'otlp'" if restricted_folder() else "")
    query = (
        f"select min(recorded_at) from source.observations where recorded_at > $1 and recorded_at <= $2 and ({is_live})"
    )
    ((first_live,),) = store.query(query, [settled, newest])
    return newest if first_live is None else max(settled, first_live - timedelta(microseconds=1))


def _began(store: Store, backfill: Backfill) -> traces.Window:
    """Return the window of a backfill, the newest first, or the rest of the one that it resumes."""
    since, until = backfill.since, backfill.until
    if since is not None and until is not None and since >= until:
        raise InputError(f"backfill: got from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M}, wanted a later end")
    behind = None
    if backfill.resume is not None:
        behind = traces.last_item(store, backfill.resume)
        since = since or traces.batch_row(store, backfill.resume).since
    return traces.Window(moment="started_at", since=since, until=until or now(), behind=behind, newest_first=True)


def _again(batch: Batch) -> list[traces.ItemKey]:
    """Return items of earlier batches whose judges could not be reached."""
    store, row, since = batch.run.store, batch.row, batch.row.started_at - AGAIN_FOR
    query = """select count(*) from source.watermarks where evaluation_id = ? and batch_id <> ? and started_at >= ?
               and state <> 'completed'"""
    if store.query(query, [row.evaluation_id, row.batch_id, since]) == [(0,)]:
        return []
    versions = trace_evaluation_of(batch.run, row.batch_id).judged_by.versions
    ids = traces.unreached(store, row.evaluation_id, versions, UNREACHABLE, since, KEYS_AT_ONCE)
    return traces.keys_of_items(store, batch.spec.scope, ids, since)


def next_chunks(batch: Batch) -> list[TraceChunk]:
    """Return the next chunks to judge, whose days are open for more scores; none if the batch has ended."""
    keys = batch.again or _next_keys(batch)
    batch.again = []
    if batch.left is not None:
        keys = keys[: batch.left]
    if not keys:
        return []
    run, spec = batch.run, batch.spec
    is_ours = not isinstance(spec.mapper, str) and not any(composite.function for composite in spec.composites)
    if run.processes is None and pays(run.prepared, len(keys), is_ours=is_ours):
        run.processes = QuickProcesses(spec.task_runner.processes)
    scored = traces.scored_items(run.store, keys, trace_evaluation_of(run, batch.row.batch_id).judged_by)
    size = spec.fetch_batch_size or (QUICK_CHUNK_SIZE if is_quick(run.prepared) else CHUNK_SIZE)
    chunks = trace_chunks(batch.row, keys, scored, size, batch.n_chunks)
    for owner in {chunk.owner for chunk in chunks}:
        run.store.reopen(owner, tuple(reversed(TRACE_SCORE_TABLES)))
    batch.n_chunks += len(chunks)
    batch.planned = replace(
        batch.planned,
        owners=batch.planned.owners.union(chunk.owner for chunk in chunks),
        judgements=batch.planned.judgements + len(keys) * len(spec.evaluators),
        of_item=len(spec.evaluators),
    )
    return chunks


def _next_keys(batch: Batch) -> list[traces.ItemKey]:
    """Return the keys of the next items in order, and move the window's start behind them."""
    limit = KEYS_AT_ONCE if batch.left is None else min(KEYS_AT_ONCE, batch.left)
    if batch.is_done or limit == 0 or batch.counts.over_budget:
        return []
    one_more = limit + 1  # to know whether it is the end
    keys = traces.item_keys(batch.run.store, batch.spec.scope, batch.condition, batch.window, one_more)
    batch.is_done = len(keys) <= limit
    keys = keys[:limit]
    if keys:
        batch.window = replace(batch.window, behind=(keys[-1].moment, keys[-1].id))
    return keys


def note_progress(batch: Batch, steps: Sequence[PrefectFuture[TraceChunk]], again: Sequence[TraceChunk]) -> None:
    """Count what became of chunks, some of them judged `again`, and move the watermark behind them.

    Raise what a chunk raised.
    """
    judged = {chunk.part_name: chunk for chunk in (*(step.result() for step in steps), *again)}
    batch.counts = sum((chunk.counts for chunk in judged.values()), batch.counts)
    _write(batch.run.store, _counted(batch, "running"))


def finish_batch(batch: Batch) -> str | None:
    """Write a batch's last row, and seal the scores of past days. Return what is wrong with it, in words."""
    store, reason = batch.run.store, _problem(batch)
    row = replace(_counted(batch, "incomplete" if reason else "completed"), reason=reason, ended_at=now())
    _write(store, row)
    today = now().date().isoformat()
    for owner in open_owners(store, "judgements", f"{row.evaluation_id}-"):
        if owner[-10:] < today:
            store.seal(owner, TRACE_SCORE_TABLES)
    store.seal(row.evaluation_id, ["watermarks"])
    batch.run.reset()
    keep_catalog(store.layout)
    return None if reason is None else f"trace evaluation {row.name!r} ({row.batch_id}): {reason}"


def raise_problem(batch: Batch, problem: str | None) -> None:
    """Raise IncompleteError if something is wrong with a batch."""
    if problem is not None:
        raise IncompleteError(problem, batch=batch.row.batch_id)


def _problem(batch: Batch) -> str | None:
    counts = batch.counts
    if counts.over_budget:
        return f"the budget is used up: {counts.over_budget} judgements were not made; the next start makes them"
    if counts.unreached:
        kinds = kinds_in_words(counts.unreached)
        return f"{counts.unreached.total()} judgements failed ({kinds}); the next start tries them again"
    return None


def _counted(batch: Batch, state: ExperimentState) -> WatermarkRow:
    counts, window = batch.counts, batch.window
    moment, last = window.behind or (batch.row.since, None)
    return replace(
        batch.row,
        until=window.until if batch.is_done else moment,
        until_id=None if batch.is_done else last,
        state=state,
        items_fetched=counts.fetched,
        items_processed=counts.processed,
        items_failed=counts.failed,
        scores_created=counts.scores,
        composite_scores_created=counts.composites,
        calls=counts.usage.calls,
        calls_cached=counts.usage.calls_cached,
        cost_usd=counts.usage.cost_usd,
        recorded_at=after(batch.row.recorded_at),
    )


def _write(store: Store, row: WatermarkRow) -> None:
    store.reopen(row.evaluation_id, ["watermarks"])
    store.append("watermarks", row.evaluation_id, row.batch_id, [row])
