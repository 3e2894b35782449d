"""Comparisons as jobs: pairs of answers as subjects of judging, and what a failed answer means for its pair."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, NamedTuple

from evalflows.engine import pair_trials
from evalflows.engine.anchors import Stretch, anchors_of
from evalflows.engine.experiments import check_code, size_of_answer
from evalflows.engine.job import Job, Loaded, is_final
from evalflows.engine.order import ORDER_SEED, in_random_order
from evalflows.engine.prepare import PreparedComparison
from evalflows.engine.results import Columns, EvaluationResult, failed_result, judgement_columns
from evalflows.engine.run_context import RunContext
from evalflows.engine.running import EvaluatorFactory, RunnableEvaluator, endpoints_of
from evalflows.engine.views import example_view, run_view
from evalflows.engine.workers import Workers
from evalflows.evaluators.of_all import OF_ALL, OfAll, SharedReturns
from evalflows.evaluators.score import Place
from evalflows.evaluators.views import RunView, offer_pair
from evalflows.specs.comparison import ComparisonSpec, OrderStatus
from evalflows.specs.frozen import dataclass
from evalflows.store.described import to_described
from evalflows.store.queries.complete_judgements import FAILED_OUTPUT, judgement_id, pair_id
from evalflows.store.queries.progress import item_metrics
from evalflows.store.queries.shared_examples import shared_examples
from evalflows.store.records import ComparisonSetRow, ExampleRow, ExperimentRow, JudgementRow, OutputRow
from evalflows.store.row_specs import comparison_spec
from evalflows.store.snapshots import Examples, size_of
from evalflows.store.spilled import SpilledRows
from evalflows.store.store import Store

Context = RunContext[PreparedComparison]


class Pair(NamedTuple):
    """A trial with its two runs; None for one that was not made."""

    trial: pair_trials.PairTrial
    left: OutputRow | None
    right: OutputRow | None


@dataclass(frozen=True, kw_only=True)
class Comparison(Job[Pair]):
    """What the chunks of one comparison share. Its subjects are pairs of answers, each in the order shown."""

    called = "pairs"
    shares_metrics = True

    row: ComparisonSetRow
    spec: ComparisonSpec
    experiments: Mapping[str, ExperimentRow]
    examples: Sequence[ExampleRow]  # shared by all experiments
    outputs: SpilledRows[str, OutputRow]  # by run
    item_metrics: frozenset[str]  # names that no preference may have
    of_all: SharedReturns = field(default_factory=SharedReturns)

    @property
    def n_chunks(self) -> int:
        return len(list(pair_trials.pair_chunks(self.row)))

    def check_code(self, *, in_cluster: bool = True) -> None:
        described = to_described(self.run.prepared.described)
        check_code(self.row.comparison_id, "evaluators", self.row.evaluators, described, in_cluster=in_cluster)

    def stretch(self, chunk: pair_trials.PairChunk) -> Stretch:
        chunks = [*pair_trials.pair_chunks(self.row)]
        before = sum(other.n_items for other in chunks[: chunks.index(replace(chunk, dispatch=None))])
        total = sum(other.n_items for other in chunks)
        return Stretch(self.row.comparison_id, before, before + chunk.n_items, total)

    def load(self, chunk: pair_trials.PairChunk) -> Loaded[Pair]:
        before: list[JudgementRow] = self.store.read("judgements", chunk.comparison_id, [chunk.part_name])
        trials = list(pair_trials.trials_of(chunk, self.spec, self.examples))
        return Loaded(map(self.pair, trials), len(trials), before)

    def pair(self, trial: pair_trials.PairTrial) -> Pair:
        return Pair(trial, self.outputs.get(trial.left_run), self.outputs.get(trial.right_run))

    def size_of(self, pair: Pair) -> int:
        runs = (run for run in (pair.left, pair.right) if run is not None)
        return size_of(pair.trial.example) + sum(size_of_answer(run.outputs, run.steps) for run in runs)

    def id_of(self, pair: Pair) -> str:
        return pair_id(pair.trial.left_run, pair.trial.right_run, pair.trial.shown_first)

    def owner_of(self, pair: Pair) -> str:
        return self.row.comparison_id

    def is_final(self, row: JudgementRow) -> bool:
        return is_final(row) and not (row.decided_by == FAILED_OUTPUT and self._has_recovered(row))

    def _has_recovered(self, row: JudgementRow) -> bool:
        """Return whether both runs of a pair that was decided by a failed one have an output by now."""
        runs = (self.outputs.get(run) for run in (row.left_run_id or "", row.right_run_id or ""))
        return all(run is not None and run.status == "ok" for run in runs)

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
        self, evaluator: RunnableEvaluator, trial: pair_trials.PairTrial, failed: Sequence[tuple[str, OutputRow]]
    ) -> EvaluationResult:
        """Return the result of a pair with failed runs according to the spec's policy."""
        names = {identity: experiment.name for identity, experiment in self.experiments.items()}
        comment = "; ".join(f"{names[run.experiment_id]} failed: {run.error or 'no error'}" for _, run in failed)
        left_out = EvaluationResult(
            metric=evaluator.bound.name, status="not_applicable", attempts=0, decided_by=FAILED_OUTPUT, comment=comment
        )
        if self.spec.failed_output == "left_out":
            return left_out
        winner: Place = "second" if failed[0][0] == trial.shown_first else "first"
        return left_out._replace(status="scored", winner="tie" if len(failed) == 2 else winner)

    def arguments(self, requested: frozenset[str], pair: Pair, before: Sequence[JudgementRow]) -> dict[str, Any]:
        trial, left, right = pair
        assert left is not None and right is not None, "a pair without them is settled"
        shown = pair_trials.in_order(trial.shown_first, left, right)
        of_pair = offer_pair(example_view(trial.example), *(self._view(trial, run) for run in shown))
        return {**of_pair, OF_ALL: self._of_all(trial)} if OF_ALL in requested else of_pair

    def _of_all(self, trial: pair_trials.PairTrial) -> OfAll:
        """Return the answers of all candidates: in the order of the list if its ends show a pair so, else reversed; or
        in a random order of the example."""
        is_random = self.spec.randomize_order and not self.spec.both_orders
        runs = pair_trials.runs_of(trial, self.spec)

        def offer() -> dict[str, Any]:
            outputs = [self.outputs.get(run) for run in runs]
            answered = [output for output in outputs if output is not None and output.status == "ok"]
            return offer_pair(example_view(trial.example), *(self._view(trial, output) for output in answered))

        order: OrderStatus = "drawn" if is_random else "known"
        return OfAll(key=tuple(runs), offer=offer, shared=self.of_all, order_status=order)

    def _view(self, trial: pair_trials.PairTrial, output: OutputRow) -> RunView:
        run = run_view(output, example_view(trial.example).inputs)
        experiment = self.experiments[output.experiment_id]
        run.experiment, run.target = experiment.name, experiment.target
        if not self.spec.load_nested:
            run.steps = []
        return run

    def checked(
        self, evaluator: RunnableEvaluator, pair: Pair, results: list[EvaluationResult]
    ) -> list[EvaluationResult]:
        return [self._checked(evaluator, result) for result in results]

    def _checked(self, evaluator: RunnableEvaluator, result: EvaluationResult) -> EvaluationResult:
        """Return the result, failed if it has the name of an item metric: tables could not tell the two apart."""
        key = result.metric
        if key in self.item_metrics:
            error = f"returned the key {key!r}, which is an item metric; wanted another, such as pairwise_{key}"
            failed = failed_result(evaluator.bound.name, "bad_return", error, result.attempts)
            return failed._replace(judge_model=result.judge_model, usage=result.usage)
        if result.shown_first == "second" and self.spec.both_orders:
            return _other_order_only(result, evaluator.bound.name)
        return result

    def columns(
        self, evaluator: RunnableEvaluator, pairs: Sequence[Pair], results: Sequence[EvaluationResult]
    ) -> Columns:
        name, version, owner = evaluator.bound.name, evaluator.version, self.row.comparison_id
        by = judgement_columns(results, evaluator=name, version=version, declared_version=evaluator.spec.version)
        judged = [_judged(pair.trial, result) for pair, result in zip(pairs, results, strict=True)]
        columns = {column: [row[column] for row in judged] for column in judged[0]}
        metrics = zip(by["metric"], judged, strict=True)
        identities = [
            judgement_id(owner, metric, row["left_run_id"], row["right_run_id"], row["shown_first"], version)
            for metric, row in metrics
        ]
        return {**by, **columns, "judgement_id": identities, "experiment_id": (owner,) * len(judged)}


