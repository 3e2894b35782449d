"""LangSmith's comparative evaluation: evaluators of pairs and their results."""

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, TypedDict

from evalflows.compat.langsmith.conversion import (
    dataset_id,
    example_of,
    example_of_view,
    experiment_of,
    run_key,
    run_of,
    run_of_view,
)
from evalflows.compat.langsmith.schemas import (
    ComparativeExperiment,
    ComparisonEvaluationResult,
    Example,
    Identity,
    Run,
)
from evalflows.compat.langsmith.user_functions import Function, as_named
from evalflows.compat.refusal import refusing
from evalflows.evaluators.binding import Bound, bind
from evalflows.evaluators.foreign import evaluator_name
from evalflows.evaluators.of_all import WantsPairError, results_in
from evalflows.evaluators.score import preferences
from evalflows.evaluators.views import ExampleView, RunView
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import print_note
from evalflows.specs.evaluator import FallbackSpec
from evalflows.specs.grouping import grouped
from evalflows.specs.hints import show
from evalflows.specs.reference import is_async
from evalflows.store.queries.lookup import unique_name
from evalflows.store.records import ComparisonSetRow, ExperimentRow, JudgementRow, from_json
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from evalflows import ComparativeResult

Points = tuple[float | None, float | None]

POINTS: Mapping[str | None, Points] = {
    **dict.fromkeys(("first", "left"), (1.0, 0.0)),
    **dict.fromkeys(("second", "right"), (0.0, 1.0)),
    "tie": (0.5, 0.5),
    None: (None, None),
}
"""The scores of two runs by the winner, for preferences without scores."""

Scores = Mapping[str, float | None]


class DynamicComparisonRunEvaluator:
    """A sync or async function that compares runs, which can also be called directly on runs.

    Raises InputError if the function has parameters that cannot be filled.
    """

    def __init__(self, func: Function, afunc: Function | None = None) -> None:
        self.func = func
        self.afunc = afunc
        self._bound = _bound(afunc or func)
        self.__name__ = self._bound.name

    def __repr__(self) -> str:
        return f"<DynamicComparisonRunEvaluator {self.__name__}>"

    @property
    def is_async(self) -> bool:
        return self._bound.is_async

    def compare_runs(self, runs: Sequence[Run], example: Example | None = None) -> ComparisonEvaluationResult:
        """Compare the runs. Raise TypeError or ValueError if the function does not return a preference."""
        if self.is_async:
            return asyncio.run(self.acompare_runs(runs, example))
        return self._result(self._bound.call(_arguments(runs, example)), runs)

    async def acompare_runs(self, runs: Sequence[Run], example: Example | None = None) -> ComparisonEvaluationResult:
        """Like `compare_runs`, for async callers."""
        returned = self._bound.call(_arguments(runs, example))
        return self._result(await returned if self.is_async else returned, runs)

    __call__ = compare_runs

    def _result(self, returned: object, runs: Sequence[Run]) -> ComparisonEvaluationResult:
        results = preferences(_by_stored_ids(returned), self.__name__, [run_key(run.id) for run in runs])
        if len(results) != 1:
            raise ValueError(f"{self.__name__}: got {len(results)} preferences, wanted one")
        (preference,) = results
        scores = preference.scores or POINTS[preference.winner]
        return ComparisonEvaluationResult(
            key=preference.key or self.__name__,
            scores={run.id: score for run, score in zip(runs, scores, strict=True)},
            comment=preference.comment,
        )


def comparison_evaluator(func: Function) -> DynamicComparisonRunEvaluator:
    """Wrap a function in an object with `compare_runs`. Optional: a function is a pairwise evaluator too."""
    return DynamicComparisonRunEvaluator(func)


