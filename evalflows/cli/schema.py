"""JSON Schemas of spec files, and of the documents that commands print with `--format json`, made from the models and
records that these are made of."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, get_type_hints

import click
from pydantic import ConfigDict, TypeAdapter, with_config
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import TypedDict

from evalflows.cli.late_commands import print_json, with_one_line_errors
from evalflows.cli.output import echo
from evalflows.specs.errors import InputError, names_to_choose

_LIST: Any = list
"""`list` for types that are made here, which no type checker knows."""

DIALECT = GenerateJsonSchema.schema_dialect


@click.command()
@click.argument("name", required=False)
@with_one_line_errors
def schema(name: str | None) -> None:
    """Print the JSON Schema of spec files, or of the document of a command. Without NAME, list the names.

    NAME is `spec` for experiments (so that an editor completes and checks them), `spec-comparison`, `spec-traces`,
    `spec-retention`; a command such as "labels judges"; or `error`, the document of an error on standard error.
    """
    if name is None:
        echo("\n".join([*SPECS, *DOCUMENTS]))
    else:
        print_json(schema_of(name))


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of spec files or of a command's document. Raise InputError for an unknown name."""
    if name in SPECS:
        return {"$schema": DIALECT, **SPECS[name]()}
    if name in DOCUMENTS:
        return {"$schema": DIALECT, **TypeAdapter(DOCUMENTS[name]()).json_schema(mode="serialization")}
    raise InputError(f"schema {name!r}: got no such name, wanted {names_to_choose(name, [*SPECS, *DOCUMENTS])}")


class _AsWritten(GenerateJsonSchema):
    """Schemas of what is written in YAML: models and fields that are made of shorter forms allow these."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        whole = super().function_before_schema(schema)
        if schema["schema"]["type"] == "model-fields":  # `model_schema` adds the short form to the whole model
            return whole
        short: list[JsonSchemaValue] = [{"type": "string"}]
        if whole.get("type") == "array":
            short.append(whole["items"])
        elif whole.get("additionalProperties") == {"type": "string"}:
            short.append({"type": "array", "items": {"type": "string"}})
        return {"anyOf": [whole, *short]}

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        whole, inner = super().model_schema(schema), schema["schema"]
        while inner["type"] == "function-after":
            inner = inner["schema"]
        return {"anyOf": [whole, {"type": "string"}]} if inner["type"] == "function-before" else whole


def _of_spec(module: str, model: str) -> dict[str, Any]:
    found: dict[str, Any] = _loaded(f"specs.{module}", model).model_json_schema(schema_generator=_AsWritten)
    return found


def _loaded(module: str, name: str) -> Any:
    return getattr(import_module(f"evalflows.{module}"), name)


SPECS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "spec": partial(_of_spec, "experiment", "ExperimentSpec"),
    "spec-comparison": partial(_of_spec, "comparison", "ComparisonSpec"),
    "spec-traces": partial(_of_spec, "traces", "TraceEvaluationSpec"),
    "spec-retention": partial(_of_spec, "retention", "RetentionSpec"),
}


def _fields(title: str, /, **fields: Any) -> Any:
    """Return the type of an object with just these fields."""
    made: Any = TypedDict(title, fields)  # type: ignore[misc]  # named when it is made
    return with_config(ConfigDict(extra="forbid"))(made)


def _record(record: type, title: str = "", /, *, without: Any = (), **more: Any) -> Any:
    """Return the type of a record's fields, some left out, others added or of another type."""
    own = {name: kind for name, kind in get_type_hints(record).items() if name in record.__dataclass_fields__}  # type: ignore[attr-defined]
    kept = {name: kind for name, kind in own.items() if name not in without}
    return _fields(title or record.__name__, **{**kept, **more})


def _of_record(module: str, name: str, /, **more: Any) -> Any:
    """Return the type of a document that is one record, with what else it has."""
    return _record(_loaded(module, name), **more)


def _of_records(module: str, name: str, /, **more: Any) -> Any:
    return _LIST[_of_record(module, name, **more)]


def _metric() -> Any:
    from evalflows.reports.documents import AGAINST
    from evalflows.reports.results import Result

    hints = get_type_hints(Result)
    against = _fields("AgainstBaseline", **{new: hints[old] for old, new in AGAINST.items()}, verdict=str)
    return _record(Result, "Metric", without=AGAINST, against_baseline=against | None)


