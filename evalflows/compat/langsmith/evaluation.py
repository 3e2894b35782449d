"""LangSmith's `evaluate`, `evaluate_existing` and `evaluate_comparative` on top of evalflows' own, with its targets and
evaluators adapted, and LangChain's string evaluators as LangSmith's SDK wraps them."""

import asyncio
import inspect
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, overload

from evalflows.compat.langchain import load_evaluator
from evalflows.compat.langsmith.absent import ABSENT
from evalflows.compat.langsmith.comparative import (
    ComparativeExperimentResults,
    DynamicComparisonRunEvaluator,
    comparison_evaluator,
    evaluate_comparative,
)
from evalflows.compat.langsmith.conversion import (
    dataset_id,
    example_of,
    experiment_of,
    result_of,
    results_of_judgement,
    run_of,
)
from evalflows.compat.langsmith.datasets import as_data
from evalflows.compat.langsmith.schemas import (
    ComparisonEvaluationResult,
    EvaluationResult,
    Example,
    Fields,
    Identity,
    Run,
    TracerSession,
)
from evalflows.compat.langsmith.user_functions import as_evaluator, as_target, keys_by_name, told_apart
from evalflows.compat.refusal import refusing
from evalflows.evaluators.declarations import declares
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError, names_to_choose, short
from evalflows.specs.escaping import print_note
from evalflows.specs.hints import show
from evalflows.specs.metric_names import TRIAL
from evalflows.specs.reference import name_of, refer
from evalflows.store.described import from_described
from evalflows.store.queries.lookup import unique_name
from evalflows.store.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from evalflows import ExperimentResult

__all__ = [
    "ComparativeExperimentResults", "ComparisonEvaluationResult", "DynamicComparisonRunEvaluator", "EvaluationResult",
    "EvaluationResults", "ExperimentResultRow", "ExperimentResults", "LangChainStringEvaluator", "RunEvaluator",
    "aevaluate", "aevaluate_existing", "comparison_evaluator", "evaluate", "evaluate_comparative", "evaluate_existing",
    "run_evaluator",
]  # fmt: skip

_TARGET_ONLY = {
    "data": None,
    "summary_evaluators": None,
    "num_repetitions": 1,
    "experiment_prefix": None,
    "description": None,
}
"""Arguments of `evaluate` that some kinds of existing experiments do not support as its target, with their defaults."""

Pair = tuple[Any, Any] | list[Any]
"""Two experiments: their names or ids, or results of `evaluate`."""

_OF_EXPERIMENTS = frozenset({"load_nested", "randomize_order"})
"""Arguments of `evaluate` that only experiments as the target have."""
_PAIRS_AT_ONCE = 5

Prepare = Callable[[Run, Example | None], Mapping[str, Any]]


