"""LangSmith's `evaluate_comparative` on top of `evalflows.evaluate_comparative`."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from evalflows.compat.langsmith.comparators import POINTS, as_comparator
from evalflows.compat.langsmith.experiments import experiment_of, refuse_target_only
from evalflows.compat.langsmith.schemas import ComparativeExperiment, ComparisonEvaluationResult, Example, Identity, Run
from evalflows.compat.langsmith.views import dataset_id, example_of, run_of
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store
from evalflows.store.records import ComparisonRow, ComparisonSetRow, ExperimentRow, from_json
from evalflows.store.snapshots import load_snapshot

if TYPE_CHECKING:
    import pandas as pd

    from evalflows import ComparativeResult

Scores = Mapping[str, float | None]


class ComparativeExperimentResultRow(TypedDict):
    """An example and its results: `runs`, and `feedback.METRIC` for each metric."""

    example: Example
    evaluation_results: dict[str, Any]


class ComparativeExperimentResults:
    """A finished comparison: examples in the dataset's order; `results[example.id]` has an example's results."""

    def __init__(self, result: "ComparativeResult") -> None:
        store = Store()
        (row,) = store.read("comparison_sets", result.comparison_id)
        experiments: list[ExperimentRow] = [store.read("experiments", identity)[0] for identity in row.experiments]
        judgements = _by_example(store.read("comparisons", row.comparison_id))
        self.comparative_experiment = _comparative_experiment(row, experiments)
        self.url: str | None = None  # there is no web page
        self._result = result
        self._examples = _examples(store, experiments[0], judgements)
        runs = _runs(store, row, self._examples)
        self._results = {identity: _results(runs[identity], judgements[identity]) for identity in self._examples}

    def __repr__(self) -> str:
        return f"<ComparativeExperimentResults {self.comparative_experiment.name}>"

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, key: Identity) -> dict[str, Any]:
        return self._results[str(key)]

    def __iter__(self) -> Iterator[ComparativeExperimentResultRow]:
        for identity, results in self._results.items():
            yield {"example": self._examples[identity], "evaluation_results": results}

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per pair of runs and metric: the winner, which was shown first, the scores, both answers."""
        return self._result.to_pandas()


def evaluate_comparative(
    experiments: Sequence[Any],
    /,
    evaluators: Sequence[Any],
    experiment_prefix: str | None = None,
    description: str | None = None,
    max_concurrency: int = 5,
    client: Any = None,
    metadata: Mapping[str, Any] | None = None,
    load_nested: bool = False,
    randomize_order: bool = False,
) -> ComparativeExperimentResults:
    """Compare the answers of two or more existing experiments with pairwise evaluators; every two are compared.

    Args:
        experiments: Their names or ids, or results of `evaluate` or `read_project`.
        evaluators: Functions of (runs, example), or of any of inputs, outputs (a list), reference_outputs, and so on.
        experiment_prefix: The comparison's name before the hyphen; by default the experiments' names.
        description: A description of the comparison.
        max_concurrency: The maximum number of pairs judged at once; 0 means one.
        client: Has no effect: there is only one store.
        metadata: Metadata stored with the comparison.
        load_nested: Give evaluators the runs' child runs too.
        randomize_order: Draw for each pair which answer is shown first; by default the first experiment's is.

    Raises InputError for invalid arguments before anything is called, and IncompleteError if not everything was done;
    finished results are stored even then.
    """
    import evalflows  # loads Prefect, which takes seconds

    store = Store()
    rows = [experiment_of(store, experiment) for experiment in experiments]
    result = evalflows.evaluate_comparative(
        [row.experiment_id for row in rows],
        [as_comparator(evaluator) for evaluator in evaluators],
        experiment_prefix=_comparison_name(experiment_prefix, rows),
        description=description,
        metadata=metadata,
        max_concurrency=max_concurrency,
        load_nested=load_nested,
        randomize_order=randomize_order,
    )
    return ComparativeExperimentResults(result)