def _worst() -> Any:
    from evalflows.reports.worst import WorstExamples, WorstItem

    item = _record(WorstItem, without=("n_worse",), inputs=Any, outputs=Any, baseline_outputs=Any)
    return _record(WorstExamples, without=("items",), examples=_LIST[item])


def _decision() -> Any:
    from evalflows.reports.decisions import Decision

    left_out = ("reasons", "candidate_apart", "baseline_apart")
    policy = {"comparability": list[dict[str, Any]], "policy": dict[str, Any]}
    return _record(Decision, without=left_out, rules=list[dict[str, Any]], limits=list[str], **policy)


def _comparison() -> Any:
    from evalflows.reports.comparison import JudgeBias, Overview, RankedExperiment, WinRate

    return _record(
        Overview,
        "Comparison",
        win_rates=_LIST[_record(WinRate, verdict=str)],
        ranking=_LIST[_record(RankedExperiment)],
        biases=_LIST[_record(JudgeBias)],
        failures=_LIST[_fields("JudgeFailure", source=str, error=str, count=int)],
        sentences=list[str],
    )


def _results(**more: Any) -> Any:
    from evalflows.analysis.grid import Grid
    from evalflows.analysis.judge_exclusions import SeatedPanel, Stepped
    from evalflows.reports import experiment_report
    from evalflows.reports.previous_runs import PreviousRun
    from evalflows.reports.results import RemarkKind, Severity

    excluded = _fields("ExcludedMetric", experiment_id=str, metric=str, judge=str, reason_code=str, reason=str)
    return _fields(
        "Results",
        experiments=_LIST[_record(experiment_report.ExperimentOverview)],
        metrics=_LIST[_metric()],
        decisions=_LIST[_decision()],
        standings=list[str],
        comparison=_comparison() | None,
        worst_examples=_LIST[_worst()],
        grids=_LIST[_record(Grid)],
        failures=_LIST[_record(experiment_report.Failure)],
        judge_checks=_LIST[_record(experiment_report.JudgeCheck)],
        excluded_metrics=_LIST[excluded],
        fallbacks_and_tiers=_LIST[_record(Stepped)],
        panels=_LIST[_record(SeatedPanel)],
        types_apart=_LIST[_record(experiment_report.TypesApart)],
        unpriced_calls=_LIST[_record(experiment_report.UnpricedCalls)],
        reduced_limits=_LIST[_record(experiment_report.ReducedLimit)],
        by_field=list[str],
        remarks=_LIST[_fields("Remark", kind=RemarkKind, severity=Severity, text=str)],
        sentences=list[str],
        previous=_LIST[_record(PreviousRun, sentence=str, command=Any)],
        calls_made=int | None,
        next=str,
        next_is_for_person=bool,
        **more,
    )


def _explanation() -> Any:
    from evalflows.cli.explain import Again

    section = _fields("Part", title=str, lines=list[str])
    again = _record(Again)
    return _results(explanation=_LIST[section], again=again | None)


def _listed() -> Any:
    from evalflows.reports.comparison import Overview
    from evalflows.reports.experiment_report import ExperimentOverview

    experiment = _record(ExperimentOverview, "ListedExperiment", kind=str, gates=dict[str, str])
    return _LIST[experiment | _record(Overview, "ListedComparison", kind=str)]


def _diff() -> Any:
    from evalflows.analysis.changes import ChangeCounts, ChangeList, ExampleChange, Note, SliceSearch
    from evalflows.reports.experiment_report import ExperimentOverview

    texts: dict[str, Any] = dict.fromkeys(("inputs", "reference_outputs", "outputs", "baseline_outputs"), Any)
    overview = _record(ExperimentOverview)
    return _fields(
        "Diff",
        baseline=overview,
        candidates=_LIST[overview],
        where=str | None,
        n_compared=dict[str, int],
        metrics=_LIST[_metric()],
        notes=_LIST[_record(Note)],
        changes=_LIST[_record(ChangeCounts)],
        examples=_LIST[_record(ChangeList, examples=_LIST[_record(ExampleChange, **texts)])],
        sentences=list[str],
        slices=_LIST[_record(SliceSearch)],
    )


