"""Pairs of answers as subjects of judging: what an evaluator gets, what a failed answer means, and the rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from evalflows.engine.chunks import OTHER, PairTrial, Side, in_order, winning_side
from evalflows.engine.judge import size_of_answer
from evalflows.engine.results import Columns, EvaluationResult, failed_result, preference_columns
from evalflows.engine.running import RunnableEvaluator, RunningComparison
from evalflows.engine.views import example_view, run_view
from evalflows.evaluators.binding import offer_pair
from evalflows.evaluators.score import Place, RunView
from evalflows.specs.errors import UNREACHABLE
from evalflows.store.queries.progress import judgement_id
from evalflows.store.records import ComparisonRow, OutputRow, derived_id, now
from evalflows.store.snapshots import size_of


class Pair(NamedTuple):
    """A trial with its two runs; None for one that was not made."""

    trial: PairTrial
    left: OutputRow | None
    right: OutputRow | None


FAILED_OUTPUT = "failed_output"
"""`decided_by` of a pair with a failed run, for which no evaluator is called."""


class Pairs:
    """Pairs of answers of two experiments, each in the order shown."""

    table = "comparisons"
    keeps_rows = False

    def __init__(self, comparison: RunningComparison) -> None:
        self._comparison = comparison

    def pair(self, trial: PairTrial) -> Pair:
        outputs = self._comparison.outputs
        return Pair(trial, outputs.get(trial.left_run), outputs.get(trial.right_run))

    def key(self, pair: Pair) -> str:
        return f"{pair.trial.left_run} {pair.trial.right_run} {pair.trial.shown_first}"

    def key_of(self, row: ComparisonRow) -> str:
        return f"{row.left_run_id} {row.right_run_id} {row.shown_first}"

    def is_final(self, row: ComparisonRow) -> bool:
        if row.decided_by == FAILED_OUTPUT and self._has_recovered(row):
            return False
        if row.status == "failed":
            return row.error_kind not in UNREACHABLE
        return row.status != "not_attempted"  # a missing answer may still come

    def _has_recovered(self, row: ComparisonRow) -> bool:
        """Whether both runs of a pair that was decided by a failed one have an output by now."""
        runs = (self._comparison.outputs.get(run) for run in (row.left_run_id, row.right_run_id))
        return all(run is not None and run.status == "ok" for run in runs)

    def calls_of(self, pair: Pair) -> tuple[str, str]:
        trial, owner = pair.trial, self._comparison.row.comparison_id
        return owner, derived_id(trial.left_run, trial.right_run, trial.shown_first)

    def settled(self, evaluator: RunnableEvaluator, pair: Pair) -> list[EvaluationResult]:
        """Return the result of a pair with a run that failed or was not made."""
        trial, left, right = pair
        if left is None or right is None or "not_attempted" in (left.status, right.status):
            error = "no output to compare: a run was not attempted"
            missing = failed_result(evaluator.bound.name, "no_output", error, attempts=0)
            return [missing._replace(status="not_attempted")]
        failed = [(side, run) for side, run in (("left", left), ("right", right)) if run.status == "failed"]
        return [self._by_policy(evaluator, trial, failed)] if failed else []

    def _by_policy(
        self, evaluator: RunnableEvaluator, trial: PairTrial, failed: Sequence[tuple[str, OutputRow]]
    ) -> EvaluationResult:
        """Return the result of a pair with failed runs according to the spec's policy."""
        names = {identity: experiment.name for identity, experiment in self._comparison.experiments.items()}
        comment = "; ".join(f"{names[run.experiment_id]} failed: {run.error or 'no error'}" for _, run in failed)
        left_out = EvaluationResult(
            metric=evaluator.bound.name, status="not_applicable", attempts=0, decided_by=FAILED_OUTPUT, comment=comment
        )
        if self._comparison.spec.failed_output == "left_out":
            return left_out
        winner: Place = "second" if failed[0][0] == trial.shown_first else "first"
        return left_out._replace(status="scored", winner="tie" if len(failed) == 2 else winner)

    def arguments(self, requested: frozenset[str], pair: Pair, before: Sequence[ComparisonRow]) -> dict[str, Any]:
        trial, left, right = pair
        assert left is not None and right is not None, "a pair without them is settled"
        shown = in_order(trial.shown_first, left, right)
        return offer_pair(example_view(trial.example), *(self._view(trial, run) for run in shown))

    def _view(self, trial: PairTrial, output: OutputRow) -> RunView:
        run = run_view(output, example_view(trial.example).inputs)
        experiment = self._comparison.experiments[output.experiment_id]
        run.experiment, run.target = experiment.name, experiment.target
        if not self._comparison.spec.load_nested:
            run.steps = []
        return run

    def checked(
        self, evaluator: RunnableEvaluator, pair: Pair, results: list[EvaluationResult]
    ) -> list[EvaluationResult]:
        return [self._checked(evaluator, result) for result in results]

    def _checked(self, evaluator: RunnableEvaluator, result: EvaluationResult) -> EvaluationResult:
        """Return the result, failed if it has the name of an item metric: tables could not tell the two apart."""
        key = result.metric
        if key in self._comparison.item_metrics:
            error = f"returned the key {key!r}, which is an item metric; wanted another, such as pairwise_{key}"
            failed = failed_result(evaluator.bound.name, "bad_return", error, result.attempts)
            return failed._replace(judge_model=result.judge_model, usage=result.usage)
        if result.shown_first == "second" and self._comparison.spec.both_orders:
            return _other_order_only(result, evaluator.bound.name)
        return result

    def sampled(
        self, evaluator: RunnableEvaluator, pairs: Sequence[Pair], numbers: list[int]
    ) -> tuple[list[int], list[int]]:
        return numbers, []

    def columns(
        self, evaluator: RunnableEvaluator, pairs: Sequence[Pair], results: Sequence[EvaluationResult]
    ) -> Columns:
        rows = [self._values(evaluator, pair.trial, result) for pair, result in zip(pairs, results, strict=True)]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def row(self, evaluator: RunnableEvaluator, pair: Pair, result: EvaluationResult) -> ComparisonRow:
        return ComparisonRow(**self._values(evaluator, pair.trial, result))

    def _values(self, evaluator: RunnableEvaluator, trial: PairTrial, result: EvaluationResult) -> dict[str, Any]:
        """Return the columns of one judgement, with winner and scores mapped back to the experiments."""
        left, right = in_order(trial.shown_first, *(result.scores or (None, None)))
        owner, version = self._comparison.row.comparison_id, evaluator.version
        shown_first: Side = OTHER[trial.shown_first] if result.shown_first == "second" else trial.shown_first
        return {
            "judgement_id": judgement_id(owner, result.metric, trial.left_run, trial.right_run, shown_first, version),
            "comparison_id": owner,
            "example_id": trial.example.example_id,
            "repetition": trial.repetition,
            "left_experiment_id": trial.left_experiment,
            "right_experiment_id": trial.right_experiment,
            "left_run_id": trial.left_run,
            "right_run_id": trial.right_run,
            "shown_first": shown_first,
            "left_score": left,
            "right_score": right,
            "evaluator": evaluator.bound.name,
            "evaluator_version": version,
            "declared_version": evaluator.spec.version,
            "winner": winning_side(result.winner, trial.shown_first),
            "recorded_at": now(),
            **preference_columns(result),
        }


def size_of_pair(pair: Pair) -> int:
    """Return about how many bytes a pair takes in memory."""
    runs = (run for run in (pair.left, pair.right) if run is not None)
    return size_of(pair.trial.example) + sum(size_of_answer(run.outputs, run.steps) for run in runs)


def _other_order_only(result: EvaluationResult, evaluator: str) -> EvaluationResult:
    """Return the result of a trial whose verdict was recorded for the other order only.

    If that order is known, this one is missing. Otherwise the verdict belongs to the pair, and counts once.
    """
    if result.order_status == "known":
        error = "recorded in the other order only; wanted a verdict in both, or both_orders: false"
        return failed_result(evaluator, "raised", error)
    comment = "recorded once, in no known order"
    return result._replace(winner=None, scores=None, shown_first=None, status="sampled_out", comment=comment)
