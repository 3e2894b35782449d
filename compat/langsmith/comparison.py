"""`evaluate_comparative` by LangSmith's names and shapes, over `flows.evaluate_comparative`."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from compat.langsmith.comparators import POINTS, as_comparator
from compat.langsmith.schemas import ComparativeExperiment, ComparisonEvaluationResult, Example, Identity, Run
from compat.langsmith.views import dataset_id, example_of, run_of
from specs.errors import InputError, short
from store.lookup import find_experiments
from store.parquet import Store
from store.records import ComparisonRow, ComparisonSetRow, ExperimentRow, from_json
from store.snapshots import load_snapshot

if TYPE_CHECKING:
    import pandas as pd

    from flows import ComparativeResult

Scores = Mapping[str, float | None]

_OF_A_TARGET = {"data": None, "summary_evaluators": None, "num_repetitions": 1}
"""Arguments of `evaluate` that two experiments do not go with, and their defaults."""


class ComparativeExperimentResultRow(TypedDict):
    """An example, its `runs`, and under `feedback.` and a metric what was said of them."""

    example: Example
    evaluation_results: dict[str, Any]


class ComparativeExperimentResults:
    """A finished comparison: its examples in the dataset's order; `results[example.id]` is what was said of one."""

    def __init__(self, result: "ComparativeResult") -> None:
        store = Store()
        (row,) = store.read("comparison_sets", result.comparison_id)
        experiments: list[ExperimentRow] = [store.read("experiments", one)[0] for one in row.experiments]
        said = _by_example(store.read("comparisons", row.comparison_id))
        self.comparative_experiment = _described(row, experiments)
        self.url: str | None = None  # there is no page of it
        self._result = result
        self._examples = _examples(store, experiments[0], said)
        runs = _runs(store, row, self._examples)
        self._results = {identity: _judged(runs[identity], said[identity]) for identity in self._examples}

    def __repr__(self) -> str:
        return f"<ComparativeExperimentResults {self.comparative_experiment.name}>"

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, key: Identity) -> dict[str, Any]:
        return self._results[str(key)]

    def __iter__(self) -> Iterator[ComparativeExperimentResultRow]:
        for identity, found in self._results.items():
            yield {"example": self._examples[identity], "evaluation_results": found}

    def to_pandas(self) -> "pd.DataFrame":
        """A row a pair of runs and metric: who won, what was shown first, the scores, both answers."""
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
    """Have evaluators say which answers are better, of two or more experiments that exist: every two are compared.

    Args:
        experiments: Their names or ids, or what `evaluate` or `read_project` gave back.
        evaluators: Functions of (runs, example), or of any of inputs, outputs (a list), reference_outputs, and so on.
        experiment_prefix: What the comparison is called before the hyphen; the experiments' names where left out.
        description: What it is for.
        max_concurrency: Most pairs judged at once; 0 is one.
        client: Changes nothing: there is one store.
        metadata: Whatever should be found again with it.
        load_nested: Give evaluators the runs' child runs too.
        randomize_order: Draw for each pair which answer is shown first; else that of the experiment named first is.

    Raises InputError for what cannot work, before anything is called, and IncompleteError if not all was done; what
    there is is kept then too.
    """
    import flows  # loads Prefect, which takes seconds

    store = Store()
    found = [_experiment(store, one) for one in experiments]
    result = flows.evaluate_comparative(
        [row.experiment_id for row in found],
        [as_comparator(evaluator) for evaluator in evaluators],
        experiment_prefix=_named(experiment_prefix, found),
        description=description,
        metadata=metadata,
        max_concurrency=max_concurrency,
        load_nested=load_nested,
        randomize_order=randomize_order,
    )
    return ComparativeExperimentResults(result)


def compare_two(
    experiments: Sequence[Any], of_a_target: Mapping[str, Any], options: Mapping[str, Any], **shared: Any
) -> ComparativeExperimentResults:
    """What `evaluate` does with two experiments.

    Raises InputError for what has a meaning only where a target runs, and for options that there are not.
    """
    if (count := len(experiments)) != 2:
        raise InputError(f"evaluate: target: got {count} experiments, wanted 2; evaluate_comparative takes more")
    for name, default in _OF_A_TARGET.items():
        if of_a_target[name] and of_a_target[name] != default:
            got = short(of_a_target[name])
            raise InputError(f"evaluate: {name}: got {got}, wanted {default}: the experiments have theirs")
    if unknown := options.keys() - {"load_nested", "randomize_order"}:
        raise InputError(f"evaluate: got {min(unknown)!r}, wanted only load_nested and randomize_order")
    return evaluate_comparative(experiments, **shared, **options)


