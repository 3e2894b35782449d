"""LangSmith's `evaluate`, `evaluate_existing` and `evaluate_comparative` on top of evalflows' own, with its targets
and evaluators adapted.
"""

import asyncio
import inspect
import secrets
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial, update_wrapper
from inspect import Parameter, Signature
from itertools import takewhile
from threading import Lock
from typing import TYPE_CHECKING, Any, TypedDict, overload

from evalflows.compat.langchain import load_evaluator
from evalflows.compat.langsmith.absent import ABSENT
from evalflows.compat.langsmith.datasets import (
    as_data,
    dataset_id,
    example_of,
    example_of_view,
    opened,
    result_of,
    run_key,
    run_of,
    run_of_view,
)
from evalflows.compat.langsmith.run_helpers import untraced
from evalflows.compat.langsmith.schemas import (
    ComparativeExperiment,
    ComparisonEvaluationResult,
    EvaluationResult,
    Example,
    Fields,
    Identity,
    Run,
    TracerSession,
)
from evalflows.compat.refusal import refusing
from evalflows.evaluators.binding import OFFERED, Bound, Scope, bind, declares
from evalflows.evaluators.foreign import evaluator_name
from evalflows.evaluators.score import ExampleView, RunView, as_number, preferences
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import TRIAL, InputError, names_to_choose, print_note, short
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec
from evalflows.specs.hints import show
from evalflows.specs.reference import name_of, parameters_of
from evalflows.store.queries.lookup import find_experiments, unique_name
from evalflows.store.records import ComparisonSetRow, ExperimentRow, JudgementRow, OutputRow, from_json
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from evalflows import ComparativeResult, ExperimentResult

__all__ = [
    "ComparativeExperimentResults",
    "ComparisonEvaluationResult",
    "DynamicComparisonRunEvaluator",
    "EvaluationResult",
    "EvaluationResults",
    "ExperimentResultRow",
    "ExperimentResults",
    "LangChainStringEvaluator",
    "RunEvaluator",
    "aevaluate",
    "aevaluate_existing",
    "comparison_evaluator",
    "evaluate",
    "evaluate_comparative",
    "evaluate_existing",
    "run_evaluator",
]


_TARGET_ONLY = {
    "data": None,
    "summary_evaluators": None,
    "num_repetitions": 1,
    "experiment_prefix": None,
    "description": None,
}
"""Arguments of `evaluate` that some kinds of existing experiments do not support as its target, with their defaults."""


def experiment_of(store: Store, experiment: Any, where: str = "evaluate_comparative: experiments") -> ExperimentRow:
    """Find an experiment by name, id, or an object with an id. Raises InputError if it does not exist."""
    reference = getattr(experiment, "experiment_id", None) or getattr(experiment, "id", None) or experiment
    if not isinstance(reference, Identity):
        wanted = "an experiment's name or id, or a result of evaluate"
        raise InputError(f"{where}: got {type(experiment).__name__}, wanted {wanted}")
    (identity,) = find_experiments(store, str(reference), just_one=True)
    row: ExperimentRow = store.read("experiments", identity)[0]
    return row


def refuse_target_only(arguments: Mapping[str, Any]) -> None:
    """Raise InputError for an argument of `evaluate` that has no meaning for existing experiments."""
    for name, value in arguments.items():
        wanted = _TARGET_ONLY[name]
        if value and value != wanted:
            raise InputError(f"evaluate: {name}: got {short(value)}, wanted {wanted}: an experiment has its own")


Function = Callable[..., Any]

TARGET_OFFERED = ("inputs", "attachments", "metadata")
LEGACY: dict[Scope, tuple[str, str]] = {
    "item": ("run", "example"),
    "run": ("runs", "examples"),
    "pair": ("runs", "example"),
}
"""The arguments of an evaluator with two parameters of any other names."""


