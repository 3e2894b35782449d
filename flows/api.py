"""The flows as functions: what a program, a notebook and the command line call."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.result import ExperimentResult
from flows.run_experiment import run_experiment
from specs.dataset import DatasetSpec
from specs.errors import InputError, first_problem
from specs.evaluator import EvaluatorSpec
from specs.experiment import ExperimentSpec
from specs.reference import name_of, refer
from specs.target import TargetSpec
from tasks.resolve import reference_to
from tasks.snapshot import freeze_checked

Function = Callable[..., Any]


def run(spec: ExperimentSpec, resume: str | None = None) -> list[str]:
    """Run a spec as a flow, and return the experiments' ids.

    The spec is checked and its dataset frozen before Prefect starts, so that a mistake is told at once. Raises
    InputError for it, and IncompleteError where something was left undone.
    """
    return run_experiment(freeze_checked(spec), resume)


def evaluate(
    target: Function | Mapping[str, Any] | TargetSpec,
    /,
    data: str | Path | Iterable[Mapping[str, Any]],
    evaluators: Sequence[Function | str | Mapping[str, Any] | EvaluatorSpec],
    *,
    experiment_prefix: str | None = None,
    description: str = "",
    metadata: Mapping[str, Any] | None = None,
    max_concurrency: int | None = None,
    num_repetitions: int = 1,
    run_key: str | None = None,
    **settings: Any,
) -> ExperimentResult:
    """Run a target on a dataset and judge every answer.

    Args:
        target: A function of the inputs, plain or async, or a target's spec.
        data: A JSONL file's path, a dataset's name, a snapshot's id, or rows of {"inputs", "reference_outputs", …}.
        evaluators: Functions, `"module:name"`, short names of ours, or specs.
        experiment_prefix: What the experiment is called.
        description: What it is for.
        metadata: Whatever should be found again with it.
        max_concurrency: Most items in the target, or in the evaluators, at once.
        num_repetitions: How often each example is answered.
        run_key: Calls with the same key are one experiment: a second one continues the first.
        settings: Further fields of ExperimentSpec.

    Raises InputError for what cannot work, before anything is called, and IncompleteError if not all was done.
    """
    try:
        one = _target(target)
        spec = ExperimentSpec(
            name=experiment_prefix or one.get("name", "experiment"),
            description=description,
            metadata=dict(metadata or {}),
            dataset=_dataset(data),
            targets=[one],
            evaluators=[_evaluator(evaluator) for evaluator in evaluators],
            repetitions=num_repetitions,
            max_concurrency=max_concurrency,
            run_key=run_key,
            **settings,
        )
    except ValidationError as error:
        raise InputError(first_problem(error, "evaluate")) from error
    return ExperimentResult(run(spec)[0])


def _target(target: Function | Mapping[str, Any] | TargetSpec) -> dict[str, Any]:
    if isinstance(target, Mapping):
        return dict(target)
    if callable(target):
        return {"kind": "python", "name": name_of(target), "function": refer(target)}
    return target.model_dump()


def _evaluator(evaluator: Function | str | Mapping[str, Any] | EvaluatorSpec) -> object:
    return {"use": reference_to(evaluator), "name": name_of(evaluator)} if callable(evaluator) else evaluator


def _dataset(data: str | Path | Iterable[Mapping[str, Any]]) -> DatasetSpec:
    if not isinstance(data, str | Path):
        return DatasetSpec(rows=[dict(row) for row in data])
    text = str(data)
    if text.startswith("snap-"):
        return DatasetSpec(snapshot=text)
    return DatasetSpec(path=text) if isinstance(data, Path) or text.endswith(".jsonl") else DatasetSpec(name=text)