def _experiment(store: Store, experiment: Any) -> ExperimentRow:
    """By its name or id, or by what has one. Raises InputError for one that is not there."""
    identity = getattr(experiment, "experiment_id", None) or getattr(experiment, "id", None) or experiment
    if not isinstance(identity, Identity):
        wanted = "an experiment: its name or id, or what evaluate gave back"
        raise InputError(f"evaluate_comparative: experiments: got {type(experiment).__name__}, wanted {wanted}")
    (found,) = find_experiments(store, str(identity), just_one=True)
    row: ExperimentRow = store.read("experiments", found)[0]
    return row


def _named(prefix: str | None, experiments: Sequence[ExperimentRow]) -> str:
    if prefix:
        return f"{prefix}-{secrets.token_hex(4)}"
    return f"{' vs. '.join(row.name for row in experiments)}-{secrets.token_hex(2)}"


def _described(row: ComparisonSetRow, experiments: Sequence[ExperimentRow]) -> ComparativeExperiment:
    return ComparativeExperiment(
        id=row.comparison_id,
        name=row.name,
        description=row.description,
        created_at=row.started_at,
        modified_at=row.ended_at or row.started_at,
        reference_dataset_id=dataset_id(experiments[0].dataset_name),
        extra={"metadata": from_json(row.metadata) or {}},
        experiments_info=[{"id": one.experiment_id, "name": one.name} for one in experiments],
    )


def _by_example(rows: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    found: dict[str, list[ComparisonRow]] = {}
    for row in rows:
        found.setdefault(row.example_id, []).append(row)
    return found


def _examples(store: Store, experiment: ExperimentRow, wanted: Mapping[str, Any]) -> dict[str, Example]:
    """The examples that were compared, as they are in the first experiment."""
    dataset = dataset_id(experiment.dataset_name)
    rows = load_snapshot(store, experiment.snapshot_id)
    return {row.example_id: example_of(row, dataset) for row in rows if row.example_id in wanted}


def _runs(store: Store, row: ComparisonSetRow, examples: Mapping[str, Example]) -> dict[str, list[Run]]:
    """The runs of each example that were compared, by experiment in the order given, then by repetition."""
    runs: dict[str, list[Run]] = {identity: [] for identity in examples}
    for experiment in row.experiments:
        for output in sorted(store.read("outputs", experiment), key=lambda output: output.repetition):
            if output.example_id in runs and output.repetition < row.repetitions:
                runs[output.example_id].append(run_of(output, examples[output.example_id].inputs))
    return runs


def _judged(runs: Sequence[Run], rows: Sequence[ComparisonRow]) -> dict[str, Any]:
    metrics = dict.fromkeys(row.metric for row in rows)
    return {"runs": list(runs)} | {
        f"feedback.{metric}": _result(metric, runs, [row for row in rows if row.metric == metric]) for metric in metrics
    }


def _result(metric: str, runs: Sequence[Run], rows: Sequence[ComparisonRow]) -> ComparisonEvaluationResult:
    """What was said of an example's runs: of two, what was said; of more, the mean of what was said of each."""
    pairs = [_scores(row) for row in rows]
    of_each = {run.id: [pair[run.id] for pair in pairs if pair.get(run.id) is not None] for run in runs}
    return ComparisonEvaluationResult(
        key=metric,
        scores={run: _mean(scores) for run, scores in of_each.items()},
        comment=_said(rows[0]) if len(rows) == 1 else _counted(rows),
    )


def _scores(row: ComparisonRow) -> Scores:
    known = row.left_score is not None and row.right_score is not None
    left, right = (row.left_score, row.right_score) if known else POINTS[row.winner]
    return {row.left_run_id: left, row.right_run_id: right}


def _mean(scores: Sequence[float | None]) -> float | None:
    return sum(score for score in scores if score is not None) / len(scores) if scores else None


def _said(row: ComparisonRow) -> str | None:
    return row.error or row.status if row.status in ("failed", "not_attempted") else row.comment


def _counted(rows: Sequence[ComparisonRow]) -> str:
    scored = sum(row.status == "scored" for row in rows)
    missing = sum(row.status in ("failed", "not_attempted") for row in rows)
    return f"the mean of {scored} pairs, {missing} missing"