def as_target(target: object) -> Function:
    """Adapt a target: a function (traceable or not) of the inputs as one dict, or a LangChain runnable.

    The function's parameter may have any name. Raises InputError for anything else.
    """
    function: Function = untraced(getattr(target, "invoke", target))
    if not callable(function):
        kind = type(target).__name__  # type: ignore[unreachable]  # what users hand over has any type
        raise InputError(f"evaluate: target: got {kind}, wanted a function of the inputs, or an experiment")
    where = f"target {name_of(function)!r}"
    parameters = parameters_of(function, where)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = list(takewhile(TARGET_OFFERED.__contains__, [p.name for p in positional])) or ["inputs"]
    unfilled = [p.name for p in positional[len(names) :] if p.default is p.empty]
    if not positional or unfilled:
        got = f"parameter {unfilled[0]!r}" if unfilled else "no parameter"
        raise InputError(f"{where}: got {got}, wanted the inputs, then at most {' and '.join(TARGET_OFFERED[1:])}")
    if [p.name for p in parameters] == ["inputs"]:
        return function  # unchanged, so that a spec can name it
    return _called_with(function, names)


def as_evaluator(evaluator: Any, scope: Scope = "item") -> Any:
    """Wrap an evaluator so that it receives LangSmith's objects.

    Our own evaluators, given by name or as a spec, are returned unchanged. Raises InputError if it cannot be called.
    """
    if isinstance(evaluator, str | Mapping | EvaluatorSpec):
        return evaluator
    if hasattr(evaluator, "as_run_evaluator"):
        evaluator = evaluator.as_run_evaluator()
    function = getattr(evaluator, "evaluate_run", evaluator)
    if not callable(function):
        kind = type(evaluator).__name__
        raise InputError(f"evaluate: evaluators: got {kind}, wanted a function or an object with evaluate_run")
    name = evaluator_name(function if function is evaluator else type(evaluator))
    return _with_langsmith_objects(as_named(function, name, scope), name)


def as_named(function: Function, name: str, scope: Scope) -> Function:
    """Return the function; one with two parameters of unknown names is wrapped to receive LangSmith's two arguments.

    Raises InputError if its parameters cannot be read.
    """
    parameters = parameters_of(function, f"evaluator {name!r}")
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(required) == 2 and not {*required} <= {*OFFERED[scope]}:
        return _called_with(function, LEGACY[scope])
    return function


