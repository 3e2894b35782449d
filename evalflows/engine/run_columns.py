"""Columns of a run: what a target returned, or why it failed."""

from typing import Any, Required, TypedDict, cast

from evalflows.llm.endpoint_errors import MIN_PROVIDER_KEY_CHARS, fault_of, without_keys
from evalflows.specs.code_versions import fault_text
from evalflows.specs.errors import NOT_ATTEMPTED, UNREACHABLE, ErrorKind, InputError, StorageError
from evalflows.store.records import OutputRow, OutputStatus, to_json
from evalflows.targets import Answer, NoRecordedAnswerError, as_outputs, length_of

_REPORTED = Answer._fields[1:]  # all but the outputs
_NOTHING = Answer(outputs=None)[1:]


class RunColumns(TypedDict, total=False):
    """Columns of a run that are known when its target has ended; those of the call itself come besides."""

    status: Required[OutputStatus]
    outputs: str
    length: int
    error: str
    error_kind: ErrorKind
    error_trace: str | None
    attempts: int | None
    latency_s: float | None
    tokens_in: int
    tokens_out: int
    cost_usd: float
    calls: int
    steps: str
    reused_from: str
    application_version: str


def is_final(row: OutputRow) -> bool:
    """Return whether a retry would be useless."""
    return row.status == "ok" or (row.status == "failed" and row.error_kind not in UNREACHABLE)


def returned(value: Any) -> RunColumns:
    """Return the columns of what a target returned."""
    answer = value if isinstance(value, Answer) else None
    try:
        outputs = as_outputs(answer.outputs if answer else value)
        text = without_keys(to_json(outputs, mend=True), MIN_PROVIDER_KEY_CHARS)
        columns: RunColumns = {"status": "ok", "outputs": text, "length": length_of(outputs)}
        return cast("RunColumns", columns | _reported(answer)) if answer else columns
    except InputError as error:
        return failed("bad_return", str(error))
    except MemoryError:  # no fault of the item
        raise
    except Exception as error:  # of an object of the user's, whose fields are read here
        return failed("bad_return", f"outputs cannot be stored as JSON: {fault_text(error)}")


def raised(error: BaseException) -> RunColumns:
    """Return the columns of a run whose target raised. Raise a StorageError again: it is no fault of the item."""
    if isinstance(error, StorageError):
        raise error
    if isinstance(error, NoRecordedAnswerError):
        return failed("no_output", str(error))
    fault = fault_of(error)
    return failed(fault.kind, str(fault)) | {"attempts": fault.attempts, "error_trace": fault.trace}


def failed(kind: ErrorKind, error: str) -> RunColumns:
    """Return the columns of a run that failed."""
    return {"status": "not_attempted" if kind in NOT_ATTEMPTED else "failed", "error_kind": kind, "error": error}


def _reported(answer: Answer) -> dict[str, Any]:
    """Return the columns that an answer reports itself; an unknown latency is not replaced by what was measured."""
    values = answer[1:]
    if values == _NOTHING:
        return {"attempts": 1, "latency_s": None}
    columns = zip(_REPORTED, values, strict=True)
    return {name: value for name, value in columns if value is not None or name == "latency_s"}