def as_comparator_of_all(evaluator: Any) -> Any:
    """Like `as_comparator`, for more than two experiments, whose runs the evaluator gets at once.

    One that does not return a score for each run is asked about two at a time instead.
    """
    pairwise = as_comparator(evaluator)
    if pairwise is evaluator:  # ours
        return pairwise

    def call(runs: Sequence[RunView], example: ExampleView, **models: Any) -> Any:
        if len(runs) == 2:
            return pairwise(runs=runs, example=example, **models)
        try:
            return _of_each(pairwise(runs=runs, example=example, **models), len(runs))
        except Exception as error:  # it may want two runs
            raise WantsPairError from error

    async def acall(runs: Sequence[RunView], example: ExampleView, **models: Any) -> Any:
        if len(runs) == 2:
            return await pairwise(runs=runs, example=example, **models)
        try:
            return _of_each(await pairwise(runs=runs, example=example, **models), len(runs))
        except Exception as error:
            raise WantsPairError from error

    compare: Any = acall if is_async(pairwise) else call
    update_wrapper(compare, pairwise)
    compare.__signature__ = pairwise.__signature__
    return {"use": compare, "compares": "all"}


def _of_each(returned: Any, count: int) -> Any:
    """Return what has a score for each run. Raise WantsPairError for anything else."""
    scores = [result.get("scores") if isinstance(result, Mapping) else result for result in results_in(returned)]
    if any(not isinstance(of_one, Mapping | list | tuple) or len(of_one) != count for of_one in scores):
        raise WantsPairError
    return returned


def as_comparator(evaluator: Any) -> Any:
    """Wrap a pairwise evaluator so that it receives LangSmith's objects.

    Our own evaluators, given by name or as a spec, are returned unchanged. Raise InputError if the evaluator cannot
    be called or has parameters that cannot be filled.
    """
    if isinstance(evaluator, str | Mapping | FallbackSpec):
        return evaluator
    function = _function_of(evaluator)
    bound = _bound(function)

    def call(runs: Sequence[RunView], example: ExampleView, **models: Any) -> Any:
        return _by_stored_ids(bound.call(_arguments(_linked(runs, example), example_of_view(example)) | models))

    async def acall(runs: Sequence[RunView], example: ExampleView, **models: Any) -> Any:
        return _by_stored_ids(await bound.call(_arguments(_linked(runs, example), example_of_view(example)) | models))

    compare: Any = acall if bound.is_async else call
    update_wrapper(compare, function).__name__ = bound.name
    names = ("runs", "example", *sorted(bound.asked & {"complete", "embed"}))
    compare.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in names])
    return compare


def _function_of(evaluator: Any) -> Function:
    """Return the function inside the decorator's object (LangSmith's own too): it names and versions the metric."""
    is_decorated = hasattr(evaluator, "compare_runs")
    inner = (getattr(evaluator, name, None) for name in ("afunc", "func", "compare_runs") if is_decorated)
    function = next((candidate for candidate in inner if candidate is not None), evaluator)
    if not callable(function):
        kind = type(evaluator).__name__
        raise InputError(f"evaluate: evaluators: got {kind}, wanted a function or an object with compare_runs")
    return function  # type: ignore[no-any-return]


def _bound(function: Function) -> Bound:
    name = evaluator_name(function)
    return bind(as_named(function, name, "pair"), name=name, scope="pair")


def _linked(runs: Sequence[RunView], example: ExampleView) -> list[Run]:
    """Convert the runs to LangSmith's, which refer to their example."""
    return [replace(run_of_view(run), reference_example_id=example.id) for run in runs]


def _arguments(runs: Sequence[Run], example: Example | None) -> dict[str, Any]:
    """Return every argument that a pairwise evaluator may request; missing ones are empty."""
    return {
        "inputs": example.inputs if example else {},
        "outputs": [run.outputs or {} for run in runs],
        "reference_outputs": (example and example.outputs) or {},
        "metadata": (example and example.metadata) or {},
        "attachments": (example and example.attachments) or {},
        "runs": list(runs),
        "example": example,
    }


def _by_stored_ids(returned: Any) -> Any:
    """Replace run ids in an evaluator's result by the store's: a program may have converted them to UUIDs."""
    if isinstance(returned, list):
        return [_by_stored_ids(result) for result in returned]
    if isinstance(getattr(returned, "scores", None), Mapping):
        returned = {name: getattr(returned, name, None) for name in ("key", "scores", "comment")}
    if not isinstance(returned, Mapping):
        return returned
    if "results" in returned:
        return {**returned, "results": _by_stored_ids(returned["results"])}
    by_run = {name: returned[name] for name in ("scores", "comment") if isinstance(returned.get(name), Mapping)}
    return {**returned} | {
        name: {run_key(run): value for run, value in values.items()} for name, values in by_run.items()
    }


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
        of_comparison: Sequence[JudgementRow] = store.read("judgements", row.comparison_id)
        judgements = grouped((judgement.example_id or "", judgement) for judgement in of_comparison)
        self.comparative_experiment = _comparative_experiment(row, experiments)
        self.url: str | None = result.url
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