def _plan() -> Any:
    figures = {"design": dict[str, Any], "calls": list[dict[str, Any]], "total": dict[str, Any]}
    said = {"metrics": list[dict[str, Any]], "sentences": list[str], "is_detail": list[bool]}
    reused = list[dict[str, Any]]
    return _fields(
        "Plan",
        plan_id=str,
        name=str,
        effect=float | None,
        trials=int,
        comparisons=int,
        **figures,
        reused=reused,
        **said,
    )


def _checks() -> Any:
    check = _fields(
        "Check",
        check_id=str,
        name=str,
        column_name=str | None,
        passed=bool | None,
        severity=str,
        n_checked=int | None,
        n_unexpected=int | None,
        message=str | None,
        observed=Any,
        expected=Any,
    )
    counts = {"n_expectations": int, "n_findings": int}
    of_one = _fields("CheckedExperiment", experiment_id=str, name=str, **counts, checks=_LIST[check])
    return _fields("Checks", experiments=_LIST[of_one])


def _dataset() -> Any:
    from evalflows.reports.datasets import DatasetVersion, SnapshotCheck
    from evalflows.store.records import ExampleRow

    example = _record(ExampleRow, inputs=Any, reference_outputs=Any, metadata=Any)
    known = {"versions": _LIST[_record(DatasetVersion)], "checks": _LIST[_record(SnapshotCheck)]}
    return _fields("Dataset", snapshot_id=str, n_examples=int, **known, first_examples=_LIST[example])


DOCUMENTS: Mapping[str, Callable[[], Any]] = {
    **dict.fromkeys(("run", "resume", "gate", "show", "compare", "report"), _results),
    "ls": _listed,
    "diff": _diff,
    "try": _diff,
    "explain": _explanation,
    "best": partial(_of_record, "analysis.best", "Best", sentences=list[str]),
    "plan": _plan,
    "backtest": partial(_of_records, "analysis.backtest", "Backtest", backtest_id=str, sentences=list[str]),
    "calibrate": partial(_of_record, "analysis.calibration", "Calibration"),
    "robustness": partial(_of_record, "analysis.robustness", "RobustnessReport"),
    "check": _checks,
    "judge": partial(_of_record, "analysis.two_judges", "TwoJudges", sentences=list[str]),
    "doctor": lambda: _fields("Doctor", is_sound=bool, findings=_of_records("store.doctor", "Finding"), n_files=int),
    "dataset ls": partial(_of_records, "reports.datasets", "ListedDataset", splits=dict[str, int]),
    "dataset show": _dataset,
    "baseline ls": partial(_of_records, "store.queries.conclusions", "Approval"),
    "labels ls": partial(_of_records, "store.queries.labels", "LabelBatch"),
    "labels judges": partial(_of_records, "analysis.labels", "RankedJudge"),
    "modes find": partial(_of_record, "analysis.modes", "Found"),
    "modes show": lambda: _fields(
        "Mode",
        mode=_loaded("specs.failure_modes", "ModeSpec"),
        rates=_of_records("store.queries.failures", "ModeRate"),
        answers=_of_records("store.queries.failures", "AnswerWithMode"),
    ),
    "modes close": lambda: _fields(
        "ClosedMode", mode=str, rate=_of_record("store.queries.failures", "ModeRate"), changed=list[str]
    ),
    "modes examples": partial(
        _fields, "ModeExamples", dataset=str, snapshot_id=str, n_examples=int, mode=str, n_with_mode=int
    ),
    "traces ls": partial(_of_records, "store.queries.traces", "ListedTrace"),
    "traces show": lambda: _record(
        _loaded("telemetry.views", "TraceView"),
        "Trace",
        scores_and_labels=_of_records("store.queries.traces", "Verdict"),
    ),
    "windows": lambda: _fields(
        "Windows", evaluation=str, window=str, windows=_of_records("analysis.monitoring", "WindowFigures")
    ),
    "alerts ls": lambda: _fields("Incidents", incidents=_of_records("store.queries.incidents", "Incident")),
    "alerts show": lambda: _of_record(
        "store.queries.incidents", "Incident", events=_of_records("store.trace_records", "AlertRow")
    ),
    "error": lambda: _fields(
        "Error", error=_fields("ErrorFields", kind=str, message=str, where=str | None, wanted=str | None)
    ),
}
"""The types of the documents, by command; none where an object's keys depend on what is shown."""
