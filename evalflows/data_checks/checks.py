"""What is expected of every snapshot and of every experiment's results, counted in SQL.

Expectations bear the names of Great Expectations, and their results its figures, so that its Data Docs can show them;
`suites.py` runs those of a spec.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from evalflows.data_checks.suites import SHOWN_VALUES, load_expectations, suite_results
from evalflows.specs.dataset import DatasetSpec, Expectation
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.layout import identifier, quoted
from evalflows.store.queries import checked_columns
from evalflows.store.queries.continuing import continued_by
from evalflows.store.records import CheckRow, ExperimentRow, OutputStatus, ScoreStatus, derived_id, to_json
from evalflows.store.row_specs import experiment_spec
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store

LONG, SHOWN = 2000, 200
"""Characters from which an unexpected text is shortened, and to how many."""

UNIT = (0.0, 1.0)
"""The range of a composite, unless another is declared."""

_OBSERVED = (
    *("observed_value", "unexpected_percent", "missing_percent"),
    *("partial_unexpected_list", "partial_unexpected_index_list"),
)
"""Figures that a row keeps; the last two are the unexpected values, and the row that each is in."""

_IN_WORDS = {
    ("be_between", "filled_inputs"): "all fields of the inputs are empty",
    ("not_be_null", "reference_outputs"): "reference_outputs are missing",
    ("be_unique", "example_id"): "example_id is that of another example",
    ("be_unique", "inputs"): "inputs are those of another example",
}
"""What is wrong if an expectation of ours of a snapshot is not met."""

_SAID = ("column", "severity", "row_condition")


def check_dataset(store: Store, dataset: DatasetSpec, flow_run_id: str | None = None) -> str:
    """Check a frozen dataset by our expectations and by its own, publish the checks, and return their batch.

    A snapshot never changes, so the same expectations are checked once. Raise InputError for an unknown or
    misconfigured expectation.
    """
    own = [each.model_dump() for each in load_expectations(dataset.expectations)]
    batch = derived_id("checks", dataset.snapshot or "", to_json(own))
    if not store.is_sealed("checks", batch):
        snapshot = dataset.snapshot or ""
        results = [*_of_snapshot(store, snapshot), *suite_results(store, dataset)]
        rows = [check_row(result, "snapshot", snapshot, batch) for result in results]
        store.publish("checks", batch, [replace(row, flow_run_id=flow_run_id) for row in rows])
    return batch


def snapshot_checks(store: Store, snapshot: str) -> str:
    """Return the newest batch of checks of a snapshot; without any, check it by our expectations."""
    query = """select batch_id from source.checks where subject_kind = 'snapshot' and subject_id = ?
               order by recorded_at desc, batch_id limit 1"""
    if found := store.query(query, [snapshot]):
        return str(found[0][0])
    return check_dataset(store, DatasetSpec(snapshot=snapshot))


def check_results(
    store: Store, experiments: Sequence[ExperimentRow], flow_run_id: str | None = None
) -> dict[str, list[CheckRow]]:
    """Check the results of finished experiments, publish the checks that are new, and return all, by experiment.

    Those that do not hold come first. Raise InputError for a snapshot that is not in the store.
    """
    checks = {}
    for row in experiments:
        batch = results_batch(row)
        if not store.is_sealed("checks", batch):
            load_snapshot(store, row.snapshot_id)  # raises if there is none
            made = [
                check_row(result, "experiment", row.experiment_id, batch)
                for columns, expected in _of_results(row)
                for result in _results(store, columns, expected)
            ]
            store.publish("checks", batch, [replace(check, flow_run_id=flow_run_id) for check in made])
        checks[row.experiment_id] = _sorted(store.read("checks", batch))
    return checks


def results_batch(row: ExperimentRow) -> str:
    """Return the batch of the checks of an experiment's results: another once it was resumed, or if more is checked."""
    suite = to_json([each.model_dump() for _, expected in _of_results(row) for each in expected])
    return derived_id("results", row.experiment_id, str(row.ended_at), suite)


def row_of_finished(store: Store, experiment_id: str) -> ExperimentRow:
    """Return the row of a finished experiment. Raise InputError if it is not."""
    row: ExperimentRow
    (row,) = store.read("experiments", experiment_id)
    if row.state != "completed":
        raise InputError(
            f"experiment {row.name!r} ({row.experiment_id}): is not finished, wanted a finished one; "
            f"{continued_by(store, row.experiment_id)}"
        )
    return row


def _sorted(checks: Sequence[CheckRow]) -> list[CheckRow]:
    return sorted(checks, key=lambda row: (row.passed is True, row.severity, row.column_name or "", row.name))


