"""The experiment that a program describes by functions and rows: its spec, its run and its result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evalflows.api.results import ExperimentResult
from evalflows.api.running import run
from evalflows.engine.spec_evaluators import named_reference
from evalflows.engine.spec_targets import text_field
from evalflows.reports.experiment_report import failures_of
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

FAILURES_SAID = 3
"""Errors that `result_of` names after a run."""

Function = Callable[..., Any]
Evaluator = Function | str | Mapping[str, Any] | EvaluatorSpec | Any
"""Any: some evaluators of other projects are objects that cannot be called."""


Target = Function | Mapping[str, Any] | TargetSpec
Data = str | Path | Iterable[Mapping[str, Any] | str] | DatasetSpec | Any
"""Any: a DataFrame of pandas, whose rows are used."""


def spec_of(
    target: Target,
    data: Data,
    evaluators: Sequence[Evaluator],
    summary_evaluators: Sequence[Evaluator],
    columns: Mapping[str, Any] | None,
    fields: Mapping[str, Any],
) -> ExperimentSpec:
    """Return the spec of an experiment with one target, by whose name it is called if that is None among the further
    `fields`.

    Raise InputError if anything is wrong.
    """
    try:
        target_spec = _target(target)
        given = {
            **fields,
            "name": fields["name"] or target_spec.get("name", "experiment"),
            "dataset": _dataset(data, columns, target),
            "targets": [target_spec],
            "evaluators": [evaluator_fields(evaluator) for evaluator in evaluators],
            "summary_evaluators": [evaluator_fields(evaluator) for evaluator in summary_evaluators],
        }
        return ExperimentSpec.model_validate(given)
    except ValidationError as error:
        problem = first_problem(error, "evaluate", ExperimentSpec)
        raise InputError(problem) from (error if error.error_count() > 1 else None)


def result_of(spec: ExperimentSpec) -> ExperimentResult:
    """Run a spec of one target and return its result. Name the first failures, and what continues an interrupted run.

    Raise the errors of `run`.
    """
    began = now()
    try:
        identity = run(spec)[0]
    except KeyboardInterrupt as stopped:
        stopped._render_traceback_ = lambda: ["KeyboardInterrupt"]  # type: ignore[attr-defined]  # for notebooks
        if (interrupted := begun_since(Store(), began)) is not None:
            print_note(f"interrupted; finished work is kept, and {continued_by(Store(), interrupted)}")
        raise
    result = ExperimentResult(identity)
    for failure in failures_of(Store(), [result.experiment_id])[:FAILURES_SAID]:
        what = "answers" if failure.source == "target" else f"judgements by {failure.source}"
        print_note(f"{failure.experiment}: {failure.count} of {len(result)} {what} failed: {failure.error}")
    return result


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
