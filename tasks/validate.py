"""Is the dataset fit for use? Great Expectations looks at the snapshot before anything is paid."""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext

from specs.dataset import Expectation
from specs.errors import InputError
from specs.experiment import ExperimentSpec
from store.parquet import Store
from store.records import CheckRow, ExampleRow, derived_id, to_json
from store.snapshots import load_snapshot
from store.suite import load_expectations

TEXTS = ("inputs", "reference_outputs", "metadata")
"""The columns that hold JSON."""


@task(cache_policy=NO_CACHE, persist_result=False)
def validate_snapshot(spec: ExperimentSpec) -> str:
    """Check the snapshot, keep what was found, and show it as an artifact. Returns the checks' batch.

    A snapshot never changes, so it is looked at once for each suite. Raises InputError if a critical check failed.
    """
    store, snapshot = Store(), spec.dataset.snapshot or ""
    own = load_expectations(spec.dataset.expectations)
    batch = derived_id("checks", snapshot, to_json([one.model_dump() for one in own]))
    if not store.is_sealed("checks", batch):
        store.publish("checks", batch, checked(load_snapshot(store, snapshot), own, batch))
    rows: list[CheckRow] = sorted(store.read("checks", batch), key=lambda row: (row.passed is True, row.name))
    create_markdown_artifact(key="dataset-checks", markdown=_markdown(rows, snapshot), description="Is the data fit?")
    wrong = [row for row in rows if row.severity == "error" and not row.passed]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise InputError(f"dataset {spec.dataset.name or snapshot!r}: {wrong[0].message}{more}")
    return batch


def checked(examples: Sequence[ExampleRow], own: Sequence[Expectation], batch: str) -> list[CheckRow]:
    """What the expectations say of the examples. Raises InputError for one that does not exist or is set wrongly."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx  # takes seconds to import
    from great_expectations.data_context.types.base import ProgressBarsConfig

    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    frame = as_frame(examples)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("snapshot").add_dataframe_asset("examples")
    whole = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    suite = gx.ExpectationSuite(name="examples")
    for expectation in [*_ours(frame), *own]:
        suite.add_expectation(_configured(expectation))
    found = whole.validate(suite, result_format="SUMMARY")
    return [_row(result.to_json_dict(), examples[0].snapshot_id, batch) for result in found.results]


def as_frame(examples: Sequence[ExampleRow]) -> pd.DataFrame:
    """A row an example: its own columns, and each field of inputs, references and metadata. Blank text is no value."""
    rows = []
    for example in examples:
        row: dict[str, Any] = {
            name: getattr(example, name) for name in ("example_id", "position", "split", "cluster", *TEXTS)
        }
        for name in TEXTS:
            row |= {f"{name}.{field}": value for field, value in _fields(getattr(example, name)).items()}
        row["filled_inputs"] = sum(value is not None for value in _fields(example.inputs).values())
        rows.append(row)
    return pd.DataFrame(rows).astype(object).where(lambda frame: frame.notna(), None)


def _fields(text: str | None) -> dict[str, Any]:
    """The fields of a JSON object; none where the text is something else, which a check of its own will say."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, dict) else {}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.strip() else None
    return to_json(value) if isinstance(value, list | dict) else value


def _ours(frame: pd.DataFrame) -> list[Expectation]:
    def expect(type_: str, column: str, severity: str = "critical", **kwargs: Any) -> Expectation:
        given = {"type": type_, "kwargs": {"column": column} | kwargs, "severity": severity}
        return Expectation.model_validate(given)

    wanted = [
        expect("expect_column_values_to_be_unique", "example_id"),
        expect("expect_column_values_to_not_be_null", "example_id"),
        expect("expect_column_values_to_not_be_null", "inputs"),
        expect("expect_column_values_to_be_between", "filled_inputs", min_value=1),
        expect("expect_column_values_to_be_unique", "inputs", "warning"),
    ]
    wanted += [expect("expect_column_values_to_be_json_parseable", name) for name in TEXTS if frame[name].notna().any()]
    if frame["reference_outputs"].notna().any():
        wanted.append(expect("expect_column_values_to_not_be_null", "reference_outputs", "warning"))
    fields = [name for name in frame.columns if name.startswith("inputs.")]
    return wanted + [expect("expect_column_values_to_not_be_null", name, "warning") for name in fields]


def _configured(expectation: Expectation) -> Any:
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metadata_types import FailureSeverity

    try:
        return ExpectationConfiguration(
            type=expectation.type, kwargs=expectation.kwargs, severity=FailureSeverity(expectation.severity)
        ).to_domain_obj()
    except Exception as error:  # of Great Expectations, or of the pydantic in it
        raise InputError(f"expectation {expectation.type!r}: {' '.join(str(error).split())}") from error


def _row(result: Mapping[str, Any], snapshot: str, batch: str) -> CheckRow:
    """One result as it is kept. One that could not be checked has not passed, whatever `success` says."""
    wanted, found = result["expectation_config"], result.get("result") or {}
    kwargs = {name: value for name, value in wanted["kwargs"].items() if name != "batch_id"}
    raised, context = _raised(result.get("exception_info") or {}), FlowRunContext.get()
    return CheckRow(
        check_id=derived_id(batch, wanted["type"], to_json(kwargs)),
        batch_id=batch,
        subject_kind="snapshot",
        subject_id=snapshot,
        name=wanted["type"],
        column_name=kwargs.get("column"),
        passed=None if raised else bool(result["success"]),
        severity="error" if wanted.get("severity", "critical") == "critical" else "warning",
        n_checked=found.get("element_count"),
        n_unexpected=found.get("unexpected_count"),
        observed=to_json(_observed(found)),
        expected=to_json(kwargs),
        message=raised or _in_words(wanted["type"], kwargs, found, success=bool(result["success"])),
        flow_run_id=str(context.flow_run.id) if context and context.flow_run else None,
    )


def _raised(information: Mapping[str, Any]) -> str | None:
    """What went wrong inside Great Expectations, which says so here and nowhere else."""
    several = [one for one in information.values() if isinstance(one, Mapping)]
    for one in [information, *several]:
        if one.get("raised_exception"):
            return f"could not be checked: {' '.join(str(one.get('exception_message')).split())}"
    return None


def _observed(found: Mapping[str, Any]) -> dict[str, Any]:
    names = ("observed_value", "unexpected_percent", "missing_percent", "partial_unexpected_list")
    return {name: found[name] for name in names if found.get(name) is not None}


def _in_words(type_: str, kwargs: Mapping[str, Any], found: Mapping[str, Any], *, success: bool) -> str:
    what = type_.removeprefix("expect_").replace("_", " ")
    column = kwargs.get("column")
    rest = ", ".join(f"{name} {value}" for name, value in kwargs.items() if name not in ("column", "severity"))
    wanted = f"{f'{column}: ' if column else ''}{what}{f' ({rest})' if rest else ''}"
    if success:
        return wanted
    got = (
        f"{found['unexpected_count']} of {found['element_count']} are not, such as "
        f"{', '.join(map(repr, found.get('partial_unexpected_list', [])[:3]))}"
        if found.get("unexpected_count")
        else f"got {found.get('observed_value', 'nothing')}"
    )
    return f"wanted {wanted}; {got}"


def _markdown(rows: Sequence[CheckRow], snapshot: str) -> str:
    marks = {True: "ok", False: "**failed**", None: "**not checked**"}
    lines = [f"| {marks[row.passed]} | {row.severity} | {(row.message or '').replace('|', '/')} |" for row in rows]
    return "\n".join([f"Snapshot `{snapshot}`", "", "| | severity | check |", "|---|---|---|", *lines])