def _judged(trial: pair_trials.PairTrial, result: EvaluationResult) -> dict[str, Any]:
    """Return the columns of a pair, with winner and scores mapped back to the experiments."""
    left, right = pair_trials.in_order(trial.shown_first, *(result.scores or (None, None)))
    shown_first: pair_trials.Side = (
        pair_trials.OTHER[trial.shown_first] if result.shown_first == "second" else trial.shown_first
    )
    return {
        "subject_kind": "pair",
        "subject_id": pair_id(trial.left_run, trial.right_run, shown_first),
        "example_id": trial.example.example_id,
        "repetition": trial.repetition,
        "left_experiment_id": trial.left_experiment,
        "right_experiment_id": trial.right_experiment,
        "left_run_id": trial.left_run,
        "right_run_id": trial.right_run,
        "shown_first": shown_first,
        "winner": pair_trials.winning_side(result.winner, trial.shown_first),
        "left_score": left,
        "right_score": right,
    }


def comparison_of(run: Context, comparison_id: str) -> Comparison:
    """Return a running comparison, made on first use in this process."""
    return run.job(comparison_id, partial(_made, run, comparison_id))


def experiments_of(store: Store, identities: Sequence[str]) -> list[ExperimentRow]:
    """Return the rows of experiments, in the given order."""
    return [store.read("experiments", identity)[0] for identity in identities]


