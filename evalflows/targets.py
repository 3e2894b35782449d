"""Targets that return recorded answers: from a file, a column of the dataset, or another experiment."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalflows.specs.errors import InputError, short
from evalflows.store.records import OutputRow, derived_id, to_json
from evalflows.store.spilled_lines import SpilledRows
from evalflows.targets.target import Answer, Target


class NoRecordedAnswerError(LookupError):
    """The recording has no answer for this example, or an error in its place."""


Key = tuple[str, int | None]
"""An example, by its id or its inputs, and a repetition from 0; None for all repetitions."""
Answers = SpilledRows[Key, Mapping[str, Any]]


def recorded(answers: Iterable[tuple[int, Mapping[str, Any]]], where: str) -> Target:
    """Build a target that returns recorded answers, looked up by the example's id or else by its inputs.

    `answers` are numbered rows of {"id" or "inputs", "repetition", "outputs" or "error", "latency_s"}. A row without
    `repetition` answers every repetition that has no row of its own. Raise InputError, with the row's number, for a row
    of another shape and for a second row with the same example and repetition.
    """
    known, numbers, repetitions = Answers(), dict[Key, int](), dict[str, list[int]]()
    for number, row in answers:
        key = example, repetition = _key(row, f"{where}:{number}")
        if key in numbers:
            raise InputError(f"{where}:{number}: answers {_of(repetition)}the same example as line {numbers[key]}")
        numbers[key] = number
        known[key] = row
        if repetition is not None:
            repetitions.setdefault(example, []).append(repetition)

    def call(available: Mapping[str, Any]) -> Answer:
        examples = (f"id:{available['example_id']}", _inputs_key(available["inputs"]))
        keys = [(example, number) for example in examples for number in (available["repetition"], None)]
        row = next((row for key in keys if (row := known.get(key)) is not None), None)
        if row is None or row.get("outputs") is None:
            error = row.get("error") if row else None
            has = [number for example in examples for number in repetitions.get(example, ())]
            raise NoRecordedAnswerError(error or f"{where} has no answer for {_lacking(available['repetition'], has)}")
        return Answer(outputs=row["outputs"], latency_s=_seconds(row.get("latency_s")))

    return Target(call=call, is_async=False, is_recorded=True)


MOST_NAMED = 10
"""Most repetitions that a message names."""
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

    return Target(call=call, is_async=False, is_recorded=True)


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

    return Target(call=call, is_async=False, is_recorded=True)


def _reference(available: Mapping[str, Any]) -> Any:
    return available["example"].reference_outputs


def _of(repetition: int | None) -> str:
    return "" if repetition is None else f"repetition {repetition} of "


def _lacking(repetition: int, recorded_ones: Sequence[int]) -> str:
    """Return what has no answer: a repetition, if the recording has others of this example, else the example."""
    if not recorded_ones:
        return "this example"
    return (
        f"repetition {repetition} of this example, only for {', '.join(map(str, sorted(recorded_ones)[:MOST_NAMED]))}"
    )


def _key(row: Mapping[str, Any], where: str) -> Key:
    if "outputs" not in row and not row.get("error"):
        raise InputError(f"{where}: got {', '.join(row) or 'nothing'}, wanted 'outputs' (or 'error')")
    return _example_key(row, where), _repetition(row.get("repetition"), where)


def _repetition(given: object, where: str) -> int | None:
    """Return a repetition, given as a number or as text, as in CSV; None if the row does not say."""
    if given is None or given == "":
        return None
    number = int(given) if isinstance(given, float) and given.is_integer() else given
    if isinstance(number, str) and re.fullmatch(r"[0-9]{1,9}", number):
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise InputError(f"{where}: repetition: got {short(given)}, wanted a whole number from 0")
    return number


def _example_key(row: Mapping[str, Any], where: str) -> str:
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