def _of_snapshot(store: Store, snapshot: str) -> list[dict[str, Any]]:
    load_snapshot(store, snapshot)
    counts = ", ".join(f"count({name})" for name in checked_columns.TEXTS)
    (of_each,) = store.query(f"select {counts} from source.examples where snapshot_id = ?", [snapshot])
    filled = [name for name, count in zip(checked_columns.TEXTS, of_each, strict=True) if count]
    expected = [
        _expect("not_be_null", "example_id"),
        _expect("not_be_null", "inputs"),
        _expect("be_between", "filled_inputs", min_value=1),
        *(_expect("be_json_parseable", name) for name in filled),
        *(_expect("not_be_null", name, "warning") for name in filled if name == "reference_outputs"),
        _expect("be_unique", "example_id"),
        _expect("be_unique", "inputs", "warning"),
    ]
    fields = [
        _result(
            _expect("not_be_null", f"inputs.{field}", "warning"),
            (n, 0, n - filled),
            [(None, example) for example in blank],
            ("example",),
        )
        for field, n, filled, blank in store.query(checked_columns.FIELDS, [snapshot])
    ]
    return [*_results(store, checked_columns.example_columns(snapshot), expected), *fields]


def _of_results(experiment: ExperimentRow) -> list[tuple[checked_columns.Columns, list[Expectation]]]:
    spec = experiment_spec(experiment)
    judges = [evaluator.metric for evaluator in spec.evaluators] + [composite.name for composite in spec.composites]
    summaries = [evaluator.metric for evaluator in spec.summary_evaluators]
    of_summaries = [_expect("be_between", "summaries.scores", min_value=1)] if summaries else []
    return [
        (checked_columns.planned_runs(experiment, judges), _of_runs(judges)),
        (checked_columns.summary_columns(experiment, summaries), of_summaries),
        (checked_columns.output_columns(experiment), _of_outputs(experiment)),
        (checked_columns.score_columns(experiment, [*_ranges(spec)]), _of_scores(spec)),
    ]


def _of_runs(judges: Sequence[str]) -> list[Expectation]:
    """Expect one output of each planned run, and a score by each evaluator, also of runs that a sample left out."""
    return [
        _expect("be_between", "runs.outputs", min_value=1, max_value=1),
        *(_expect("be_between", checked_columns.by(judge), min_value=1) for judge in judges),
    ]


def _of_outputs(experiment: ExperimentRow) -> list[Expectation]:
    """Expect each output to be of a planned run, and to have an answer in JSON, or the reason why not.

    No amount is negative.
    """
    answered = _among("outputs.status", ["ok"])
    lacking = _among("outputs.status", ["failed", "not_attempted"])
    return [
        _expect("not_be_null", "outputs.example"),
        _expect("be_between", "outputs.repetition", min_value=0, max_value=experiment.repetitions - 1),
        _expect("be_in_set", "outputs.status", value_set=[*get_args(OutputStatus)]),
        _expect("not_be_null", "outputs.outputs", row_condition=answered),
        _expect("be_json_parseable", "outputs.outputs", row_condition=answered),
        _expect("not_be_null", "outputs.error", "warning", row_condition=lacking),
        *(_expect("be_between", f"outputs.{name}", min_value=0) for name in checked_columns.COUNTED),
    ]


def _of_scores(spec: ExperimentSpec) -> list[Expectation]:
    """Expect each score to be of a known run, once, and to have a value in the range, or the reason why not."""
    scored = _among("scores.status", ["scored"])
    others = _among("scores.status", [status for status in get_args(ScoreStatus) if status != "scored"])
    missing = _among("scores.status", ["failed", "not_attempted"])
    return [
        _expect("not_be_null", "scores.subject"),
        _expect("be_between", "scores.rows_of_key", min_value=1, max_value=1),
        _expect("be_in_set", "scores.status", value_set=[*get_args(ScoreStatus)]),
        _expect("not_be_null", "scores.result", row_condition=scored),
        _expect("be_null", "scores.result", row_condition=others),
        _expect("be_in_set", "scores.is_finite", value_set=[True]),
        *(
            _expect("be_between", name, min_value=low, max_value=high, row_condition=_filled(name))
            for name, (low, high) in (
                (checked_columns.value_of(metric), bounds) for metric, bounds in _ranges(spec).items()
            )
        ),
        _expect("not_be_null", "scores.error", "warning", row_condition=missing),
        _expect("be_between", "scores.sampling_rate", min_value=0, max_value=1, strict_min=True),
        *(_expect("be_between", f"scores.{name}", "warning", min_value=0) for name in checked_columns.COUNTED),
    ]