@refusing()
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

    Of more than two, a function gets the runs of all, and returns a score for each; one that does not is called for
    every two.

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

    Raise InputError for invalid arguments before anything is called, and IncompleteError if not everything was done;
    finished results are stored even then.
    """
    import evalflows  # loads Prefect, which takes seconds

    store = Store()
    rows = [experiment_of(store, experiment) for experiment in experiments]
    as_ours = as_comparator_of_all if len(rows) > 2 else as_comparator
    result = evalflows.evaluate_comparative(
        [row.experiment_id for row in rows],
        [as_ours(evaluator) for evaluator in evaluators],
        experiment_prefix=f"{experiment_prefix}-{secrets.token_hex(4)}"
        if experiment_prefix
        else f"{' vs. '.join(unique_name(row.name, row.experiment_id) for row in rows)}-{secrets.token_hex(2)}",
        description=description,
        metadata=metadata,
        max_concurrency=max_concurrency,
        load_nested=load_nested,
        randomize_order=randomize_order,
    )
    found = ComparativeExperimentResults(result)
    print_note(f"comparison {result.name}: {found.url or show(result.comparison_id).code}")
    return found


def _comparative_experiment(row: ComparisonSetRow, experiments: Sequence[ExperimentRow]) -> ComparativeExperiment:
    return ComparativeExperiment(
        id=row.comparison_id,
        name=row.name,
        description=row.description,
        created_at=row.started_at,
        modified_at=row.ended_at or row.started_at,
        reference_dataset_id=dataset_id(experiments[0].dataset_name),
        extra={"metadata": from_json(row.metadata) or {}},
        experiments_info=[
            {"id": experiment.experiment_id, "name": unique_name(experiment.name, experiment.experiment_id)}
            for experiment in experiments
        ],
    )


def _examples(store: Store, experiment: ExperimentRow, wanted: Mapping[str, Any]) -> dict[str, Example]:
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


def _results(runs: Sequence[Run], rows: Sequence[JudgementRow]) -> dict[str, Any]:
    metrics = dict.fromkeys(row.metric for row in rows)
    return {"runs": list(runs)} | {
        f"feedback.{metric}": _result(metric, runs, [row for row in rows if row.metric == metric]) for metric in metrics
    }


def _result(metric: str, runs: Sequence[Run], rows: Sequence[JudgementRow]) -> ComparisonEvaluationResult:
    """Return a metric's result for an example's runs; with several pairs, each run's mean score."""
    pairs = [_scores(row) for row in rows]
    by_run = {run.id: [score for pair in pairs if (score := pair.get(run.id)) is not None] for run in runs}
    return ComparisonEvaluationResult(
        key=metric,
        scores={run: sum(scores) / len(scores) if scores else None for run, scores in by_run.items()},
        comment=_comment(rows[0]) if len(rows) == 1 else _counts(rows),
    )


def _scores(row: JudgementRow) -> Scores:
    known = row.left_score is not None and row.right_score is not None
    left, right = (row.left_score, row.right_score) if known else POINTS[row.winner]
    return {str(row.left_run_id): left, str(row.right_run_id): right}


def _comment(row: JudgementRow) -> str | None:
    return row.error or row.status if row.status in ("failed", "not_attempted") else row.comment


def _counts(rows: Sequence[JudgementRow]) -> str | None:
    if len({row.comment for row in rows}) == 1 and all(row.comment and row.status == "scored" for row in rows):
        return rows[0].comment
    scored = sum(row.status == "scored" for row in rows)
    missing = sum(row.status in ("failed", "not_attempted") for row in rows)
    return f"mean of {scored} pairs, {missing} missing"