def compare_two(
    experiments: Sequence[Any], target_only: Mapping[str, Any], options: Mapping[str, Any], **shared: Any
) -> ComparativeExperimentResults:
    """Run `evaluate` on two experiments.

    Raises InputError for arguments that only apply to a target, and for unknown options.
    """
    if (count := len(experiments)) != 2:
        raise InputError(f"evaluate: target: got {count} experiments, wanted 2; evaluate_comparative takes more")
    refuse_target_only(target_only)
    if unknown := options.keys() - {"load_nested", "randomize_order"}:
        raise InputError(f"evaluate: got {min(unknown)!r}, wanted only load_nested and randomize_order")
    return evaluate_comparative(experiments, **shared, **options)


def _comparison_name(prefix: str | None, experiments: Sequence[ExperimentRow]) -> str:
    if prefix:
        return f"{prefix}-{secrets.token_hex(4)}"
    return f"{' vs. '.join(row.name for row in experiments)}-{secrets.token_hex(2)}"


def _comparative_experiment(row: ComparisonSetRow, experiments: Sequence[ExperimentRow]) -> ComparativeExperiment:
    return ComparativeExperiment(
        id=row.comparison_id,
        name=row.name,
        description=row.description,
        created_at=row.started_at,
        modified_at=row.ended_at or row.started_at,
        reference_dataset_id=dataset_id(experiments[0].dataset_name),
        extra={"metadata": from_json(row.metadata) or {}},
        experiments_info=[{"id": experiment.experiment_id, "name": experiment.name} for experiment in experiments],
    )


def _by_example(rows: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    by_example: dict[str, list[ComparisonRow]] = {}
    for row in rows:
        by_example.setdefault(row.example_id, []).append(row)
    return by_example


def _examples(store: Store, experiment: ExperimentRow, wanted: Mapping[str, Any]) -> dict[str, Example]:
    """Return the compared examples, as they are in the first experiment."""
    dataset = dataset_id(experiment.dataset_name)
    rows = load_snapshot(store, experiment.snapshot_id)
    return {row.example_id: example_of(row, dataset) for row in rows if row.example_id in wanted}


def _runs(store: Store, row: ComparisonSetRow, examples: Mapping[str, Example]) -> dict[str, list[Run]]:
    """Return each example's compared runs, by experiment in the given order, then by repetition."""
    runs: dict[str, list[Run]] = {identity: [] for identity in examples}
    for experiment in row.experiments:
        for output in sorted(store.read("outputs", experiment), key=lambda output: output.repetition):
            if output.example_id in runs and output.repetition < row.repetitions:
                runs[output.example_id].append(run_of(output, examples[output.example_id].inputs))
    return runs


def _results(runs: Sequence[Run], rows: Sequence[ComparisonRow]) -> dict[str, Any]:
    metrics = dict.fromkeys(row.metric for row in rows)
    return {"runs": list(runs)} | {
        f"feedback.{metric}": _result(metric, runs, [row for row in rows if row.metric == metric]) for metric in metrics
    }


def _result(metric: str, runs: Sequence[Run], rows: Sequence[ComparisonRow]) -> ComparisonEvaluationResult:
    """Return a metric's result for an example's runs; with several pairs, each run's mean score."""
    pairs = [_scores(row) for row in rows]
    by_run = {run.id: [pair[run.id] for pair in pairs if pair.get(run.id) is not None] for run in runs}
    return ComparisonEvaluationResult(
        key=metric,
        scores={run: _mean(scores) for run, scores in by_run.items()},
        comment=_comment(rows[0]) if len(rows) == 1 else _counts(rows),
    )


def _scores(row: ComparisonRow) -> Scores:
    known = row.left_score is not None and row.right_score is not None
    left, right = (row.left_score, row.right_score) if known else POINTS[row.winner]
    return {row.left_run_id: left, row.right_run_id: right}


def _mean(scores: Sequence[float | None]) -> float | None:
    return sum(score for score in scores if score is not None) / len(scores) if scores else None


def _comment(row: ComparisonRow) -> str | None:
    return row.error or row.status if row.status in ("failed", "not_attempted") else row.comment


def _counts(rows: Sequence[ComparisonRow]) -> str:
    scored = sum(row.status == "scored" for row in rows)
    missing = sum(row.status in ("failed", "not_attempted") for row in rows)
    return f"mean of {scored} pairs, {missing} missing"