def _called_with(function: Function, names: Sequence[str]) -> Function:
    """Wrap a function: keyword parameters with these names, passed on by position."""

    def call(**arguments: Any) -> Any:
        return function(*(_converted(name, arguments[name]) for name in names))

    update_wrapper(call, function).__name__ = evaluator_name(function)
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _with_langsmith_objects(function: Function, name: str) -> Function:
    """Wrap a function so that it receives LangSmith's objects instead of ours; its signature stays the same."""
    signature = inspect.signature(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        for parameter, value in bound.arguments.items():
            bound.arguments[parameter] = _converted(parameter, value)
        return function(*bound.args, **bound.kwargs)

    update_wrapper(call, function).__name__ = name
    return call


def _converted(parameter: str, value: Any) -> Any:
    if isinstance(value, RunView):
        return run_of_view(value)
    if isinstance(value, ExampleView):
        return example_of_view(value)
    if value is None and parameter in ("outputs", "reference_outputs"):
        return {}
    if parameter == "attachments":
        return opened(value)
    if isinstance(value, list) and parameter in ("runs", "examples", "outputs", "reference_outputs"):
        return [_converted(parameter, item) for item in value]
    return value


Points = tuple[float | None, float | None]

POINTS: Mapping[str | None, Points] = {
    **dict.fromkeys(("first", "left"), (1.0, 0.0)),
    **dict.fromkeys(("second", "right"), (0.0, 1.0)),
    "tie": (0.5, 0.5),
    None: (None, None),
}
"""The scores of two runs by the winner, for preferences without scores."""


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
        """Compare the runs. Raises TypeError or ValueError if the function does not return a preference."""
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


class RunsOfAll:
    """The runs of more than two experiments by example and repetition, which an evaluator judges at once.

    Each pair takes its two scores from that. An evaluator that does not return a score for each run is asked about two
    at a time instead.
    """

    def __init__(self, outputs: Iterable[OutputRow], *, load_nested: bool) -> None:
        grouped: defaultdict[tuple[str, int], list[OutputRow]] = defaultdict(list)
        for row in outputs:
            grouped[row.example_id, row.repetition].append(row if load_nested else replace(row, steps=None))
        self._of_run = {row.run_id: group for group in grouped.values() for row in group}

    def arguments(self, runs: Sequence[RunView], example: ExampleView) -> tuple[str, dict[str, Any]]:
        """Return what names the runs of the example and repetition of a pair, and the arguments of a judge of all."""
        rows = self._of_run[runs[0].id]
        of_all = [run_of(row, example.inputs) for row in rows]
        return rows[0].run_id, _arguments(of_all, example_of_view(example))


def _scores_of_all(returned: Any, runs: Sequence[Run]) -> Fields | None:
    """Return the key, the comment and the scores by run of what an evaluator of several runs returned; None if it did
    not give a score for each.
    """
    if isinstance(returned, list):
        returned = {"scores": returned}
    found = _by_stored_ids(returned)
    scores = found.get("scores") if isinstance(found, Mapping) else None
    if isinstance(scores, list | tuple) and len(scores) == len(runs):
        scores = dict(zip((run.id for run in runs), scores, strict=True))
    if not isinstance(scores, Mapping) or any(as_number(scores.get(run.id)) is None for run in runs):
        return None
    return {**found, "scores": scores}


def _of_pair(of_all: Fields, runs: Sequence[RunView]) -> Fields:
    return {**of_all, "scores": {run.id: of_all["scores"][run.id] for run in runs}}


def as_comparator_of_all(evaluator: Any, of_all: RunsOfAll) -> Any:
    """Like `as_comparator`, for more than two experiments, whose runs the evaluator gets at once."""
    pairwise = as_comparator(evaluator)
    if pairwise is evaluator:  # ours
        return pairwise
    bound = _bound(_function_of(evaluator))
    judged: dict[str, Future[Fields | None]] = {}  # by what names the runs
    lock = Lock()

    def begin(name: str) -> tuple[bool, Future[Fields | None]]:
        with lock:
            return name not in judged, judged.setdefault(name, Future())

    def call(runs: Sequence[RunView], example: ExampleView, **models: Any) -> Any:
        name, arguments = of_all.arguments(runs, example)
        is_first, future = begin(name)
        if is_first:
            try:
                future.set_result(_scores_of_all(bound.call(arguments | models), arguments["runs"]))
            except Exception:  # it may want two runs
                future.set_result(None)
            finally:
                future.cancel()  # of others that wait, if this was interrupted
        found = future.result()
        return pairwise(runs=runs, example=example, **models) if found is None else _of_pair(found, runs)

    async def acall(runs: Sequence[RunView], example: ExampleView, **models: Any) -> Any:
        name, arguments = of_all.arguments(runs, example)
        is_first, future = begin(name)
        if is_first:
            try:
                future.set_result(_scores_of_all(await bound.call(arguments | models), arguments["runs"]))
            except Exception:
                future.set_result(None)
            finally:
                future.cancel()
        found = await asyncio.wrap_future(future)
        return await pairwise(runs=runs, example=example, **models) if found is None else _of_pair(found, runs)

    compare: Any = acall if bound.is_async else call
    update_wrapper(compare, pairwise)
    compare.__signature__ = pairwise.__signature__
    return compare


def as_comparator(evaluator: Any) -> Any:
    """Wrap a pairwise evaluator so that it receives LangSmith's objects.

    Our own evaluators, given by name or as a spec, are returned unchanged. Raises InputError if the evaluator cannot
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
        judgements: defaultdict[str, list[JudgementRow]] = defaultdict(list)
        for judgement in store.read("judgements", row.comparison_id):
            judgements[judgement.example_id or ""].append(judgement)
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

    Raises InputError for invalid arguments before anything is called, and IncompleteError if not everything was done;
    finished results are stored even then.
    """
    import evalflows  # loads Prefect, which takes seconds

    store = Store()
    rows = [experiment_of(store, experiment) for experiment in experiments]
    if len(rows) > 2:
        of_all = RunsOfAll(
            (output for row in rows for output in store.rows("outputs", row.experiment_id)), load_nested=load_nested
        )
        compared = [as_comparator_of_all(evaluator, of_all) for evaluator in evaluators]
    else:
        compared = [as_comparator(evaluator) for evaluator in evaluators]
    result = evalflows.evaluate_comparative(
        [row.experiment_id for row in rows],
        compared,
        experiment_prefix=f"{experiment_prefix}-{secrets.token_hex(4)}"
        if experiment_prefix
        else f"{' vs. '.join(unique_name(row.name, row.experiment_id) for row in rows)}-{secrets.token_hex(2)}",
        description=description,
        metadata=metadata,
        max_concurrency=max_concurrency,
        load_nested=load_nested,
        randomize_order=randomize_order,
    )
    return ComparativeExperimentResults(result)


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
    by_run = {run.id: [pair[run.id] for pair in pairs if pair.get(run.id) is not None] for run in runs}
    return ComparisonEvaluationResult(
        key=metric,
        scores={run: _mean(scores) for run, scores in by_run.items()},
        comment=_comment(rows[0]) if len(rows) == 1 else _counts(rows),
    )


def _scores(row: JudgementRow) -> Scores:
    known = row.left_score is not None and row.right_score is not None
    left, right = (row.left_score, row.right_score) if known else POINTS[row.winner]
    return {str(row.left_run_id): left, str(row.right_run_id): right}


def _mean(scores: Sequence[float | None]) -> float | None:
    return sum(score for score in scores if score is not None) / len(scores) if scores else None


def _comment(row: JudgementRow) -> str | None:
    return row.error or row.status if row.status in ("failed", "not_attempted") else row.comment


def _counts(rows: Sequence[JudgementRow]) -> str | None:
    if len({row.comment for row in rows}) == 1 and all(row.comment and row.status == "scored" for row in rows):
        return rows[0].comment
    scored = sum(row.status == "scored" for row in rows)
    missing = sum(row.status in ("failed", "not_attempted") for row in rows)
    return f"mean of {scored} pairs, {missing} missing"


class EvaluationResults(TypedDict):
    """Several judgements."""

    results: list[EvaluationResult]


class ExperimentResultRow(TypedDict):
    """One run, its example and its judgements."""

    run: Run
    example: Example
    evaluation_results: EvaluationResults


class ExperimentResults:
    """A finished experiment: its rows in the dataset's order, one repetition after the other.

    `summary_results` has the scores of the whole experiment.
    """

    def __init__(self, result: "ExperimentResult") -> None:
        (row,) = Store().read("experiments", result.experiment_id)
        self.experiment_id: str = row.experiment_id
        self.experiment_name: str = unique_name(row.name, row.experiment_id)
        self.url: str | None = result.url
        self.comparison_url: str | None = None
        self.summary_results: EvaluationResults = {"results": [result_of(score) for score in result.summary]}
        self._dataset = dataset_id(row.dataset_name)
        self._rows = [
            ExperimentResultRow(
                run=run_of(item.output, (example := example_of(item.row, self._dataset)).inputs),
                example=example,
                evaluation_results={"results": [result_of(s) for s in item.scores if s.status != "sampled_out"]},
            )
            for item in result
        ]

    def __repr__(self) -> str:
        return f"<ExperimentResults {self.experiment_name}>"

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[ExperimentResultRow]:
        return iter(self._rows)

    async def __aiter__(self) -> AsyncIterator[ExperimentResultRow]:
        for row in self._rows:
            yield row

    def get_dataset_id(self) -> str | None:
        """Return the dataset's id; None if the examples were not from a named dataset."""
        return self._dataset

    def wait(self) -> None:
        """Do nothing: the experiment is finished."""

    def to_pandas(self, start: int | None = 0, end: int | None = None) -> "pd.DataFrame":
        """Return one row per run: inputs.*, outputs.*, error, reference.*, feedback.*, execution_time and ids."""
        import pandas as pd

        return pd.DataFrame([_flat(row) for row in self._rows[start:end]])


def _reported(result: "ExperimentResult") -> ExperimentResults:
    """Return the results of a finished experiment, after printing its name, and where to look at it."""
    found = ExperimentResults(result)
    print_note(f"experiment {found.experiment_name}: {found.url or show(found.experiment_id).code}")
    return found


def _flat(row: ExperimentResultRow) -> dict[str, Any]:
    run, example = row["run"], row["example"]
    columns: dict[str, Any] = {f"inputs.{name}": value for name, value in example.inputs.items()}
    columns |= {f"outputs.{name}": value for name, value in (run.outputs or {}).items()} | {"error": run.error}
    columns |= {f"reference.{name}": value for name, value in (example.outputs or {}).items()}
    for result in row["evaluation_results"]["results"]:
        columns[f"feedback.{result.key}"] = result.score if result.score is not None else result.value
    return columns | {"execution_time": run.latency, "example_id": example.id, "id": run.id}


def is_experiment(target: object) -> bool:
    """Whether a target of `evaluate` is an existing experiment."""
    return isinstance(target, Identity | TracerSession | ExperimentResults)


@refusing()
def evaluate_existing(
    experiment: Any,
    /,
    evaluators: Sequence[Any] | None = None,
    summary_evaluators: Sequence[Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_concurrency: int | None = 0,
    client: Any = None,
    load_nested: bool = False,
    blocking: bool = True,
    disable_evaluator_tracing: bool = False,
) -> ExperimentResults:
    """Evaluate the answers of an existing experiment. The scores belong to a new one, which reuses the answers.

    Args:
        experiment: Its name or id, or the result of `evaluate` or `read_project`.
        evaluators: As in `evaluate`.
        summary_evaluators: As in `evaluate`.
        metadata: Metadata stored with the new experiment.
        max_concurrency: The maximum number of answers judged at once; 0 means one, None as many as the limits allow.
        client: Has no effect: there is only one store.
        load_nested: Has no effect: evaluators always get the runs' child runs.
        blocking: Has no effect: the results are complete when they are returned.
        disable_evaluator_tracing: Has no effect: evaluators' calls are recorded in the ledger, not as runs.

    Raises InputError for invalid arguments and an unknown experiment, before anything is called, and IncompleteError as
    `evaluate` does.
    """
    import evalflows  # loads Prefect, which takes seconds

    row = experiment_of(Store(), experiment, "evaluate_existing: experiment")
    if not evaluators and not summary_evaluators:
        raise InputError("evaluate_existing: got no evaluators, wanted at least one")
    result = evalflows.evaluate(
        {"kind": "recorded", "name": row.target, "experiment": row.experiment_id},
        DatasetSpec(name=row.dataset_name, snapshot=row.snapshot_id),
        [as_evaluator(evaluator) for evaluator in evaluators or ()],
        summary_evaluators=[as_evaluator(evaluator, "run") for evaluator in summary_evaluators or ()],
        experiment_prefix=unique_name(row.name, row.experiment_id),
        description=row.description,
        metadata=metadata,
        max_concurrency=max_concurrency,
        num_repetitions=row.repetitions,
    )
    return _reported(result)


async def aevaluate_existing(
    experiment: Any,
    /,
    evaluators: Sequence[Any] | None = None,
    summary_evaluators: Sequence[Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_concurrency: int | None = 0,
    client: Any = None,
    load_nested: bool = False,
    blocking: bool = True,
    disable_evaluator_tracing: bool = False,
) -> ExperimentResults:
    """Like `evaluate_existing`, for async callers, whose event loop it does not block."""
    call = partial(evaluate_existing, blocking=blocking, load_nested=load_nested)
    return await asyncio.to_thread(call, experiment, evaluators, summary_evaluators, metadata, max_concurrency)


Prepare = Callable[[Run, Example | None], Mapping[str, Any]]


class LangChainStringEvaluator:
    """An evaluator of LangChain's: its name with `config`, or an object with `evaluate_strings`.

    `prepare_data` returns the texts `prediction`, `reference` and `input` of a run and its example; without it, each is
    the only field of the outputs, reference outputs and inputs. Raises InputError as `load_evaluator` does.
    """

    def __init__(
        self, evaluator: Any, *, config: Mapping[str, Any] | None = None, prepare_data: Prepare | None = None
    ) -> None:
        loads = isinstance(evaluator, str)
        if not loads and not hasattr(evaluator, "evaluate_strings"):
            raise InputError(f"LangChainStringEvaluator: got {short(evaluator)}, wanted a name or a string evaluator")
        self.evaluator: Any = load_evaluator(evaluator, **(config or {})) if loads else evaluator
        if not hasattr(self.evaluator, "evaluate_strings"):
            raise InputError(f"LangChainStringEvaluator: got {short(evaluator)}, wanted an evaluator of one text")
        self._prepare = prepare_data or self._only_fields

    @property
    def key(self) -> str:
        return str(self.evaluator.evaluation_name)

    def as_run_evaluator(self) -> Callable[..., Any]:
        """Return the function of (run, example) that judges."""

        async def judge(run: Run, example: Example) -> Fields | None:
            texts = self._prepare(run, example)
            if getattr(self.evaluator, "requires_reference", False) and texts.get("reference") is None:
                return None
            result = await self.evaluator.aevaluate_strings(**texts)
            value = result.get("value")
            label = value if isinstance(value, str) and result.get("score") is None else None
            return {"key": self.key, "score": result.get("score"), "value": label, "comment": result.get("reasoning")}

        judge.__name__ = judge.__qualname__ = self.key
        declared: Fields = {} if getattr(self.evaluator, "higher_is_better", True) else {"higher_is_better": False}
        if (bounds := getattr(self.evaluator, "range", None)) is not None:
            declared["range"] = bounds
        return declares(lambda name, settings: {name: declared})(judge) if declared else judge

    def _only_fields(self, run: Run, example: Example | None) -> Fields:
        return {
            "prediction": _only(run.outputs, "outputs"),
            "reference": _only(example.outputs if example is not None else None, "reference outputs"),
            "input": _only(run.inputs, "inputs"),
        }


def _only(fields: Mapping[str, Any] | None, what: str) -> Any:
    if not fields:
        return None
    if len(fields) > 1:
        raise ValueError(f"{what}: got the fields {', '.join(fields)}, wanted one, or prepare_data")
    return next(iter(fields.values()))


__getattr__ = ABSENT.of_module(__name__)

Pair = tuple[Any, Any] | list[Any]
"""Two experiments: their names or ids, or results of `evaluate`."""


class _Unset(int):
    """The default of `max_concurrency`, to tell it from a 0 of the caller's."""


_ONE_AT_A_TIME = _Unset(0)
_OF_EXPERIMENTS = frozenset({"load_nested", "randomize_order"})
"""Arguments of `evaluate` that only experiments as the target have."""
_PAIRS_AT_ONCE = 5


class RunEvaluator:
    """Any object with `evaluate_run` can be used as an evaluator; it need not inherit from this class."""

    def evaluate_run(self, run: Run, example: Example | None = None, evaluator_run_id: uuid.UUID | None = None) -> Any:
        raise NotImplementedError


def run_evaluator(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function unchanged: any function can be an evaluator."""
    return func


@overload
def evaluate(target: Pair, /, *, evaluators: Sequence[Any], **options: Any) -> ComparativeExperimentResults: ...


@overload
def evaluate(
    target: Any,
    /,
    data: Any = None,
    evaluators: Sequence[Any] | None = None,
    summary_evaluators: Sequence[Any] | None = None,
    **options: Any,
) -> ExperimentResults: ...


@refusing(
    experiment="each call starts a new experiment; `evalflows resume` continues an interrupted one",
    error_handling="a failed answer is a row with the error and counts as missing",
)
def evaluate(
    target: Any,
    /,
    data: Any = None,
    evaluators: Sequence[Any] | None = None,
    summary_evaluators: Sequence[Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    experiment_prefix: str | None = None,
    description: str | None = None,
    max_concurrency: int | None = _ONE_AT_A_TIME,
    num_repetitions: int = 1,
    client: Any = None,
    blocking: bool = True,
    experiment: Any = None,
    upload_results: bool = True,
    disable_evaluator_tracing: bool = False,
    error_handling: str = "log",
    **kwargs: Any,
) -> ExperimentResults | ComparativeExperimentResults:
    """Run a target on a dataset and evaluate every answer, or compare the answers of two experiments in pairs.

    Experiments of one prefix are one history: `PREFIX` is the newest, `PREFIX~1` the one before it. The results'
    `experiment_name` is unique.

    Args:
        target: A sync or async function of the inputs as one dict, or a LangChain runnable; an existing experiment,
            for which see `evaluate_existing`; or two, for which see `evaluate_comparative`.
        data: A dataset, its name or id, or examples.
        evaluators: Functions of (run, example), or of any of inputs, outputs, reference_outputs, and so on.
        summary_evaluators: Likewise, with lists over all runs.
        metadata: Metadata stored with the experiment.
        experiment_prefix: The experiment's name in the store; by default the target's name.
        description: A description of the experiment.
        max_concurrency: The maximum number of items in the target, or in the evaluators, at once; 0 means one, None
            as many as the limits allow. For two experiments the default is 5.
        num_repetitions: The number of answers per example.
        client: Has no effect: there is only one store.
        blocking: Has no effect: the results are complete when they are returned.
        upload_results: If false, the experiment is a trial, which is no baseline and which no gate decides on. It is
            stored even then; nothing is ever uploaded.
        disable_evaluator_tracing: Has no effect: evaluators' calls are recorded in the ledger, not as runs.
        kwargs: load_nested, for experiments, and randomize_order, for two.

    Raises InputError for invalid arguments and unsupported options before anything is called, and IncompleteError if
    not everything was done or no answer succeeded; finished results are stored even then.
    """
    import evalflows  # loads Prefect, which takes seconds

    if isinstance(target, tuple | list):
        if len(target) != 2:
            raise InputError(
                f"evaluate: target: got {len(target)} experiments, wanted 2; evaluate_comparative takes more"
            )
        refuse_target_only({"data": data, "summary_evaluators": summary_evaluators, "num_repetitions": num_repetitions})
        if unknown := kwargs.keys() - _OF_EXPERIMENTS:
            raise InputError(f"evaluate: got {min(unknown)!r}, wanted only load_nested and randomize_order")
        is_unset = max_concurrency is None or isinstance(max_concurrency, _Unset)
        return evaluate_comparative(
            target,
            evaluators=evaluators or (),
            experiment_prefix=experiment_prefix,
            description=description,
            max_concurrency=_PAIRS_AT_ONCE if is_unset else max_concurrency or 0,
            metadata=metadata,
            **kwargs,
        )
    if unknown := kwargs.keys() - ({"load_nested"} if is_experiment(target) else ()):
        known = [name for name in inspect.signature(evaluate).parameters if name != "kwargs"]
        of_pairs = "it only with two experiments as the target"
        wanted = of_pairs if min(unknown) in _OF_EXPERIMENTS else names_to_choose(min(unknown), known, most=len(known))
        raise InputError(f"evaluate: got {min(unknown)!r}, wanted {wanted}")
    if is_experiment(target):
        of_target = {"data": data, "experiment_prefix": experiment_prefix, "description": description}
        refuse_target_only(of_target | {"num_repetitions": num_repetitions})
        return evaluate_existing(target, evaluators, summary_evaluators, metadata, max_concurrency)
    function = as_target(target)
    result = evalflows.evaluate(
        function,
        as_data(Store(), data),
        [as_evaluator(evaluator) for evaluator in evaluators or ()],
        summary_evaluators=[as_evaluator(evaluator, "run") for evaluator in summary_evaluators or ()],
        experiment_prefix=experiment_prefix or name_of(function),
        description=description,
        metadata=metadata,
        max_concurrency=max_concurrency,
        num_repetitions=num_repetitions,
        tags=[] if upload_results else [TRIAL],
    )
    return _reported(result)


@overload
async def aevaluate(target: Pair, /, *, evaluators: Sequence[Any], **options: Any) -> ComparativeExperimentResults: ...


@overload
async def aevaluate(
    target: Any,
    /,
    data: Any = None,
    evaluators: Sequence[Any] | None = None,
    summary_evaluators: Sequence[Any] | None = None,
    **options: Any,
) -> ExperimentResults: ...


async def aevaluate(
    target: Any,
    /,
    data: Any = None,
    evaluators: Sequence[Any] | None = None,
    summary_evaluators: Sequence[Any] | None = None,
    **options: Any,
) -> ExperimentResults | ComparativeExperimentResults:
    """Like `evaluate`, for async callers, whose event loop it does not block. The options are the same.

    `data` may also be an async iterable of examples, and the results can be iterated asynchronously.
    """
    if hasattr(data, "__aiter__"):
        data = [example async for example in data]
    return await asyncio.to_thread(evaluate, target, data, evaluators, summary_evaluators, **options)
