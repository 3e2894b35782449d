"""Pairwise comparison: of the pairs of a chunk, every evaluator says which answer is better."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evaluators.call import offer_pair
from evaluators.subject import RunView
from llm import loop
from specs.errors import UNREACHABLE
from store.comparisons import judgement_id
from store.records import ComparisonRow, OutputRow, Winner, derived_id
from store.spool import Spool
from tasks.chunk import TransientFailuresError, is_last_attempt, only_transient
from tasks.comparison import Comparison, comparison
from tasks.execute import DEAR_S, MAY_PASS
from tasks.experiment import ReadyEvaluator
from tasks.judge import Fields, judged
from tasks.pairs import Bout, PairChunk, Side, bouts_of, pair_chunks
from tasks.progress import tally
from tasks.provider_limit import within_provider_limits
from tasks.subject import example_view, run_view

FAILED_OUTPUT = "failed output"
"""Who decided where a run failed, and no evaluator was asked."""

_OTHER: dict[Side, Side] = {"left": "right", "right": "left"}


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=only_transient,
    task_run_name="compare-{chunk.part}",
)
def compare_chunk(chunk: PairChunk) -> PairChunk:
    """Judge the pairs of a chunk that have no judgement yet.

    Raises TransientFailuresError while failures remain that another attempt may cure and Prefect will make one.
    """
    ready, last = comparison(chunk.comparison_id), is_last_attempt()
    bouts = list(bouts_of(chunk, ready.spec, ready.examples))
    before: list[ComparisonRow] = ready.store.read("comparisons", chunk.comparison_id, [chunk.part])
    with (
        within_provider_limits(ready.judging_on, len(bouts) * len(ready.evaluators), len(list(pair_chunks(ready.row)))),
        Spool(ready.store, chunk.comparison_id, chunk.part) as spool,
    ):
        comparing = _Comparing(ready, chunk, spool, before)
        loop.run(comparing.compare(bouts))
    if comparing.transient and not last:
        raise TransientFailuresError(f"{comparing.transient} judgements of {len(bouts)} pairs failed for now")
    return chunk


def is_settled(row: ComparisonRow) -> bool:
    """Whether it is of no use to judge again. A missing answer may yet come."""
    if row.status == "failed":
        return row.error_kind not in UNREACHABLE
    return row.status != "not_attempted"


class _Comparing:
    """The judgements of one chunk: those from before, and those that come now."""

    def __init__(self, ready: Comparison, chunk: PairChunk, spool: Spool, before: Iterable[ComparisonRow]) -> None:
        self._ready, self._chunk, self._spool = ready, chunk, spool
        self._done = {_key(row.evaluator, row) for row in before if is_settled(row) and not self._is_mended(row)}
        self._may_pass: list[ReadyEvaluator] = []  # for each judgement that another attempt may bring, who failed

    def _is_mended(self, row: ComparisonRow) -> bool:
        """Whether a pair was settled as a run had failed that has its output by now."""
        runs = (self._ready.outputs.get(run) for run in (row.left_run_id, row.right_run_id))
        return row.decided_by == FAILED_OUTPUT and all(run is not None and run.status == "ok" for run in runs)

    @property
    def transient(self) -> int:
        """Judgements that another attempt may bring; none of those by whom was found down too often."""
        return sum(not evaluator.breaker.gave_up for evaluator in self._may_pass)

    async def compare(self, bouts: list[Bout]) -> None:
        tally.begin(self._chunk, "judgements", 0)
        await asyncio.gather(*(self._compare_with(evaluator, bouts) for evaluator in self._ready.evaluators))

    async def _compare_with(self, evaluator: ReadyEvaluator, bouts: list[Bout]) -> None:
        wanting = [bout for bout in bouts if _bout_key(evaluator.bound.name, bout) not in self._done]
        tally.add(self._chunk, "judgements", len(bouts) - len(wanting))

        async def work(bout: Bout) -> None:
            began = time.perf_counter()
            for fields in await self._outcomes(evaluator, bout):
                self._keep(evaluator, _row(self._ready, evaluator, bout, fields), time.perf_counter() - began)
            tally.add(self._chunk, "judgements")

        trial = 1 if evaluator.breaker.is_open else 0
        # Where it was down, one judgement tells whether it still is.
        for some in (wanting[:trial], wanting[trial:]):
            await self._ready.judging.run(work, some, is_async=evaluator.bound.is_async)

    async def _outcomes(self, evaluator: ReadyEvaluator, bout: Bout) -> list[Fields]:
        left, right = (self._ready.outputs.get(run) for run in (bout.left_run, bout.right_run))
        if left is None or right is None or "not_attempted" in (left.status, right.status):
            return [_without_answer(evaluator)]
        if "failed" in (left.status, right.status):
            return [_settled(self._ready, evaluator, left, right)]
        shown = [self._view(bout, run) for run in _in_order(bout.shown_first, left, right)]
        subject = derived_id(bout.left_run, bout.right_run, bout.shown_first)
        of = {"experiment_id": self._chunk.comparison_id, "subject_id": subject}
        offered = offer_pair(example_view(bout.example), *shown)
        return [
            self._accepted(evaluator, fields) for fields in await judged(evaluator, offered, spool=self._spool, **of)
        ]

    def _view(self, bout: Bout, output: OutputRow) -> RunView:
        run, experiment = run_view(output, example_view(bout.example).inputs), self._ready.experiments
        run.experiment, run.target = experiment[output.experiment_id].name, experiment[output.experiment_id].target
        if not self._ready.spec.load_nested:
            run.steps = []
        return run

    def _accepted(self, evaluator: ReadyEvaluator, fields: Fields) -> Fields:
        """What bears the name of an item metric is refused, since in every table the two would be one."""
        key = fields["metric"]
        if key in self._ready.taken:
            error = f"returned the key {key!r}, which is an item metric; wanted another, such as pairwise_{key}"
        elif fields.get("shown_first") == "second" and self._ready.spec.both_orders:
            return _in_one_order(fields)
        else:
            return fields
        kept = {name: fields[name] for name in ("judge_model", "attempts", "calls", "calls_cached", "cost_usd")}
        failed = {"metric": evaluator.bound.name, "status": "failed", "error_kind": "bad_return", "error": error}
        return kept | failed

    def _keep(self, evaluator: ReadyEvaluator, row: ComparisonRow, elapsed: float) -> None:
        self._may_pass += [evaluator] if row.error_kind in MAY_PASS else []
        self._spool.add("comparisons", row, dear=elapsed > DEAR_S)


def _key(evaluator: str, row: ComparisonRow) -> tuple[str, ...]:
    return evaluator, row.left_run_id, row.right_run_id, row.shown_first


def _bout_key(evaluator: str, bout: Bout) -> tuple[str, ...]:
    return evaluator, bout.left_run, bout.right_run, bout.shown_first


def _without_answer(evaluator: ReadyEvaluator) -> Fields:
    """A run that was never made is missing: nobody knows how it would have gone."""
    error = "no output to compare: a run was not attempted"
    unasked = {"metric": evaluator.bound.name, "attempts": 0, "cost_usd": 0.0}
    return unasked | {"status": "not_attempted", "error_kind": "no_output", "error": error}


def _settled(ready: Comparison, evaluator: ReadyEvaluator, left: OutputRow, right: OutputRow) -> Fields:
    """What becomes of a pair in which a run failed, by the policy; nobody is asked."""
    failed = [
        (side, run.error or "failed") for side, run in (("left", left), ("right", right)) if run.status == "failed"
    ]
    said = "; ".join(f"{side} failed: {error}" for side, error in failed)
    unasked = {"metric": evaluator.bound.name, "attempts": 0, "cost_usd": 0.0, "decided_by": FAILED_OUTPUT}
    if ready.spec.failed_output == "left_out":
        return unasked | {"status": "not_applicable", "comment": said}
    winner: Winner = "tie" if len(failed) == 2 else "right" if failed[0][0] == "left" else "left"
    return unasked | {"status": "scored", "comment": said, "winner": winner}


def _in_one_order(fields: Fields) -> Fields:
    """What was judged before, in the other order only: that one counts, and this one is left out."""
    comment = "was judged before, in the other order only"
    return fields | {"winner": None, "scores": None, "shown_first": None, "status": "sampled_out", "comment": comment}


def _in_order(shown_first: Side, left: Any, right: Any) -> tuple[Any, Any]:
    return (left, right) if shown_first == "left" else (right, left)


def _row(ready: Comparison, evaluator: ReadyEvaluator, bout: Bout, fields: Fields) -> ComparisonRow:
    """The row of one judgement, with winner and scores mapped back to the experiments."""
    left, right = _in_order(bout.shown_first, *(fields.get("scores") or (None, None)))
    version, shown_first = evaluator.version, _shown_first(bout, fields.get("shown_first"))
    runs = (bout.left_run, bout.right_run, shown_first)
    return ComparisonRow(
        judgement_id=judgement_id(ready.row.comparison_id, fields["metric"], *runs, version),
        comparison_id=ready.row.comparison_id,
        example_id=bout.example.example_id,
        repetition=bout.repetition,
        left_experiment_id=bout.left_experiment,
        right_experiment_id=bout.right_experiment,
        left_run_id=bout.left_run,
        right_run_id=bout.right_run,
        shown_first=shown_first,
        left_score=left,
        right_score=right,
        evaluator=evaluator.bound.name,
        evaluator_version=version,
        declared_version=evaluator.spec.version,
        **{name: value for name, value in fields.items() if name not in ("winner", "scores", "shown_first")},
        winner=_side(fields.get("winner"), bout.shown_first),
    )


def _shown_first(bout: Bout, place: str | None) -> Side:
    """Which came first when it was judged; where that was before, in the order of then."""
    return _OTHER[bout.shown_first] if place == "second" else bout.shown_first


def _side(winner: str | None, shown_first: Side) -> Winner | None:
    """Whose a place is; what is a side already stays."""
    by_place: dict[str | None, Winner] = {"first": shown_first, "second": _OTHER[shown_first], "tie": "tie"}
    by_place |= {"left": "left", "right": "right"}
    return by_place.get(winner)
