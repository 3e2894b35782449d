"""Ending experiments: complete ones are sealed, the others stay open to be resumed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture

from llm import loop
from specs.errors import TRANSIENT, IncompleteError
from specs.experiment import ExperimentSpec
from store.parquet import Store
from store.progress import cached_calls, complete_scores, no_answers, no_judgements, spent, whats_missing
from store.records import ExperimentRow, now
from store.schemas import EXPERIMENT_TABLES
from tasks.experiment import forget

UNREACHABLE = TRANSIENT | {"authentication", "quota_exhausted"}
"""Kinds of error by which a judge has not been asked at all, so that a later attempt may bring every judgement."""


@task(cache_policy=NO_CACHE, persist_result=False)
def finish_experiments(rows: list[ExperimentRow]) -> list[str]:
    """Seal the experiments whose runs all have their rows. Returns what the others lack, in words."""
    store = Store()
    return [reason for row in rows if (reason := finish(store, row))]


@contextmanager
def calls_end_with_the_flow() -> Iterator[None]:
    """Where the flow is stopped in this block, the calls under way end, and none begins. What has finished is kept."""
    loop.allow()
    try:
        yield
    except BaseException:
        loop.stop()
        raise


def raise_what_failed(steps: Sequence[PrefectFuture[Any]], lacking: Sequence[str]) -> None:
    """Raises the first exception of a step, else IncompleteError if anything lacks."""
    for step in steps:
        if step.state.is_failed() or step.state.is_crashed():
            step.result()
    if lacking:
        raise IncompleteError("; ".join(lacking))


def finish(store: Store, row: ExperimentRow) -> str | None:
    """Write an experiment's last row, and seal it if no row lacks. Returns what is wrong with it, in words."""
    forget(row.experiment_id)
    if store.is_sealed("experiments", row.experiment_id):
        return _said(row)
    spec = ExperimentSpec.model_validate_json(row.spec)
    names = [evaluator.metric for evaluator in spec.evaluators] + [composite.name for composite in spec.composites]
    lacking = whats_missing(store, row, names, [evaluator.metric for evaluator in spec.summary_evaluators])
    sums = spent(store, row.experiment_id)
    ended = replace(
        row,
        state="incomplete" if lacking else "completed",
        reason=lacking or no_answers(store, row) or no_judgements(store, row, UNREACHABLE),
        calls=sums.calls,
        calls_cached=cached_calls(store, row.experiment_id),
        tokens_in=sums.tokens_in,
        tokens_out=sums.tokens_out,
        cost_usd=sums.cost_usd,
        ended_at=now(),
        recorded_at=now(),
    )
    store.append("experiments", row.experiment_id, "end", [ended])
    if not lacking:
        complete_scores(store, row.experiment_id)
        store.seal(row.experiment_id, EXPERIMENT_TABLES)
    return _said(ended)


def _said(row: ExperimentRow) -> str | None:
    return f"experiment {row.name!r} ({row.experiment_id}): {row.reason}" if row.reason else None