def _ranges(spec: ExperimentSpec) -> Mapping[str, tuple[float, float]]:
    """Return the range of each metric that has one."""
    declared = {name: metric.range for name, metric in spec.metrics.items() if metric.range is not None}
    return dict.fromkeys((composite.name for composite in spec.composites if composite.weights), UNIT) | declared


def _expect(type_: str, column: str, severity: str = "critical", **kwargs: Any) -> Expectation:
    fields = {"type": f"expect_column_values_to_{type_}", "kwargs": {"column": column} | kwargs, "severity": severity}
    return Expectation.model_validate(fields)


def _among(column: str, values: Sequence[str]) -> dict[str, Any]:
    return {"type": "comparison", "column": {"name": column}, "operator": "IN", "parameter": [*values]}


def _filled(column: str) -> dict[str, Any]:
    return {"type": "nullity", "column": {"name": column}, "is_null": False}


def _results(store: Store, columns: checked_columns.Columns, expected: Sequence[Expectation]) -> list[dict[str, Any]]:
    """Return the result of each expectation about rows, in the form of Great Expectations."""
    if not expected:
        return []
    conditions, results = [_conditions(expectation) for expectation in expected], []
    counts = checked_columns.count_unexpected(store, columns, conditions)
    for expectation, condition, of_each in zip(expected, conditions, counts, strict=True):
        name = str(expectation.kwargs["column"])
        rows = checked_columns.unexpected_rows(store, columns, name, condition, SHOWN_VALUES) if of_each[2] else []
        results.append(_result(expectation, of_each, rows, columns.places))
    return results


def _conditions(expectation: Expectation) -> tuple[str, str, str]:
    """Return, as SQL, which rows are checked, for which of them the value is missing, and which are unexpected."""
    kwargs = expectation.kwargs
    column = identifier(kwargs["column"])
    missing = f"{column} is null"
    match expectation.type.removeprefix("expect_column_values_to_"):
        case "not_be_null":
            return _condition_in_sql(kwargs), "false", missing
        case "be_null":
            return _condition_in_sql(kwargs), "false", f"{column} is not null"
        case "be_unique":
            wrong = identifier(f"{kwargs['column']} is repeated")
        case "be_json_parseable":
            wrong = f"not json_valid({column})"
        case "be_in_set":
            wrong = f"{column} not in ({_values(kwargs['value_set'])})"
        case "be_between":
            below = "<=" if kwargs.get("strict_min") else "<"
            bounds = {below: kwargs.get("min_value"), ">": kwargs.get("max_value")}
            wrong = " or ".join(f"{column} {sign} '{x}'::double" for sign, x in bounds.items() if x is not None)
    return _condition_in_sql(kwargs), missing, f"{column} is not null and ({wrong})"


def _condition_in_sql(kwargs: Mapping[str, Any]) -> str:
    if (condition := kwargs.get("row_condition")) is None:
        return "true"
    column = identifier(condition["column"]["name"])
    return f"{column} in ({_values(condition['parameter'])})" if "parameter" in condition else f"{column} is not null"


def _values(values: Sequence[str | bool]) -> str:
    return ", ".join(quoted(str(value)) for value in values)  # DuckDB reads 'True' as a boolean


def _result(
    expectation: Expectation, counts: tuple[int, int, int], rows: Sequence[tuple[Any, ...]], places: Sequence[str]
) -> dict[str, Any]:
    """Return the result of an expectation from the numbers of checked, missing and unexpected rows."""
    checked, missing, unexpected = counts
    figures = {
        "element_count": checked,
        "unexpected_count": unexpected,
        "unexpected_percent": _percent(unexpected, checked - missing),
        "missing_percent": _percent(missing, checked),
        "partial_unexpected_list": [_shown(value) for value, *_ in rows[:SHOWN_VALUES]],
        "partial_unexpected_index_list": [dict(zip(places, index, strict=True)) for _, *index in rows if index] or None,
    }
    if expectation.type.endswith("_be_null"):  # nothing is missing
        del figures["missing_percent"]
    kwargs = {name: float(value) if type(value) is int else value for name, value in expectation.kwargs.items()}
    return {"expectation": expectation.model_dump() | {"kwargs": kwargs}, "success": not unexpected, "figures": figures}


def _percent(count: int, of: int) -> float | None:
    return count / of * 100 if of else None


def _shown(value: Any) -> Any:
    return f"{value[:SHOWN]}… ({len(value):,} characters)" if isinstance(value, str) and len(value) >= LONG else value