def compared_examples(store: Store, spec: ComparisonSpec, experiments: Sequence[ExperimentRow]) -> Examples:
    """Return the examples that experiments share, in the order of judging: a random one if there are batches."""
    examples = shared_examples(store, experiments).examples
    return examples if spec.batch is None else in_random_order(examples, ORDER_SEED)


def _made(run: Context, comparison_id: str) -> Comparison:
    store = run.store
    row: ComparisonSetRow = store.read("comparison_sets", comparison_id)[0]
    prepared = run.bound(lambda: comparison_spec(row))
    spec = prepared.spec
    experiments = experiments_of(store, row.experiments)
    ledger = run.ledger(comparison_id)
    budget = run.budget(row)
    factory = EvaluatorFactory(spec, ledger, budget, run.calls, partial(run.batches, row))
    evaluators = [factory.evaluator(evaluator, None) for evaluator in prepared.evaluators]
    return Comparison(
        run=run,
        row=row,
        spec=spec,
        experiments={experiment.experiment_id: experiment for experiment in experiments},
        examples=compared_examples(store, spec, experiments),
        outputs=_outputs(store, row.experiments),
        evaluators=evaluators,
        item_metrics=frozenset(item_metrics(store, row.experiments)),
        judging=Workers(spec.max_concurrency),
        judging_on=endpoints_of(evaluators),
        ledger=ledger,
        budget=budget,
        anchors=anchors_of(store, prepared, factory, evaluators, comparison_id),
    )


def _outputs(store: Store, experiments: Sequence[str]) -> SpilledRows[str, OutputRow]:
    outputs = SpilledRows[str, OutputRow]()
    for identity in experiments:
        for output in store.rows("outputs", identity):
            outputs[output.run_id] = output
    return outputs


def _other_order_only(result: EvaluationResult, evaluator: str) -> EvaluationResult:
    """Return the result of a trial whose verdict was recorded for the other order only.

    If that order is known, this one is missing. Otherwise the verdict belongs to the pair, and counts once.
    """
    if result.order_status == "known":
        error = "recorded in the other order only; wanted a verdict in both, or both_orders: false"
        return failed_result(evaluator, "raised", error)
    comment = "recorded once, in no known order"
    return result._replace(winner=None, scores=None, shown_first=None, status="sampled_out", comment=comment)
