"""Evaluate functions and other targets from a program or a notebook."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from pydantic import ValidationError

from evalflows.api.running import run
from evalflows.engine.spec_evaluators import named_reference
from evalflows.engine.spec_targets import text_field
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import InputError, first_problem
from evalflows.specs.escaping import print_note
from evalflows.specs.evaluator import EvaluatorSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.reference import name_of, refer
from evalflows.specs.target import TargetSpec
from evalflows.store.queries.continuing import begun_since, continued_by
from evalflows.store.records import now
from evalflows.store.store import Store

if TYPE_CHECKING:
    from evalflows.api.comparisons import ComparativeResult, Compared, PairwiseEvaluator
    from evalflows.api.results import ExperimentResult

FAILURES_SAID = 3
"""Errors that `evaluate` names after a run."""

Function = Callable[..., Any]
Evaluator = Function | str | Mapping[str, Any] | EvaluatorSpec | Any
"""Any: some evaluators of other projects are objects that cannot be called."""


Target = Function | Mapping[str, Any] | TargetSpec
Data = str | Path | Iterable[Mapping[str, Any] | str] | DatasetSpec | Any
"""Any: a DataFrame of pandas, whose rows are used."""


@overload
def evaluate(
    target: Target, /, data: Data, evaluators: Sequence[Evaluator] = (), **settings: Any
) -> "ExperimentResult": ...


@overload
def evaluate(
    target: "tuple[str | ExperimentResult, ...]", /, *, evaluators: "Sequence[PairwiseEvaluator]", **settings: Any
) -> "ComparativeResult": ...


def evaluate(
    target: "Target | Compared",
    /,
    data: "Data | None" = None,  # quoted, as `help` shows the types of the others whole
    evaluators: "Sequence[Evaluator]" = (),
    *,
    summary_evaluators: "Sequence[Evaluator]" = (),
    experiment_prefix: str | None = None,
    description: str | None = None,
    metadata: "Mapping[str, Any] | None" = None,
    max_concurrency: int | None = None,
    num_repetitions: int = 1,
    run_key: str | None = None,
    columns: "Mapping[str, Any] | None" = None,
    **settings: Any,
) -> "ExperimentResult | ComparativeResult":
    """Run a target on a dataset and evaluate every answer; or compare the answers of a tuple of experiments in pairs.

    Args:
        target: A function of the inputs, sync or async, or a target's spec; or a tuple of experiments: see
            `evaluate_comparative`.
        data: File path, dataset name, snapshot id, rows of {"inputs", "reference_outputs", …}, texts that
                are the inputs, a DataFrame, or a spec.
        evaluators: Functions, `"module:name"`, short names of built-in evaluators, or specs.
        summary_evaluators: The same, for evaluators that score all answers at once.
        experiment_prefix: Name of the experiment.
        description: Purpose of the experiment.
        metadata: Metadata to store with it.
        max_concurrency: Maximum number of examples answered, or answers evaluated, at once; 0 means 1, None means as
            many as the limits allow.
        num_repetitions: Number of answers per example.
        run_key: A later call with the same key continues the experiment.
        columns: The columns of a file, rows or a DataFrame that are the `inputs` and the `reference_outputs`, by name.
        settings: Further fields of ExperimentSpec; `name` and `repetitions` are two of the above by our own names.

    Raise InputError, before anything is called, if the settings are wrong, and IncompleteError if the run could not be
    completed.
    """
    if isinstance(target, tuple | list):
        if data is not None or summary_evaluators or num_repetitions != 1:
            raise InputError("evaluate: got experiments to compare, wanted no data, summary_evaluators or repetitions")
        from evalflows.api.comparisons import evaluate_comparative  # late: pandas is slow to import

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
        target_spec = _target(target)  # type: ignore[arg-type]  # raises if it is no target
        fields = {
            "name": experiment_prefix or target_spec.get("name", "experiment"),
            "description": description or "",
            "metadata": dict(metadata or {}),
            "dataset": _dataset(data, columns, target),
            "targets": [target_spec],
            "evaluators": [evaluator_fields(evaluator) for evaluator in evaluators],
            "summary_evaluators": [evaluator_fields(evaluator) for evaluator in summary_evaluators],
            "repetitions": num_repetitions,
            "max_concurrency": 1 if max_concurrency == 0 else max_concurrency,
            "run_key": run_key,
        }
        if twice := settings.keys() & {"dataset", "targets"}:
            raise InputError(f"evaluate: got {min(twice)}, wanted the target and the data as the first two arguments")
        spec = ExperimentSpec.model_validate({**fields, **settings})
    except ValidationError as error:
        raise InputError(first_problem(error, "evaluate")) from (error if error.error_count() > 1 else None)
    from evalflows.api.results import ExperimentResult
    from evalflows.reports.experiment_report import failures_of

    began = now()
    try:
        identity = run(spec)[0]
    except KeyboardInterrupt as stopped:
        stopped._render_traceback_ = lambda: ["KeyboardInterrupt"]  # type: ignore[attr-defined]  # for notebooks
        if (interrupted := begun_since(Store(), began)) is not None:
            print_note(f"interrupted, and what is done is kept; {continued_by(Store(), interrupted)}")
        raise
    result = ExperimentResult(identity)
    for failure in failures_of(Store(), [result.experiment_id])[:FAILURES_SAID]:
        what = "answers" if failure.source == "target" else f"judgements by {failure.source}"
        print_note(f"{failure.experiment}: {failure.count} of {len(result)} {what} failed: {failure.error}")
    return result


@overload
async def aevaluate(
    target: Target, /, data: Data, evaluators: Sequence[Evaluator] = (), **settings: Any
) -> "ExperimentResult": ...


@overload
async def aevaluate(
    target: "tuple[str | ExperimentResult, ...]", /, *, evaluators: "Sequence[PairwiseEvaluator]", **settings: Any
) -> "ComparativeResult": ...


async def aevaluate(
    target: Any, /, data: Any = None, evaluators: Sequence[Any] = (), **settings: Any
) -> "ExperimentResult | ComparativeResult":
    """Run `evaluate` without blocking the event loop. The arguments are the same."""
    return await asyncio.to_thread(partial(evaluate, target, data, evaluators, **settings))


def _target(target: Target) -> dict[str, Any]:
    if isinstance(target, Mapping):
        return dict(target)
    if callable(target):
        return {"kind": "python", "name": name_of(target), "function": refer(target)}
    return target.model_dump()


def evaluator_fields(evaluator: Evaluator) -> object:
    """Return the spec of an evaluator, which may be an object of another project that cannot be called."""
    if isinstance(evaluator, Mapping):
        return _named(evaluator)
    if isinstance(evaluator, str | EvaluatorSpec):
        return evaluator
    return named_reference(evaluator)


def _named(evaluator: Mapping[str, Any]) -> dict[str, Any]:
    """Replace functions given as `use`, also in tiers, a panel and the fallback, by references."""
    named = dict(evaluator)
    use = named.get("use")
    if use is not None and not isinstance(use, str):
        named |= named_reference(use, named.get("name"))
    if isinstance(tiers := named.get("tiers"), list | tuple):
        named["tiers"] = [evaluator_fields(tier) for tier in tiers]
    if isinstance(panel := named.get("panel"), list | tuple):
        named["panel"] = [_member_fields(judge) for judge in panel]
    if (fallback := named.get("fallback")) is not None:
        named["fallback"] = evaluator_fields(fallback)
    return named


def _member_fields(judge: Any) -> object:
    """Return the spec of a judge of a panel: if it has a model and no name, the model is its name."""
    if isinstance(judge, Mapping) and judge.get("model"):
        judge = {"name": judge["model"], **judge}
    return evaluator_fields(judge)


def _row(row: Any, number: int, text_field: str | None) -> dict[str, Any]:
    if isinstance(row, str):
        return {"inputs": row if text_field is None else {text_field: row}}
    if not isinstance(row, Mapping):
        raise InputError(f"evaluate: data: row {number}: got {type(row).__name__}, wanted a mapping or a text")
    return dict(row)


def _dataset(data: Data, columns: Mapping[str, Any] | None, target: object) -> DatasetSpec:
    if isinstance(data, DatasetSpec):
        return data if columns is None else DatasetSpec.model_validate({**data.model_dump(), "columns": columns})
    mapped = {} if columns is None else {"columns": columns}
    if isinstance(data, Mapping) and _is_dataset(data):
        return DatasetSpec.model_validate({**data, **mapped})
    if not isinstance(data, str | Path):
        records = getattr(data, "to_dict", None)  # of a DataFrame of pandas
        rows = data if records is None else records(orient="records")
        rows = _rows_of_columns(rows) if isinstance(rows, Mapping) else rows
        field = text_field(target)
        numbered = [_row(row, number, field) for number, row in enumerate(rows, start=1)]
        return DatasetSpec.model_validate({"rows": numbered, **mapped})
    if isinstance(data, Path) or mapped:
        return DatasetSpec.model_validate({"path": str(data), **mapped})
    return DatasetSpec.model_validate(data)


def _is_dataset(data: Mapping[str, Any]) -> bool:
    """Return whether a mapping is a dataset as in a spec, and not columns of which one is called `name`."""
    are_columns = "rows" not in data and all(isinstance(values, list | tuple) for values in data.values())
    return {*data} <= {*DatasetSpec.model_fields} and bool({*data} & {"rows", "path", "name"}) and not are_columns


def _rows_of_columns(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of columns. Raise InputError unless they are lists of one length."""
    wanted = "wanted columns, each a list with a value per row, rows, or a dataset as in a spec (rows, path, name)"
    if not columns:
        raise InputError(f"evaluate: data: got an empty dict, {wanted}")
    for name, values in columns.items():
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise InputError(f"evaluate: data: got a dict whose {name!r} is {type(values).__name__}, {wanted}")
    listed = {str(name): [*values] for name, values in columns.items()}
    sizes = {name: len(values) for name, values in listed.items()}
    if len({*sizes.values()}) > 1:
        got = ", ".join(f"{size} of {name!r}" for name, size in sizes.items())
        raise InputError(f"evaluate: data: got columns of different lengths: {got}")
    return [dict(zip(listed, row, strict=True)) for row in zip(*listed.values(), strict=True)]
