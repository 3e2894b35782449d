"""Targets that return recorded answers: from a file, a column of the dataset, or another experiment."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from evalflows.specs.errors import InputError
from evalflows.store.records import OutputRow, derived_id, to_json
from evalflows.store.spilled_lines import SpilledRows
from evalflows.targets.target import Answer, Target


class NoRecordedAnswerError(LookupError):
    """The recording has no answer for this example, or an error in its place."""


Answers = SpilledRows[str, Mapping[str, Any]]
"""Rows by the key of their example: its id or its inputs."""


def recorded(answers: Iterable[tuple[int, Mapping[str, Any]]], where: str) -> Target:
    """Build a target that returns recorded answers, looked up by the example's id or else by its inputs.

    `answers` are numbered rows of {"id" or "inputs", "outputs" or "error", "latency_s"}. Raise InputError, with the
    row's number, for a row of another shape and for a second row with the same example.
    """
    known, numbers = Answers(), dict[str, int]()
    for number, row in answers:
        key = _key(row, f"{where}:{number}")
        if key in numbers:
            raise InputError(f"{where}:{number}: answers the same example as line {numbers[key]}")
        numbers[key] = number
        known[key] = row

    def call(available: Mapping[str, Any]) -> Answer:
        row = _row_of(known, available)
        if row is None or row.get("outputs") is None:
            error = row.get("error") if row else None
            raise NoRecordedAnswerError(error or f"{where} has no answer for this example")
        return Answer(outputs=row["outputs"], latency_s=_seconds(row.get("latency_s")))

    return Target(call=call, is_async=False)


MAX_SECONDS = 1e8
"""Longest recorded latency, some three years; a longer one is an error of the record, and unknown."""
REFERENCE = "reference_outputs"
"""The column that stands for the example's reference, such as a person's answer, instead of a metadata field."""


def recorded_column(column: str) -> Target:
    """Build a target that returns a field of the example's metadata, or the example's reference."""

    def call(available: Mapping[str, Any]) -> Answer:
        answer = _reference(available) if column == REFERENCE else available["metadata"].get(column)
        if answer is None:
            holder = "example" if column == REFERENCE else "example's metadata"
            raise NoRecordedAnswerError(f"the {holder} has no {column!r}")
        return Answer(outputs=answer)

    return Target(call=call, is_async=False)


def replayed(outputs: Iterable[OutputRow], experiment: str) -> Target:
    """Build a target that returns the outputs of another experiment, by example and repetition, and their cost."""
    known = SpilledRows[tuple[str, int], OutputRow]()
    for output in outputs:
        known[output.example_id, output.repetition] = output

    def call(available: Mapping[str, Any]) -> Answer:
        row = known.get((available["example_id"], available["repetition"]))
        if row is None or row.outputs is None:
            error = row.error if row else None
            raise NoRecordedAnswerError(error or f"{experiment} has no answer for this example and repetition")
        return Answer(
            outputs=json.loads(row.outputs),
            latency_s=row.latency_s,
            tokens_in=row.tokens_in,
            tokens_out=row.tokens_out,
            cost_usd=row.cost_usd,
            steps=row.steps,
            reused_from=row.run_id,
        )

    return Target(call=call, is_async=False)


def _reference(available: Mapping[str, Any]) -> Any:
    return available["example"].reference_outputs


def _row_of(known: Answers, available: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return known.get(f"id:{available['example_id']}") or known.get(_inputs_key(available["inputs"]))


def _key(row: Mapping[str, Any], where: str) -> str:
    if "outputs" not in row and not row.get("error"):
        raise InputError(f"{where}: got {', '.join(row) or 'nothing'}, wanted 'outputs' (or 'error')")
    if row.get("id") is not None:
        return f"id:{row['id']}"
    if "inputs" in row:
        try:
            return _inputs_key(row["inputs"])
        except (TypeError, ValueError) as error:
            raise InputError(f"{where}: inputs: not JSON: {error}") from error
    raise InputError(f"{where}: got {', '.join(row)}, wanted 'id' or 'inputs' to find the example by")


def _inputs_key(inputs: Any) -> str:
    return derived_id("inputs", to_json(inputs if isinstance(inputs, Mapping) else {"input": inputs}))


def _seconds(value: Any) -> float | None:
    """Return a recorded latency, given as a number or as text; None if it is not a valid latency."""
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds <= MAX_SECONDS else None