def check_row(result: Mapping[str, Any], kind: Literal["snapshot", "experiment"], subject: str, batch: str) -> CheckRow:
    """Return the row of a result. A check that raised has not passed, whatever `success` says."""
    expectation, figures, raised = result["expectation"], result["figures"], result.get("raised")
    kwargs = expectation["kwargs"]
    return CheckRow(
        check_id=derived_id(batch, expectation["type"], to_json(kwargs)),
        batch_id=batch,
        subject_kind=kind,
        subject_id=subject,
        name=expectation["type"],
        column_name=kwargs.get("column"),
        passed=None if raised else bool(result["success"]),
        severity="error" if expectation["severity"] == "critical" else "warning",
        n_checked=figures.get("element_count"),
        n_unexpected=figures.get("unexpected_count"),
        observed=to_json({name: figures[name] for name in _OBSERVED if figures.get(name) is not None}),
        expected=to_json(kwargs),
        message=raised or _message(expectation["type"], kwargs, figures, success=bool(result["success"])),
    )


def _message(type_: str, kwargs: Mapping[str, Any], figures: Mapping[str, Any], *, success: bool) -> str:
    wanted = _wanted(type_, kwargs)
    if success:
        return wanted
    places = figures.get("partial_unexpected_index_list") or ()
    if said := _in_words(type_, kwargs, figures.get("unexpected_count"), figures.get("element_count"), places):
        return said
    if not figures.get("unexpected_count"):
        return f"wanted {wanted}; got {figures.get('observed_value', 'nothing')}"
    share = f"{figures['unexpected_count']} of {figures['element_count']} fail"
    return f"wanted {wanted}; {share}, such as {', '.join(found_values(figures)[:3])}"


def _in_words(
    type_: str, kwargs: Mapping[str, Any], count: int | None, of: int | None, places: Sequence[Mapping[str, Any]]
) -> str | None:
    """Say what is wrong with which examples, if the expectation is one of ours of a snapshot."""
    kind, column = type_.removeprefix("expect_column_values_to_"), str(kwargs.get("column"))
    is_field = kind == "not_be_null" and column.startswith("inputs.")
    problem = f"{column} is empty" if is_field else _IN_WORDS.get((kind, column))
    if problem is None or not count or "row_condition" in kwargs:
        return None
    rows = [str(row["example"]) for row in places[:3] if row.get("example") is not None]
    such = f", such as {'row' if len(rows) == 1 else 'rows'} {', '.join(rows)}" if rows else ""
    return f"{problem} in {count} of {of} examples{such}"


def _wanted(type_: str, kwargs: Mapping[str, Any]) -> str:
    what = type_.removeprefix("expect_").replace("_", " ")
    column, condition = kwargs.get("column"), kwargs.get("row_condition")
    rest = ", ".join(f"{name} {value}" for name, value in kwargs.items() if name not in _SAID)
    where = f" where {_condition(condition)}" if condition else ""
    return f"{f'{column}: ' if column else ''}{what}{f' ({rest})' if rest else ''}{where}"


def without_values(check: CheckRow) -> str:
    """Return the message of a check without the values of the data that it quotes, for what Prefect keeps."""
    expected = json.loads(check.expected or "{}")
    wanted = _wanted(check.name, expected)
    if check.passed is None:
        return f"could not be checked: {wanted}"
    places = json.loads(check.observed or "{}").get("partial_unexpected_index_list") or ()
    if not check.passed and (said := _in_words(check.name, expected, check.n_unexpected, check.n_checked, places)):
        return said
    failed = f"; {check.n_unexpected} of {check.n_checked} fail" if check.n_unexpected else ""
    return wanted if check.passed else f"wanted {wanted}{failed}"


def _condition(condition: object) -> str:
    """Return in words the conditions that our expectations have: a column is filled, or compared with values."""
    if not isinstance(condition, Mapping) or "column" not in condition:
        return str(condition)
    column = condition["column"]["name"]
    if condition.get("type") == "nullity":
        return f"{column} is {'null' if condition['is_null'] else 'not null'}"
    return f"{column} {str(condition.get('operator')).lower()} {condition.get('parameter')}"


def found_values(figures: Mapping[str, Any]) -> list[str]:
    """Return the unexpected values that a result keeps, each with its row if that is known."""
    values = [repr(value) for value in figures.get("partial_unexpected_list") or ()]
    rows = figures.get("partial_unexpected_index_list")
    if not rows:
        return values
    places = [", ".join(f"{name} {value}" for name, value in sorted(row.items()) if value is not None) for row in rows]
    return [f"{value} ({place})" for value, place in zip(values, places, strict=False)]