def refuse_target_only(arguments: Mapping[str, Any]) -> None:
    """Raise InputError for an argument of `evaluate` that has no meaning for existing experiments."""
    for name, value in arguments.items():
        wanted = _TARGET_ONLY[name]
        if value and value != wanted:
            raise InputError(f"evaluate: {name}: got {short(value)}, wanted {wanted}: an experiment has its own")


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

    def __init__(self, result: "ExperimentResult", keys: Mapping[str, Sequence[str]] | None = None) -> None:
        """Read the results; `keys` are those under which an evaluator of a name leaves its failures."""
        (row,) = Store().read("experiments", result.experiment_id)
        self.experiment_id: str = row.experiment_id
        self.experiment_name: str = unique_name(row.name, row.experiment_id)
        self.url: str | None = result.url
        self.comparison_url: str | None = None
        self.summary_results: EvaluationResults = {"results": [result_of(score) for score in result.summary]}
        self._dataset = dataset_id(row.dataset_name)
        place = {judge.name: number for number, judge in enumerate(from_described(row.evaluators))}
        self._rows = [
            ExperimentResultRow(
                run=run_of(item.output, (example := example_of(item.row, self._dataset)).inputs),
                example=example,
                evaluation_results={
                    "results": [
                        found
                        for score in sorted(item.scores, key=lambda score: place.get(score.evaluator, len(place)))
                        if score.status != "sampled_out"
                        for found in results_of_judgement(score, keys or {})
                    ]
                },
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


def _reported(result: "ExperimentResult", evaluators: Sequence[Any]) -> ExperimentResults:
    """Return the results of a finished experiment, after printing its name, and where to look at it."""
    found = ExperimentResults(result, keys_by_name(evaluators))
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
    """Return whether a target of `evaluate` is an existing experiment."""
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

    Raise InputError for invalid arguments and an unknown experiment, before anything is called, and IncompleteError as
    `evaluate` does.
    """
    import evalflows  # loads Prefect, which takes seconds

    row = experiment_of(Store(), experiment, "evaluate_existing: experiment")
    if not evaluators and not summary_evaluators:
        raise InputError("evaluate_existing: got no evaluators, wanted at least one")
    judges = told_apart([as_evaluator(evaluator) for evaluator in evaluators or ()])
    result = evalflows.evaluate(
        {"kind": "recorded", "name": row.target, "experiment": row.experiment_id},
        DatasetSpec(name=row.dataset_name, snapshot=row.snapshot_id),
        judges,
        summary_evaluators=[as_evaluator(evaluator, "run") for evaluator in summary_evaluators or ()],
        experiment_prefix=unique_name(row.name, row.experiment_id),
        description=row.description,
        metadata=metadata,
        max_concurrency=max_concurrency,
        num_repetitions=row.repetitions,
    )
    return _reported(result, judges)


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


__getattr__ = ABSENT.of_module(__name__)


class _Unset(int):
    """The default of `max_concurrency`, to tell it from a 0 of the caller's."""


_ONE_AT_A_TIME = _Unset(0)


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
        experiment: An experiment of the same target: its name or id, or a result. It does not change: its answers are
            those of the new experiment, which has its name, and the target is called only for those that it lacks.
        upload_results: If false, the experiment is a trial, which is no baseline and which no gate decides on. It is
            stored even then; nothing is ever uploaded.
        disable_evaluator_tracing: Has no effect: evaluators' calls are recorded in the ledger, not as runs.
        kwargs: load_nested, for experiments, and randomize_order, for two.

    Raise InputError for invalid arguments and unsupported options before anything is called, and IncompleteError if
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
    asked: Fields = {"kind": "python", "name": name_of(function), "function": refer(function)}
    if experiment is not None:
        if experiment_prefix is not None:
            raise InputError("evaluate: got experiment and experiment_prefix, wanted one of them")
        before = experiment_of(Store(), experiment, "evaluate: experiment")
        experiment_prefix, asked["answers_of"] = before.name, before.experiment_id
    judges = told_apart([as_evaluator(evaluator) for evaluator in evaluators or ()])
    result = evalflows.evaluate(
        asked,
        as_data(Store(), data),
        judges,
        summary_evaluators=[as_evaluator(evaluator, "run") for evaluator in summary_evaluators or ()],
        experiment_prefix=experiment_prefix or name_of(function),
        description=description,
        metadata=metadata,
        max_concurrency=max_concurrency,
        num_repetitions=num_repetitions,
        tags=[] if upload_results else [TRIAL],
    )
    if experiment is not None:
        reused = sum(item.output.reused_from is not None for item in result)
        print_note(
            f"experiment {unique_name(before.name, before.experiment_id)}: not changed; answers reused: {reused}"
        )
    return _reported(result, judges)


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
            given = self._prepare(run, example)
            if getattr(self.evaluator, "requires_reference", False) and given.get("reference") is None:
                return None
            texts = {name: text for name, text in given.items() if getattr(self.evaluator, f"requires_{name}", True)}
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
