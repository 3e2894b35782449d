"""The flows as functions: what a program, a notebook and the command line call."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, overload

from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from pydantic import ValidationError

from flows.comparing import Compared, PairwiseEvaluator, evaluate_comparative
from flows.comparison_result import ComparativeResult
from flows.gate_release import gate_release
from flows.result import ExperimentResult
from flows.run_experiment import run_experiment
from specs.dataset import DatasetSpec
from specs.errors import InputError, first_problem
from specs.evaluator import EvaluatorSpec
from specs.experiment import ExperimentSpec
from specs.reference import name_of, refer
from specs.target import TargetSpec
from store.rows import READERS, suffix
from tasks.gate import check_gates
from tasks.progress import Watch, watched
from tasks.resolve import reference_to
from tasks.snapshot import freeze_checked

Function = Callable[..., Any]
Evaluator = Function | str | Mapping[str, Any] | EvaluatorSpec | Any
"""Also an evaluator of another project that cannot be called."""


def run(spec: ExperimentSpec, resume: str | None = None, watch: Watch | None = None) -> list[str]:
    """Run a spec as a flow, and return the experiments' ids.

    The spec is checked and its dataset frozen before Prefect starts, so that a mistake is told at once. `watch` is
    called every second with how far the run is. Raises InputError for a mistake, and IncompleteError where something
    was left undone.
    """
    frozen = freeze_checked(spec)
    # Heartbeats tell a server that a worker's run has died. Here they would only make every run last whole seconds, as
    # their thread sleeps for one and is waited for.
    with watched(watch), temporary_settings(set_defaults={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        return run_experiment(frozen, resume)


def gate(spec: ExperimentSpec, resume: str | None = None, watch: Watch | None = None) -> list[str]:
    """Run a spec as a flow and decide by its gates. Returns the decisions' ids.

    Checked and told as by `run`. Raises GateFailedError where a gate says FAIL.
    """
    checked = check_gates.fn(spec)
    with watched(watch), temporary_settings(set_defaults={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        return gate_release(checked, resume)


Target = Function | Mapping[str, Any] | TargetSpec
Data = str | Path | Iterable[Mapping[str, Any]] | DatasetSpec


@overload
def evaluate(
    target: Target, /, data: Data, evaluators: Sequence[Evaluator] = (), **settings: Any
) -> ExperimentResult: ...


@overload
def evaluate(
    target: tuple[str | ExperimentResult, ...], /, *, evaluators: Sequence[PairwiseEvaluator], **settings: Any
) -> ComparativeResult: ...


def evaluate(
    target: Target | Compared,
    /,
    data: Data | None = None,
    evaluators: Sequence[Any] = (),
    *,
    summary_evaluators: Sequence[Evaluator] = (),
    experiment_prefix: str | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_concurrency: int | None = None,
    num_repetitions: int = 1,
    run_key: str | None = None,
    **settings: Any,
) -> ExperimentResult | ComparativeResult:
    """Run a target on a dataset and judge every answer; or, of a tuple of experiments, compare their answers in pairs.

    Args:
        target: A function of the inputs, plain or async, or a target's spec; or experiments, for which see
            `evaluate_comparative`.
        data: A file's path, a dataset's name, a snapshot's id, rows of {"inputs", "reference_outputs", …}, or a spec.
        evaluators: Functions, `"module:name"`, short names of ours, or specs.
        summary_evaluators: The same, for those that judge all answers at once.
        experiment_prefix: What the experiment is called.
        description: What it is for.
        metadata: Whatever should be found again with it.
        max_concurrency: Most items in the target, or in the evaluators, at once; 0 is one, None is as many as fit.
        num_repetitions: How often each example is answered.
        run_key: Calls with the same key are one experiment: a second one continues the first.
        settings: Further fields of ExperimentSpec.

    Raises InputError for what cannot work, before anything is called, and IncompleteError if not all was done.
    """
    if isinstance(target, tuple | list):
        if data is not None or summary_evaluators or num_repetitions != 1:
            raise InputError("evaluate: got experiments to compare, wanted no data, summary_evaluators or repetitions")
        return evaluate_comparative(
            target,
            evaluators,
            experiment_prefix=experiment_prefix,
            description=description,
            metadata=metadata,
            max_concurrency=5 if max_concurrency is None else max_concurrency,
            run_key=run_key,
            **settings,
        )
    if data is None:
        raise InputError("evaluate: got no data, wanted a file's path, a dataset's name, a snapshot's id, or rows")
    try:
        one = _target(target)  # type: ignore[arg-type]  # what is none is told there
        spec = ExperimentSpec(
            name=experiment_prefix or one.get("name", "experiment"),
            description=description or "",
            metadata=dict(metadata or {}),
            dataset=_dataset(data),
            targets=[one],
            evaluators=[_evaluator(evaluator) for evaluator in evaluators],
            summary_evaluators=[_evaluator(evaluator) for evaluator in summary_evaluators],
            repetitions=num_repetitions,
            max_concurrency=1 if max_concurrency == 0 else max_concurrency,
            run_key=run_key,
            **settings,
        )
    except ValidationError as error:
        raise InputError(first_problem(error, "evaluate")) from error
    return ExperimentResult(run(spec)[0])


@overload
async def aevaluate(
    target: Target, /, data: Data, evaluators: Sequence[Evaluator] = (), **settings: Any
) -> ExperimentResult: ...


@overload
async def aevaluate(
    target: tuple[str | ExperimentResult, ...], /, *, evaluators: Sequence[PairwiseEvaluator], **settings: Any
) -> ComparativeResult: ...


async def aevaluate(
    target: Any, /, data: Any = None, evaluators: Sequence[Any] = (), **settings: Any
) -> ExperimentResult | ComparativeResult:
    """`evaluate`, from a program that has an event loop: that goes on meanwhile. The arguments are the same."""
    return await asyncio.to_thread(partial(evaluate, target, data, evaluators, **settings))


def _target(target: Target) -> dict[str, Any]:
    if isinstance(target, Mapping):
        return dict(target)
    if callable(target):
        return {"kind": "python", "name": name_of(target), "function": refer(target)}
    return target.model_dump()


def _evaluator(evaluator: Evaluator) -> object:
    """Some evaluators of other projects are objects that cannot be called: the binder knows them."""
    if isinstance(evaluator, Mapping):
        return _named(evaluator)
    if isinstance(evaluator, str | EvaluatorSpec):
        return evaluator
    return {"use": reference_to(evaluator), "name": name_of(evaluator)}


def _named(evaluator: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping whose `use`, or that of its tiers and fallback, may be the function itself."""
    named = dict(evaluator)
    use = named.get("use")
    if use is not None and not isinstance(use, str):
        named |= {"use": reference_to(use), "name": named.get("name") or name_of(use)}
    if isinstance(tiers := named.get("tiers"), list | tuple):
        named["tiers"] = [_evaluator(tier) for tier in tiers]
    if (fallback := named.get("fallback")) is not None:
        named["fallback"] = _evaluator(fallback)
    return named


def _dataset(data: Data) -> DatasetSpec:
    if isinstance(data, DatasetSpec):
        return data
    if not isinstance(data, str | Path):
        return DatasetSpec(rows=[dict(row) for row in data])
    text = str(data)
    if text.startswith("snap-"):
        return DatasetSpec(snapshot=text)
    return DatasetSpec(path=text) if isinstance(data, Path) or suffix(Path(text)) in READERS else DatasetSpec(name=text)
